"""A worker process: one arm's sessions, and nothing else. `python -m strop.measure.worker FD PARENT`.

It imports the runtime once. For each session it forks, and the child loads, answers and ends: so every session meets
memory as a new process does, at the price of a fork. On CUDA, which does not survive a fork, sessions are loaded anew
in the one process.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np

from strop.artifact import Artifact
from strop.compare import Outputs
from strop.errors import StageFailure, one_line
from strop.examples import Examples
from strop.measure.conditions import Usage
from strop.measure.energy import EnergyMeter, open_meter
from strop.measure.memory import MemoryWatch
from strop.measure.paired import Block, Opening
from strop.measure.split import lead_in_calls
from strop.measure.timers import overhead, timer_for
from strop.process import die_with_parent, settle
from strop.runtimes.cuda import CudaOptions
from strop.runtimes.session import Call, Session, open_session, preload

ENDED = 79  # exit code of a child that was asked to end: a model may end its process with any other, 0 included


class Worker:
    """The other end of a `strop.measure.arm.WorkerArm`: what it does with one session after the other."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.device = task["device"]
        self._affinity = bind(self.device.get("affinity"))
        self.memory = MemoryWatch(self.device["kind"])
        self._artifact = Artifact(task["artifact"]).verify()  # here, so that no session's loading is charged for it
        examples = Examples.read(task["examples"])
        self._feeds = [examples.batch(rows) for rows in task["rows"]]
        self._session: Session | None = None
        self._calls: list[Call] = []
        self._call_s: float | None = None  # of the last block
        self._timed = Usage()
        self._meter: EnergyMeter = open_meter(self.device["kind"])
        self._energy_j: float | None = None
        self._energy_calls = 0
        preload(self._artifact)  # both arms do this at the same time, before the first is asked for anything

    def renew(self) -> Opening:
        """Drop the session, load it anew, prepare all batches, and make the first call."""
        self._drop()
        self._timed, self._energy_j, self._energy_calls = Usage(), None if self._meter.reason else 0.0, 0
        began = time.perf_counter()
        device = self.device
        self._session = open_session(
            self._artifact, threads=device["threads"], device=device["kind"], cuda=CudaOptions.from_settings(device)
        )
        loaded = time.perf_counter()
        self._calls = [self._session.prepare(feeds) for feeds in self._feeds]
        prepared = time.perf_counter()
        self._calls[0]()
        called = time.perf_counter()
        self._timer = timer_for(self._session)
        self.memory.loaded()
        settle()
        return Opening(loaded - began, called - prepared, self._session.compile_seconds())

    def block(self, batches: list[int], keep: bool) -> Block:
        """Time calls, and return the last one's outputs if asked to.

        While this process slept, the other one had the caches to itself. What it costs to get them back is not the
        model's, so a few calls that are not timed come first.
        """
        calls = [self._calls[batch] for batch in batches]
        used, energy_j = Usage.now(), self._meter.read_j()
        lead_in_s, made = self._lead_in(calls)
        timed = self._timer.time_calls(calls)
        self._timed += Usage.now() - used
        if energy_j is not None and self._energy_j is not None:
            self._energy_j += (self._meter.read_j() or energy_j) - energy_j
            self._energy_calls += made + len(calls)
        self._call_s = float(np.median(timed.latency_s))
        outputs = self._answer(timed.last) if keep else None
        settle()
        return Block(timed.start_s, timed.latency_s, outputs, lead_in_s, timed.device_s)

    def _lead_in(self, calls: Sequence[Call]) -> tuple[float, int]:
        """Make the first calls of a block untimed; return the time of that [s] and their number."""
        began = time.perf_counter()
        count = lead_in_calls(self._call_s)
        for call in itertools.islice(itertools.cycle(calls), count):
            call()
        return time.perf_counter() - began, count

    def _answer(self, raw: Any) -> Outputs:
        assert self._session is not None, "renew comes first"
        return self._session.to_numpy(raw)

    def facts(self) -> dict[str, Any]:
        """Return the session's facts, and what is the same for both arms: CPUs and threads."""
        assert self._session is not None, "renew comes first"
        return {
            **self._session.facts,
            "affinity": self._affinity,
            "overhead_s": overhead(self._timer),
            "transfer": self._session.transfer_seconds(self._calls[0]),
        }

    def process_id(self) -> int:
        """Return this process's id."""
        return os.getpid()

    def end(self) -> dict[str, Any]:
        """Drop the session, and return what it used: within blocks, memory [byte], energy of its calls [J]."""
        report = {
            "timed": self._timed,
            **asdict(self.memory.report()),
            "energy_j": self._energy_j,
            "energy_calls": self._energy_calls,
            "energy_reason": self._meter.reason,
        }
        self._drop()
        return report

    def _drop(self) -> None:
        self._session, self._calls = None, []
        gc.collect()


def bind(affinity: list[int] | None) -> list[int]:
    """Keep this process and what it starts to CPUs (None: to those it has), and return them.

    Raises:
        StageFailure: `skipped`: the machine has not all of them.
    """
    had = sorted(os.sched_getaffinity(0))
    if affinity is None:
        return had
    if not set(affinity) <= set(had):
        raise StageFailure("skipped", f"device.affinity={list(affinity)}: the CPUs here are {had}")
    os.sched_setaffinity(0, affinity)
    return sorted(affinity)


def serve(connection: Connection[Any, Any]) -> None:
    """Answer requests until the other end is gone; what prevents the start is the answer to each of them."""
    task = connection.recv()
    status, worker = made = _attempt(lambda: Worker(task))
    forks = status == "ok" and task["fork"]
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page that it shares
    with contextlib.suppress(EOFError):
        while True:
            what, arguments = connection.recv()
            if what == "renew" and forks:
                _fork(connection, worker)
            else:
                connection.send(_answer(made, what, arguments))


def _fork(connection: Connection[Any, Any], worker: Worker) -> None:
    """Have a child renew the session and answer until it is asked to end; if it ends otherwise, end as it did.

    What it writes to temporary files goes with it.
    """
    parent, resident_bytes = os.getpid(), worker.memory.resident_bytes()
    with tempfile.TemporaryDirectory(prefix="strop-session-") as folder:
        child = os.fork()
        if child == 0:
            _be_child(parent, resident_bytes, folder, connection, worker)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != ENDED:
        _end_as(code)


def _be_child(
    parent: int, resident_bytes: int | None, folder: str, connection: Connection[Any, Any], worker: Worker
) -> NoReturn:
    code = 1
    try:
        die_with_parent(parent)
        worker.memory.forked(resident_bytes)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        _serve_session(connection, worker)
        code = ENDED
    except BaseException:  # a model may call sys.exit
        traceback.print_exc()
    finally:
        os._exit(code)


def _end_as(code: int) -> NoReturn:
    """End this process by the signal, or with the code, that its child did, so that whoever waits for it can say so."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL can have no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _serve_session(connection: Connection[Any, Any], worker: Worker) -> None:
    what, arguments = "renew", ()
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_answer(("ok", worker), what, arguments))
            if what == "end":
                return
            what, arguments = connection.recv()


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


def worker_command(fd: int) -> list[str]:
    """Return the command that starts a worker which talks over a file descriptor, and dies with this process."""
    return [sys.executable, "-m", "strop.measure.worker", str(fd), str(os.getpid())]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    serve(Connection(int(sys.argv[1])))
