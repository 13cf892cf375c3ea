"""What does not fit float16, by name: weights that a converter clamps, inputs and values that become infinite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strop.check import fixed_batch, groups, probe_rows
from strop.examples import Examples, Feeds
from strop.graph import graphs, load_graph, side_cars, walk
from strop.job import Job

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14  # below it float16 loses bits with each halving, and below 2^-24 all of them
SHOWN = 4


@dataclass(frozen=True)
class Misfit:
    """A tensor of float32 that float16 cannot hold. `size` is its largest magnitude, in the tensor's unit."""

    kind: str
    name: str
    size: float

    def words(self) -> str:
        """Return it as a person reads it."""
        return f"{self.kind} '{self.name}' ({'up to ' if self.kind != 'weight' else ''}{self.size:.3g})"


def beyond_float16(job: Job, source: Path, kept: set[str]) -> dict[str, Any]:
    """Return details on what nodes in float16 would read or make that float16 cannot hold.

    Values are those of the float model on the examples that the artifact is checked with.

    Args:
        job: the quantizing step.
        source: the float model.
        kept: names of nodes that stay in float32.

    Returns:
        Nothing if all fits, else `beyond_float16` (kind, name, size of each) and `suspects`, a sentence for the error
        if the outputs are wrong: a mask of -3e38 is clamped, too, and does its work.
    """
    model = load_graph(source)
    nodes = [node for node in walk(model.graph) if node.name not in kept]
    used = {name for node in nodes for name in (*node.input, *node.output)}
    found = [item for item in (*_weights(source), *_values(job, source)) if item.name in used]
    if not found:
        return {}
    names = {item.name for item in found}
    touching = [node.name for node in nodes if names & {*node.input, *node.output}]
    words = ", ".join(item.words() for item in found[:SHOWN]) + _more(found)
    mend = ",".join(touching[:SHOWN]) + _more(touching)
    suspects = (
        f"float16 holds {SMALLEST_NORMAL:.2g} to {LARGEST:.0f}, but not {words}; quantize.keep_float=[{mend}] keeps "
        "what touches them in float32"
    )
    return {"beyond_float16": [asdict(item) for item in found], "suspects": suspects}


def _more(items: list[Any]) -> str:
    return f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""


def _weights(source: Path) -> Iterator[Misfit]:
    """Yield weights with a value above the range, and those that are below it as a whole."""
    import onnx

    for part in graphs(onnx.load(str(source)).graph):
        for tensor in part.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                values = onnx.numpy_helper.to_array(tensor)
                size = float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
                if size > LARGEST or 0 < size < SMALLEST_NORMAL:
                    yield Misfit("weight", tensor.name, size)


def _values(job: Job, source: Path) -> Iterator[Misfit]:
    """Yield inputs and values between the nodes that exceed the range on the probed examples."""
    from onnxruntime.quantization.calibrate import create_calibrator

    model = load_graph(source)
    inputs = {value.name for value in model.graph.input}
    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            source, None, f"{folder}/augmented.onnx", use_external_data_format=bool(side_cars(model))
        )
        calibrator.collect_data(_Probes(job, inputs))
        ranges = calibrator.compute_data().items()
    for name, data in ranges:
        size = float(np.max(np.abs(np.asarray(data.range_value, np.float64))))
        if LARGEST < size < np.inf:  # float16 has infinities of its own
            yield Misfit("input" if name in inputs else "value", name, size)


class _Probes:
    """The examples that artifacts are checked with, one batch after the other."""

    def __init__(self, job: Job, inputs: set[str]) -> None:
        examples = Examples.read(job.artifact("model").file("examples/test.parquet"))
        rows = groups(probe_rows(examples), fixed_batch(job.artifact("source").manifest.inputs))[0]
        feeds = (examples.batch(batch) for batch in rows)
        self._feeds = ({name: value for name, value in feed.items() if name in inputs} for feed in feeds)

    def get_next(self) -> Feeds | None:
        """Return the next batch, or None after the last."""
        return next(self._feeds, None)
