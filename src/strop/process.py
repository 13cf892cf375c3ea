"""What processes of strop owe each other: a child dies with its parent, and a settled one burns no CPU."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

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
