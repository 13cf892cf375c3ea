"""Mixed precision in ONNX: which nodes stay in float, by their names or because their loss was measured.

A layer's loss is measured for real: the model with this one layer quantized, and nothing else, answers calibration
examples beside the float model, and the layers are ranked by how far its outputs are off ("Partial quantization" in
Wu et al., Integer quantization for deep learning inference, arXiv:2004.09602).
"""

from __future__ import annotations

import fnmatch
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strop.artifact import write_atomically
from strop.check import join
from strop.compare import Outputs, compare
from strop.errors import StageFailure, nearest, one_line
from strop.examples import Feeds
from strop.graph import WEIGHTED_OPS, graphs, load_graph, walk
from strop.job import Job
from strop.runtimes.onnxruntime import create
from strop.sources import local_path
from strop.stages.quantize.common import MODEL, batches, calibration

EXAMPLES = 16  # of each layer's measurement: twice as many as the check of an artifact looks at
FILE = "sensitivity.json"
LAYERS = (*WEIGHTED_OPS, "ConvTranspose", "Gather")


@dataclass(frozen=True)
class Choice:
    """Which nodes a quantizer leaves in float: those of `kept`, or all but `alone`, when one layer is measured."""

    kept: tuple[str, ...] = ()
    alone: str | None = None


@dataclass(frozen=True)
class Keeping:
    """The settings of mixed precision; see `strop.settings.Quantize`."""

    keep_float: list[str]
    keep_sensitive: int
    sensitivity_file: str | None
    sensitivity_time_s: float


Write = Callable[[Path, Choice], None]


def keep_in_float(
    job: Job, source: Path, write: Write, keeping: Keeping, op_types: Iterable[str] = LAYERS
) -> tuple[Choice, dict[str, Any]]:
    """Choose the nodes that stay in float, and write `sensitivity.json` if layers are to be measured.

    Args:
        job: the quantizing step.
        source: the model as it goes into the quantizer.
        write: quantizes `source` into a file.
        keeping: what is asked for.
        op_types: operators that the quantizer would quantize.

    Returns:
        The choice, and details for the manifest: `kept_in_float`, and `sensitivity` if it was measured.

    Raises:
        StageFailure: a pattern that fits no node's name; no calibration examples to measure on.
    """
    model = load_graph(source)
    kept = _named(model, keeping.keep_float)
    details: dict[str, Any] = {}
    if keeping.keep_sensitive > 0:
        names = [name for name in layers(model, set(op_types)) if name not in kept]
        if keeping.sensitivity_file:
            losses = _read_losses(job, keeping.sensitivity_file, names)
        else:
            losses = _losses(job, source, write, names, keeping.sensitivity_time_s)
        details = _ranked(job, losses, keeping.keep_sensitive, len(names))
        kept += [row["layer"] for row in details["sensitivity"] if row["kept"]]
    return Choice(tuple(kept)), details | ({"kept_in_float": kept} if kept else {})


def rank(job: Job, source: Path, write: Write, limit_s: float, op_types: Iterable[str] = LAYERS) -> dict[str, Any]:
    """Measure each layer, keep none, and write `sensitivity.json`; arguments and errors as in `keep_in_float`.

    Returns:
        Details for the manifest: `sensitivity`, the layers with their losses, that which loses most first.
    """
    names = layers(load_graph(source), set(op_types))
    return _ranked(job, _losses(job, source, write, names, limit_s), 0, len(names))


def _ranked(job: Job, losses: dict[str, float], keep: int, total: int) -> dict[str, Any]:
    """Write `sensitivity.json`, in which the first `keep` layers stay in float, and return what the manifest says."""
    order = sorted(losses, key=lambda name: -losses[name])
    rows = [_row(name, losses[name], at < keep) for at, name in enumerate(order)]
    write_atomically(job.folder / FILE, json.dumps(rows, indent=1) + "\n")
    return {"sensitivity": rows, "layers_measured": len(losses), "layers": total}


