"""Operator times of an artifact, as its runtime counts them itself."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.artifact import Artifact
from strop.errors import StageFailure
from strop.runtimes.session import RUNTIMES, Call, Feeds

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions


@dataclass(frozen=True)
class Operator:
    """What an operator took in all profiled calls together: `seconds` of its own [s], in `count` executions [1].

    See `strop.records.OPERATORS` for the texts.
    """

    operator: str
    seconds: float
    count: int
    name: str | None = None
    kernel: str | None = None
    shapes: str | None = None


@dataclass(frozen=True)
class Profiled:
    """Operators of all profiled calls, the time of these calls together [s], and the session's facts."""

    operators: list[Operator]
    wall_s: float
    facts: dict[str, Any]


def profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, *, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    """Call an artifact in a session of its own that counts operators' times, after as many calls that warm up.

    Args:
        artifact: a finished one; its files are verified by hash first.
        feeds: batches, which take turns.
        calls: calls that are counted [1].
        threads: see `strop.runtimes.session.open_session`.
        device: see there.
        cuda: see there.

    Raises:
        StageFailure: `skipped`: the format has no runtime here, or its runtime tells no operators' times on the device;
            else as `open_session`.
    """
    format_ = artifact.manifest.format or "?"
    if format_ not in RUNTIMES:
        raise StageFailure("skipped", f"no runtime executes the format '{format_}' on this machine")
    module = importlib.import_module(RUNTIMES[format_].replace("strop.runtimes.", "strop.runtimes.profiling."))
    found: Profiled = module.profile(artifact.verify(), feeds, calls, threads=threads, device=device, cuda=cuda)
    return found


def make_calls(calls: Sequence[Call], count: int) -> float:
    """Make `count` calls in turns, and return the time of all together [s]."""
    began = time.perf_counter()
    for call in itertools.islice(itertools.cycle(calls), count):
        call()
    return time.perf_counter() - began
