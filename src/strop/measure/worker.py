"""A worker process: one arm's sessions, and nothing else. `python -m strop.measure.worker FD PARENT`."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from strop.artifact import Artifact
from strop.compare import Outputs
from strop.errors import StageFailure, one_line
from strop.examples import Examples
from strop.measure.paired import Block
from strop.process import die_with_parent, settle
from strop.runtimes.session import Session, open_session

HUGE_PAGES = "glibc.malloc.hugetlb=1"


class WorkerArm:
    """An arm whose sessions live in a process of their own.

    Args:
        name: `reference` or `variant`, for messages.
        artifact: folder of the artifact.
        examples: Parquet file of the examples.
        rows: the batches, each as rows of the examples.
        device: settings of the device.
    """

    def __init__(
        self, name: str, artifact: Path, examples: Path, rows: list[list[int]], device: dict[str, Any]
    ) -> None:
        self._name = name
        self._task = {"artifact": artifact, "examples": examples, "rows": rows, "device": device}
        self._huge_pages = bool(device["huge_pages"])
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self.usage: list[dict[str, float]] = []

    def start(self) -> None:
        """See `strop.measure.paired.Arm`."""
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "strop.measure.worker", str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._connection.send(self._task)

    def _environment(self) -> dict[str, str]:
        if not self._huge_pages:
            return dict(os.environ)
        given = os.environ.get("GLIBC_TUNABLES")
        return {**os.environ, "GLIBC_TUNABLES": f"{given}:{HUGE_PAGES}" if given else HUGE_PAGES}

    def renew(self) -> dict[str, float]:
        """See `strop.measure.paired.Arm`."""
        opening: dict[str, float] = self._ask("renew")
        return opening

    def block(self, batches: Sequence[int]) -> Block:
        """See `strop.measure.paired.Arm`."""
        return Block(*self._ask("block", list(batches)))

    def answer(self, batch: int) -> Outputs:
        """Return the outputs of one batch, untimed."""
        outputs: Outputs = self._ask("answer", batch)
        return outputs

    def facts(self) -> dict[str, Any]:
        """Return what the open session says of itself."""
        facts: dict[str, Any] = self._ask("facts")
        return facts

    def _ask(self, what: str, *arguments: Any) -> Any:
        """Wait for the answer on the pipe, asleep: who polls slows down whom it waits for.

        Raises:
            StageFailure: the worker says so, or has died.
        """
        assert self._connection is not None, "start comes first"
        try:
            self._connection.send((what, arguments))
            status, value = self._connection.recv()
        except (EOFError, ConnectionError):
            raise StageFailure("crashed", f"the {self._name}'s process {self._death()}") from None
        if status != "ok":
            raise StageFailure(status, f"{self._name}: {value}")
        return value

    def _death(self) -> str:
        assert self._process is not None, "start comes first"
        code = self._process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End the process, if there is one, and keep what it used."""
        if self._process is None or self._connection is None:
            return
        with contextlib.suppress(StageFailure):  # it died, which was said where it happened
            self.usage.append(self._ask("usage"))
        self._connection.close()
        self._process.wait()
        self._process = self._connection = None


class Worker:
    """The other end of a `WorkerArm`."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._artifact = Artifact(task["artifact"])
        self._device = task["device"]
        examples = Examples.read(task["examples"])
        self._feeds = [examples.batch(rows) for rows in task["rows"]]
        self._session: Session | None = None
        self._calls: list[Any] = []
        self._open()  # imports the runtime: both arms do this at the same time, before the first is asked for anything

    def _open(self) -> Session:
        return open_session(self._artifact, threads=self._device["threads"], device=self._device["kind"])

    def renew(self) -> dict[str, float]:
        """Drop the session, load it anew, prepare all batches, and make the first call."""
        self._session, self._calls = None, []
        gc.collect()
        began = time.perf_counter()
        self._session = self._open()
        loaded = time.perf_counter()
        self._calls = [self._session.prepare(feeds) for feeds in self._feeds]
        prepared = time.perf_counter()
        self._calls[0]()
        called = time.perf_counter()
        settle()
        return {"load_s": loaded - began, "first_call_s": called - prepared}

    def block(self, batches: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Time calls: nothing but the call stands between two readings of the clock."""
        calls = [self._calls[batch] for batch in batches]
        starts, ends = np.zeros(len(calls)), np.zeros(len(calls))
        clock = time.perf_counter
        gc.disable()
        for at, call in enumerate(calls):
            start = clock()
            call()
            ends[at] = clock()
            starts[at] = start
        gc.enable()
        settle()
        return starts, ends - starts

    def answer(self, batch: int) -> Outputs:
        """Return the outputs of one batch."""
        assert self._session is not None, "renew comes first"
        return self._session.to_numpy(self._calls[batch]())

    def facts(self) -> dict[str, Any]:
        """Return the session's facts."""
        assert self._session is not None, "renew comes first"
        return self._session.facts

    def usage(self) -> dict[str, float]:
        """Return peak resident memory [byte], CPU time [s], and involuntary context switches of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "peak_memory_bytes": used.ru_maxrss * 1024,
            "cpu_s": used.ru_utime + used.ru_stime,
            "switches": used.ru_nivcsw,
        }


def serve(connection: Connection[Any, Any]) -> None:
    """Answer requests until the other end is gone; what prevents the start is the answer to each of them."""
    task = connection.recv()
    made = _attempt(lambda: Worker(task))
    while True:
        try:
            what, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(made, what, arguments))


def _answer(made: tuple[str, Any], what: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    status, worker = made
    return made if status != "ok" else _attempt(lambda: getattr(worker, what)(*arguments))


def _attempt(work: Callable[[], Any]) -> tuple[str, Any]:
    """Return `ok` and what `work` returns, or a status and one line."""
    try:
        return "ok", work()
    except StageFailure as failure:
        return failure.status, one_line(failure)
    except Exception as error:
        return "crashed", one_line(error)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))
