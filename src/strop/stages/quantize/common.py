"""What quantizers share: calibration examples, a prepared ONNX file, and the look at what came out."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.artifact import Artifact
from strop.check import fixed_batch
from strop.errors import StageFailure
from strop.examples import Examples, Feeds
from strop.graph import is_quantized, load_graph, node_counts, quantized_share, side_cars, walk
from strop.job import Job, Made
from strop.runtimes.modules import read_spec

MODEL = "model.onnx"
NOTHING_QUANTIZED = "the quantizer changed nothing; see quantize.op_types"
ALL_KEPT = "all that could be quantized stays in float; see quantize.keep_float and quantize.keep_sensitive"


def refuse_quantized(source: Artifact) -> None:
    """Check that a model is not quantized yet: twice would round what is rounded, double Q/DQ pairs or do nothing.

    Args:
        source: a `torch` or `onnx` artifact.

    Raises:
        StageFailure: `skipped`: it is.
    """
    torch = source.manifest.format == "torch"
    if read_spec(source)["quantize"] if torch else is_quantized(load_graph(source.verify().folder / MODEL)):
        raise StageFailure("skipped", "the model is quantized already")


def calibration(job: Job, most: int) -> Examples:
    """Return the calibration examples of the model.

    Raises:
        StageFailure: `calibration_failed`: there are none, or they hold no values; libraries would finish all the
            same, with ranges of nothing.
    """
    model = job.artifact("model")
    if "examples/calibration.parquet" not in {file.path for file in model.manifest.files}:
        raise StageFailure("calibration_failed", "no calibration examples; set dataset.calibration_size")
    examples = Examples.read(model.file("examples/calibration.parquet"))
    full = [row for row in range(len(examples)) if all(column[row].size for column in examples.columns.values())]
    if not full or most < 1:
        raise StageFailure("calibration_failed", f"{len(full)} calibration examples hold values, {most} may be used")
    return examples.take(full[:most])


def batches(job: Job, examples: Examples) -> list[Feeds]:
    """Return the examples one by one, or in the batch that the model insists on: padding is no real value."""
    size = fixed_batch(job.artifact("source").manifest.inputs) or 1
    names = [tensor.name for tensor in job.artifact("source").manifest.inputs]
    starts = range(0, len(examples) - size + 1, size)
    feeds = [examples.batch(list(range(start, start + size))) for start in starts]
    return [{name: batch[name] for name in names} for batch in feeds]


@contextlib.contextmanager
def prepared(job: Job) -> Iterator[Path]:
    """Yield the source, shapes inferred, constants folded, each node named, as ONNX Runtime's quantizers want it.

    Raises:
        StageFailure: `skipped`: as `refuse_quantized`.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source = job.artifact("source").verify().folder / MODEL
    refuse_quantized(job.artifact("source"))
    graph = load_graph(source)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / MODEL
        quant_pre_process(
            str(source),
            str(target),
            skip_symbolic_shape=True,
            save_as_external_data=bool(side_cars(graph)),
            external_data_location=f"{MODEL}.data",
        )
        _tidy(target)
        yield target


def _tidy(path: Path) -> None:
    """Name each node that has no name, as what stays in float is chosen by name, and give biases one axis."""
    import onnx

    model = load_graph(path)
    unnamed = [node for node in walk(model.graph) if not node.name]
    for node in unnamed:
        node.name = f"{node.op_type}_{next(filter(None, node.output), 'nothing')}"
    flattened = _flatten_biases(model.graph)
    if unnamed or flattened:
        onnx.save(model, str(path))


def _flatten_biases(graph: Any) -> bool:
    """Turn biases of shape (1, n) into (n,), and return if there are any: ONNX Runtime's quantizer fails on them."""
    biases = {node.input[2] for node in graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    others = {name for node in walk(graph) for at, name in enumerate(node.input) if node.op_type != "Gemm" or at != 2}
    rows = [t for t in graph.initializer if t.name in biases - others and len(t.dims) == 2 and t.dims[0] == 1]
    for tensor in rows:
        del tensor.dims[0]
    return bool(rows)


def made(job: Job, details: dict[str, Any] | None = None, nothing: str = NOTHING_QUANTIZED) -> Made:
    """Describe the ONNX file in the job's folder; without a quantized operator it is `no_effect`, and `nothing` why.

    Args:
        job: the quantizing step.
        details: further details for the manifest.
        nothing: the reason why nothing was quantized, if nothing was kept in float on purpose.
    """
    graph = load_graph(job.folder / MODEL)
    share = quantized_share(graph)
    found: dict[str, Any] = {"quantized_share": share, "nodes": node_counts(graph), **(details or {})}
    if not is_quantized(graph):
        found |= {"status": "no_effect", "status_reason": ALL_KEPT if "kept_in_float" in found else nothing}
    return Made("onnx", details=found)
