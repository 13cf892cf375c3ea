"""Give weights and activations fewer bits. Every option says how much it really quantized."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.check import fixed_batch
from strop.errors import StageFailure, one_line
from strop.examples import Examples, Feeds
from strop.graph import is_quantized, load_graph, node_counts, quantized_share, side_cars
from strop.job import Job, Made
from strop.runtimes.modules import load_module, save_like
from strop.runtimes.openvino import read_model

if TYPE_CHECKING:
    import torch

MODEL = "model.onnx"
SEEN_THROUGH = frozenset({"Select", "Convert", "Multiply", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})


def ort_int8_dynamic(job: Job, *, per_channel: bool, weight_type: str, op_types: list[str], reduce_range: bool) -> Made:
    """ONNX Runtime: integer weights now, activations scaled at run time for each call's own range."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _prepared(job) as source:
        quantize_dynamic(
            str(source),
            str(job.folder / MODEL),
            op_types_to_quantize=op_types or None,
            per_channel=per_channel,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8 if weight_type == "int8" else QuantType.QUInt8,
            use_external_data_format=bool(side_cars(load_graph(source))),
            extra_options={"EnableSubgraph": True},  # without it the branches of an If stay in float
        )
    return _made(job)


def ort_int8_static(
    job: Job,
    *,
    per_channel: bool,
    weight_type: str,
    calibration_examples: int,
    calibration_method: str,
    op_types: list[str],
    reduce_range: bool,
) -> Made:
    """ONNX Runtime: integer weights and activations, whose ranges come from calibration examples (QDQ form)."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    examples = calibration(job, calibration_examples)
    methods = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
    with _prepared(job) as source:
        try:
            quantize_static(
                str(source),
                str(job.folder / MODEL),
                _Reader(_batches(job, examples)),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=op_types or None,
                per_channel=per_channel,
                reduce_range=reduce_range,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8 if weight_type == "int8" else QuantType.QUInt8,
                calibrate_method=getattr(CalibrationMethod, methods[calibration_method]),
                use_external_data_format=bool(side_cars(load_graph(source))),
            )
        except ValueError as error:
            raise StageFailure("calibration_failed", one_line(error)) from error
    return _made(job, {"calibration_examples": len(examples)})


class _Reader:
    """What ONNX Runtime asks for one batch after the other."""

    def __init__(self, batches: list[Feeds]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> Feeds | None:
        """Return the next batch, or None after the last."""
        return next(self._batches, None)


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


def _batches(job: Job, examples: Examples) -> list[Feeds]:
    """Return the examples one by one, or in the batch that the model insists on: padding is no real value."""
    size = fixed_batch(job.artifact("source").manifest.inputs) or 1
    names = [tensor.name for tensor in job.artifact("source").manifest.inputs]
    starts = range(0, len(examples) - size + 1, size)
    feeds = [examples.batch(list(range(start, start + size))) for start in starts]
    return [{name: batch[name] for name in names} for batch in feeds]


@contextlib.contextmanager
def _prepared(job: Job) -> Iterator[Path]:
    """Yield the source, shapes inferred and constants folded, as ONNX Runtime's quantizers want it.

    Raises:
        StageFailure: `skipped` if the model is quantized already: that would double its Q/DQ pairs or do nothing.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source = job.artifact("source").verify().folder / MODEL
    graph = load_graph(source)
    if is_quantized(graph):
        raise StageFailure("skipped", "the model is quantized already")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / MODEL
        quant_pre_process(
            str(source),
            str(target),
            skip_symbolic_shape=True,
            save_as_external_data=bool(side_cars(graph)),
            external_data_location=f"{MODEL}.data",
        )
        yield target


def _made(job: Job, details: dict[str, Any] | None = None) -> Made:
    graph = load_graph(job.folder / MODEL)
    share = quantized_share(graph)
    found: dict[str, Any] = {"quantized_share": share, "nodes": node_counts(graph), **(details or {})}
    if not is_quantized(graph):
        found |= {"status": "no_effect", "status_reason": "the quantizer changed nothing; see quantize.op_types"}
    return Made("onnx", details=found)


def nncf_int8(job: Job, *, calibration_examples: int, model_type: str) -> Made:
    """NNCF: integer weights and activations for OpenVINO, with ranges from calibration examples."""
    import nncf
    import openvino

    source = job.artifact("source").verify().folder / MODEL
    if is_quantized(load_graph(source)):
        raise StageFailure("skipped", "the model is quantized already")
    examples = calibration(job, calibration_examples)
    model = read_model(source)
    before = _weighted(model)
    transformer = model_type == "transformer" or (model_type == "auto" and _has_attention(model))
    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(
        model,
        nncf.Dataset(_batches(job, examples)),
        subset_size=len(examples),
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
    )
    openvino.save_model(quantized, str(job.folder / "model.xml"), compress_to_fp16=False)
    quantizers = sum(op.get_type_name() == "FakeQuantize" for op in quantized.get_ops())
    details: dict[str, Any] = {
        "calibration_examples": len(examples),
        "fake_quantize_nodes": quantizers,
        "weighted_nodes": before,
        "transformer": transformer,
        "precision": "int8",
    }
    if quantizers == 0:
        details |= {"status": "no_effect", "status_reason": "NNCF put no quantizer into the model"}
    return Made("openvino", details=details)


def _has_attention(model: Any) -> bool:
    """Return whether a MatMul reads the result of a Softmax, seen through what exporters put between the two."""
    ahead = [op for op in model.get_ops() if op.get_type_name() == "Softmax"]
    seen: set[str] = set()
    while ahead:
        targets = [target.get_node() for target in ahead.pop().output(0).get_target_inputs()]
        if any(node.get_type_name() == "MatMul" for node in targets):
            return True
        ahead += [node for node in targets if node.get_type_name() in SEEN_THROUGH and node.get_name() not in seen]
        seen |= {node.get_name() for node in targets}
    return False


def _weighted(model: Any) -> int:
    kinds = {"MatMul", "Convolution", "GroupConvolution"}
    return sum(op.get_type_name() in kinds for op in model.get_ops())


def torchao_int8_dynamic(job: Job) -> Made:
    """PyTorch (torchao): integer weights of linear layers, activations scaled at run time, a scale for each row."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    source = job.artifact("source")
    module = load_module(source)
    linear = _linear_names(module)
    if not linear:
        return Made("torch", details={"status": "no_effect", "status_reason": "the model has no linear layer"})
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    save_like(source, module, job.folder, quantize="torchao_int8_dynamic")
    changed = sum(type(module.get_submodule(name).weight).__name__ != "Parameter" for name in linear)
    return Made("torch", details={"quantized_share": changed / len(linear)})


def _linear_names(module: torch.nn.Module) -> list[str]:
    import torch

    return [name for name, layer in module.named_modules() if isinstance(layer, torch.nn.Linear)]


def bf16(job: Job) -> Made:
    """PyTorch: all weights and operations in bfloat16; inputs and outputs stay float32."""
    source = job.artifact("source")
    module = load_module(source)
    save_like(source, module.bfloat16(), job.folder, dtype="bfloat16")
    return Made("torch")