def _read_losses(job: Job, name: str, names: list[str]) -> dict[str, float]:
    """Return layer -> loss of an earlier run's `sensitivity.json`, of those layers that are asked about.

    Raises:
        StageFailure: `build_failed`: it is no such list, or ranks none of them: it is of another model.
    """
    path = local_path(job.project, name, "quantize.sensitivity_file")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        losses = {row["layer"]: math.inf if row["loss"] is None else float(row["loss"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        text = f"quantize.sensitivity_file={name}: no list of layers and losses as {FILE}: {one_line(error)}"
        raise StageFailure("build_failed", text) from error
    found = {layer: loss for layer, loss in losses.items() if layer in names}
    if not found:
        text = f"quantize.sensitivity_file={name}: none of its {len(losses)} layers is one of this model's {len(names)}"
        raise StageFailure("build_failed", text)
    return found


def _row(name: str, loss: float, kept: bool) -> dict[str, Any]:
    return {"layer": name, "loss": float(loss) if np.isfinite(loss) else None, "kept": kept}


def _named(model: Any, patterns: list[str]) -> list[str]:
    """Return the names of the nodes that a list of names and patterns (`*`, `?`) means, in the order of the graph."""
    names = list(dict.fromkeys(node.name for node in walk(model.graph)))
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            raise StageFailure(
                "build_failed", f"quantize.keep_float: no node is called '{pattern}'; {nearest(pattern, names)}"
            )
    return [name for name in names if any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def with_products(names: list[str]) -> list[str]:
    """Return names, and those that ONNX Runtime gives the MatMul which it makes of a Gemm of such a name."""
    return [*names, *(f"{name}_MatMul" for name in names)]


def layers(model: Any, op_types: set[str]) -> list[str]:
    """Return the names of the nodes of some types that hold float weights, in the order of the graph."""
    import onnx

    found: list[str] = []
    weights: set[str] = set()
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    for part in graphs(model.graph):
        weights |= {t.name for t in part.initializer if t.data_type in floats and len(t.dims) > 1}
    for node in walk(model.graph):
        if node.op_type in op_types & set(LAYERS) and weights & set(node.input[:2]):
            found.append(node.name)
    return found


def _losses(job: Job, source: Path, write: Write, names: list[str], limit_s: float) -> dict[str, float]:
    """Return layer -> loss when it alone is quantized [1]; those at the ends of the model come first, as time is short.

    The loss is the relative difference of all examples' answers from the float model's, of the output that is worst in
    it; infinite if one is not finite.
    """
    feeds = batches(job, calibration(job, EXAMPLES))
    wanted = _answers(source, feeds, job.threads)
    ends_first = [name for pair in zip(names, reversed(names), strict=True) for name in pair]
    losses: dict[str, float] = {}
    started = time.monotonic()
    for name in dict.fromkeys(ends_first):
        if time.monotonic() - started > limit_s:
            print(f"sensitivity: {limit_s:g} s are over, {len(losses)} of {len(names)} layers measured", flush=True)
            break
        with tempfile.TemporaryDirectory() as folder:  # a new one each time: weights beside a file are appended to
            target = Path(folder) / MODEL
            write(target, Choice(alone=name))
            losses[name] = _loss(wanted, _answers(target, feeds, job.threads))
        print(f"sensitivity {len(losses)}/{len(names)}: {name} loses {losses[name]:.3g}", flush=True)
    return losses


def _answers(path: Path, feeds: list[Feeds], threads: int) -> Outputs:
    session = create(path, threads, "all", {})
    names = [output.name for output in session.get_outputs()]
    known = {value.name for value in session.get_inputs()}
    taken = [{name: value for name, value in batch.items() if name in known} for batch in feeds]
    return join([dict(zip(names, session.run(names, batch), strict=True)) for batch in taken])


def _loss(wanted: Outputs, found: Outputs) -> float:
    return max(item.relative_l2 for item in compare(wanted, found))
