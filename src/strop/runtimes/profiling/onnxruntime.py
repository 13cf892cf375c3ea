"""ONNX Runtime's own profile: the kernels of the graph as it is executed, fused and quantized operators included."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.artifact import Artifact
from strop.errors import StageFailure
from strop.runtimes.onnxruntime import open_session
from strop.runtimes.profiling import Operator, Profiled, make_calls
from strop.runtimes.session import Feeds

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions

KERNEL = "_kernel_time"


def profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, *, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    """See `strop.runtimes.profiling.profile`. On CUDA the profile has the time of launching kernels, not theirs."""
    if device != "cpu":
        raise StageFailure("skipped", f"ONNX Runtime tells no operator's time on {device}, only that of launching it")
    with tempfile.TemporaryDirectory(prefix="strop-profile-") as folder:
        session = open_session(artifact, threads=threads, device=device, cuda=cuda, profile_to=Path(folder) / "ort")
        prepared = [session.prepare(batch) for batch in feeds]
        make_calls(prepared, max(calls, len(prepared)))
        wall_s = make_calls(prepared, calls)
        events = json.loads(session.end_profile().read_text(encoding="utf-8"))
    return Profiled(operators_of(events, calls), wall_s, session.facts)


def operators_of(events: list[dict[str, Any]], calls: int) -> list[Operator]:
    """Return the operators of the last `calls` calls in ONNX Runtime's events, by node.

    An `If` or a `Loop` holds the nodes of its branches: what they take is not its own.
    """
    runs = sorted(event["ts"] for event in events if event["name"] == "model_run")
    start = runs[-calls] if runs else 0
    kernels = [event for event in events if event["ts"] >= start and event["name"].endswith(KERNEL)]
    own_us = _own_times(kernels)
    found: dict[tuple[str, str, str], list[Any]] = defaultdict(lambda: [0.0, 0, None])
    for event, microseconds in zip(kernels, own_us, strict=True):
        arguments = event["args"]
        entry = found[arguments["op_name"], event["name"].removesuffix(KERNEL), arguments.get("provider", "")]
        entry[0] += microseconds / 1e6
        entry[1] += 1
        entry[2] = json.dumps(arguments.get("input_type_shape"))
    return [
        Operator(kind, seconds, count, name, provider, shapes)
        for (kind, name, provider), (seconds, count, shapes) in found.items()
    ]


def _own_times(events: list[dict[str, Any]]) -> list[float]:
    """Return each event's duration less that of the events of its thread within it [us]."""
    own = [float(event["dur"]) for event in events]
    order = sorted(range(len(events)), key=lambda at: (events[at]["tid"], events[at]["ts"], -events[at]["dur"]))
    around: list[int] = []
    for at in order:
        event = events[at]
        while around and not _holds(events[around[-1]], event):
            around.pop()
        if around:
            own[around[-1]] -= event["dur"]
        around.append(at)
    return own


def _holds(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    end = outer["ts"] + outer["dur"]
    return bool(outer["tid"] == inner["tid"] and inner["ts"] < end and inner["ts"] + inner["dur"] <= end)
