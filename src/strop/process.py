"""What processes of strop owe each other: to die with the parent, to wait their turn, to burn no CPU while asleep."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
QUIET_SHARE = 0.1  # of one core
LONGEST_WAIT_S = 0.5  # spinning threads of OpenMP give up after 0.2 s


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux's prctl; elsewhere nothing).

    Args:
        parent: the parent's process id; if it has died before the kernel could be asked, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Hold a lock file; others wait. The kernel frees it when the process ends, however it ends.

    Any number may hold it `shared` at once, but none beside one who does not share.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:  # over NFS a shared lock needs a file open for reading, the other one for writing
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def settle() -> float:
    """Wait until this process burns no CPU, at most half a second, and return the time waited [s].

    Threads of a runtime may spin after a call, waiting for the next; they would slow down whoever works then.
    """
    began = time.perf_counter()
    while True:
        started, used = time.perf_counter(), time.process_time()
        time.sleep(0.001)
        now = time.perf_counter()
        if time.process_time() - used < QUIET_SHARE * (now - started) or now - began > LONGEST_WAIT_S:
            return now - began
