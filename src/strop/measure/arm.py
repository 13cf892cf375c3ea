"""The coordinator's end of a worker process: one arm of a comparison."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from strop.errors import StageFailure
from strop.measure.paired import Block, Opening
from strop.measure.worker import worker_command

HUGE_PAGES = "glibc.malloc.hugetlb=1"


class WorkerArm:
    """An arm whose sessions live in processes of their own.

    Args:
        name: `reference` or `variant`, for messages.
        artifact: folder of the artifact.
        examples: Parquet file of the examples.
        rows: the batches, each as rows of the examples.
        device: settings of the device.
        fork: a child for each session; else, and always on CUDA, sessions are loaded anew in the one process.
    """

    def __init__(
        self,
        name: str,
        artifact: Path,
        examples: Path,
        rows: list[list[int]],
        device: dict[str, Any],
        fork: bool = True,
    ) -> None:
        self._name = name
        self._task = {"artifact": artifact, "examples": examples, "rows": rows, "device": device}
        self._task["fork"] = fork and device["kind"] == "cpu"
        self._huge_pages = bool(device["huge_pages"])
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._has_session = False
        self.reports: list[dict[str, Any]] = []

    def start(self) -> None:
        """See `strop.measure.paired.Arm`."""
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                worker_command(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._connection.send(self._task)

    def _environment(self) -> dict[str, str]:
        # A process that forks should have no threads: NumPy's compute nothing here, ONNX Runtime's sends usage data.
        plain = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
        if not self._huge_pages:
            return plain
        given = os.environ.get("GLIBC_TUNABLES")
        return {**plain, "GLIBC_TUNABLES": f"{given}:{HUGE_PAGES}" if given else HUGE_PAGES}

    def renew(self) -> Opening:
        """See `strop.measure.paired.Arm`."""
        self._end_session()
        opening: Opening = self._ask("renew")
        self._has_session = True
        return opening

    def block(self, batches: Sequence[int], keep: bool = False) -> Block:
        """See `strop.measure.paired.Arm`."""
        block: Block = self._ask("block", list(batches), keep)
        return block

    def facts(self) -> dict[str, Any]:
        """Return what the open session and its process say of themselves."""
        facts: dict[str, Any] = self._ask("facts")
        return facts

    def process_id(self) -> int:
        """Return the id of the process that the open session lives in."""
        pid: int = self._ask("process_id")
        return pid

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
            assert self._process is not None, "it has the other end"
            status, value = "crashed", _death(self._process.wait())
        if status != "ok":
            self._has_session = False
            raise StageFailure(status, f"{self._name}: {value}")
        return value

    def _end_session(self) -> None:
        """Close the session, if there is one, and keep what it used."""
        if self._has_session:
            self._has_session = False
            self.reports.append(self._ask("end"))

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is None or self._connection is None:
            return
        with contextlib.suppress(StageFailure):  # it died, which was said where it happened
            self._end_session()
        self._connection.close()
        self._process.wait()
        self._process = self._connection = None


def _death(code: int) -> str:
    """Return how a process ended, from its exit code as `subprocess` gives it."""
    return f"its process was killed by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"
