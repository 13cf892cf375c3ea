"""Timers: how prepared calls are timed, and what the timing itself costs."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from strop.runtimes.session import Call, Session

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timed:
    """Calls that were timed one after the other.

    Attributes:
        start_s: start of each call on the timer's clock [s], float64, shape (calls,).
        latency_s: what a caller waits for each call, until its work is complete [s], float64, shape (calls,).
        device_s: time between a CUDA event before and one after each call's work [s], float64, shape (calls,); None
            where the host alone keeps time.
        last: raw result of the last call; None if there was no call.
    """

    start_s: np.ndarray
    latency_s: np.ndarray
    device_s: np.ndarray | None
    last: Any


class Timer(Protocol):
    """Times prepared calls of one session."""

    def time_calls(self, calls: Sequence[Call]) -> Timed:
        """Make the calls in order, and time each; the garbage collector is off meanwhile."""
        ...


class HostTimer:
    """Nothing but the call stands between two readings of the clock.

    A result is dropped before the next call starts, outside of the timed region: so the next call finds its memory
    free again, and no call pays for freeing it. Times are kept after the second reading, so how they are kept is not
    timed either.

    Args:
        clock: monotonic clock [s].
    """

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock

    def time_calls(self, calls: Sequence[Call]) -> Timed:
        """See `Timer`."""
        clock = self._clock
        starts, ends, last = [0.0] * len(calls), [0.0] * len(calls), None
        with _no_collection():
            for at, call in enumerate(calls):
                last = None
                start = clock()
                last = call()
                end = clock()
                starts[at], ends[at] = start, end
        start_s = np.asarray(starts, dtype=np.float64)
        return Timed(start_s, np.asarray(ends, dtype=np.float64) - start_s, None, last)


class CudaEventTimer:
    """For calls that only enqueue their work on a CUDA stream: one is complete before the next one starts.

    The latency is the host's: from before the work is enqueued until the event after it has been waited for. The first
    event is recorded before that, on an idle stream. The device's time is that between the two events, so it includes
    the gaps in which the device waits for the host to enqueue. Source: CUDA Runtime API, Event Management
    (`cudaEventElapsedTime`: resolution of about 0.5 us).

    Args:
        stream: `torch.cuda.Stream` of the calls' work.
        make_event: gives events with timing, whose `elapsed_time` is in milliseconds.
        clock: monotonic clock [s].
    """

    def __init__(self, stream: Any, make_event: Callable[[], Any] | None = None, clock: Clock = time.perf_counter):
        self._stream = stream
        self._make_event = make_event or _timing_event
        self._clock = clock

    def time_calls(self, calls: Sequence[Any]) -> Timed:
        """See `Timer`; each call has `enqueue`, as `strop.runtimes.cuda.CudaCall` has."""
        import torch

        clock, stream = self._clock, self._stream
        before, after = self._make_event(), self._make_event()
        starts, ends, device, last = [0.0] * len(calls), [0.0] * len(calls), [0.0] * len(calls), None
        with torch.cuda.stream(stream), _no_collection():
            stream.synchronize()
            for at, call in enumerate(calls):
                last = None
                before.record(stream)
                start = clock()
                last = call.enqueue()
                after.record(stream)
                after.synchronize()
                end = clock()
                starts[at], ends[at], device[at] = start, end, before.elapsed_time(after)
        start_s = np.asarray(starts, dtype=np.float64)
        device_s = np.asarray(device, dtype=np.float64) / 1e3
        return Timed(start_s, np.asarray(ends, dtype=np.float64) - start_s, device_s, last)


def timer_for(session: Session) -> Timer:
    """Return the timer for a session's prepared calls: by CUDA events if their work is on a stream that we know."""
    return HostTimer() if session.stream is None else CudaEventTimer(session.stream)


def overhead(timer: Timer, calls: int = 2000) -> float:
    """Return what timing adds to a call [s]: the median time of a call that does nothing, in the timer's own loop.

    On the host that is one reading of the clock and one call of a Python function. By CUDA events it is an event on an
    idle stream and the wait for it, which a caller without our timer would have, too, in some form.
    """
    return float(np.median(timer.time_calls([_Nothing()] * calls).latency_s))


class _Nothing:
    def __call__(self) -> None:
        """Do nothing."""

    enqueue = __call__


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from running; afterwards it is as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _timing_event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)
