"""ONNX Runtime's own quantizers: integers in an ONNX graph."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from strop.errors import StageFailure, one_line
from strop.examples import Feeds
from strop.graph import graphs, load_graph, side_cars
from strop.job import Job, Made
from strop.stages.quantize.common import MODEL, batches, calibration, made, prepared
from strop.stages.quantize.onnx_layers import FILE, LAYERS, Choice, Keeping, Write, keep_in_float, rank, with_products

METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}


def ort_int8_dynamic(
    job: Job,
    *,
    per_channel: bool,
    weight_type: str,
    op_types: list[str],
    reduce_range: bool,
    keep_float: list[str],
    keep_sensitive: int,
    sensitivity_file: str | None,
    sensitivity_time_s: float,
) -> Made:
    """ONNX Runtime: integer weights now, activations scaled at run time for each call's own range."""
    with prepared(job) as source:
        write = _dynamic(source, per_channel, weight_type, op_types, reduce_range)
        keeping = Keeping(keep_float, keep_sensitive, sensitivity_file, sensitivity_time_s)
        choice, details = keep_in_float(job, source, write, keeping, op_types or LAYERS)
        write(job.folder / MODEL, choice)
    return made(job, details)


def sensitivity(
    job: Job,
    *,
    per_channel: bool,
    weight_type: str,
    op_types: list[str],
    reduce_range: bool,
    sensitivity_time_s: float,
) -> Made:
    """ONNX Runtime: what each layer loses when it alone is quantized as by `ort_int8_dynamic`; the model stays.

    The list is for `quantize.sensitivity_file` of the options that have `quantize.keep_sensitive`.
    """
    with prepared(job) as source:
        write = _dynamic(source, per_channel, weight_type, op_types, reduce_range)
        details = rank(job, source, write, sensitivity_time_s, op_types or LAYERS)
    where = f"{job.results.name}/{job.stage}/{job.id}/{FILE}"
    reason = f"nothing was to be quantized: {where} ranks {details['layers_measured']} of {details['layers']} layers"
    return Made("onnx", details={**details, "status": "no_effect", "status_reason": reason})


def _dynamic(source: Path, per_channel: bool, weight_type: str, op_types: list[str], reduce_range: bool) -> Write:
    """Return what quantizes a prepared model and writes it."""
    from onnxruntime.quantization import quantize_dynamic

    def write(target: Path, choice: Choice) -> None:
        quantize_dynamic(
            str(source),
            str(target),
            op_types_to_quantize=op_types or None,
            per_channel=per_channel,
            reduce_range=reduce_range,
            weight_type=_type(weight_type),
            use_external_data_format=bool(side_cars(load_graph(source))),
            extra_options={"EnableSubgraph": True},  # without it the branches of an If stay in float
            **{key: with_products(names) for key, names in _nodes(choice).items()},
        )

    return write


def ort_int8_static(
    job: Job,
    *,
    per_channel: bool,
    weight_type: str,
    activation_type: str,
    calibration_examples: int,
    calibration_method: str,
    calibration_percentile: float,
    op_types: list[str],
    reduce_range: bool,
    keep_float: list[str],
    keep_sensitive: int,
    sensitivity_file: str | None,
    sensitivity_time_s: float,
) -> Made:
    """ONNX Runtime: integer weights and activations, whose ranges come from calibration examples (QDQ form)."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static

    examples = calibration(job, calibration_examples)
    feeds = batches(job, examples)
    with prepared(job) as source, tempfile.TemporaryDirectory() as ranges:
        extra = _static_options(load_graph(source), calibration_method, calibration_percentile)

        def write(target: Path, choice: Choice) -> None:
            quantize_static(
                str(source),
                str(target),
                _Reader(feeds),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=op_types or None,
                per_channel=per_channel,
                reduce_range=reduce_range,
                activation_type=_type(activation_type),
                weight_type=_type(weight_type),
                calibrate_method=getattr(CalibrationMethod, METHODS[calibration_method]),
                calibration_cache_path=Path(ranges) / "ranges.json",  # they hold for each choice of nodes
                use_external_data_format=bool(side_cars(load_graph(source))),
                extra_options=dict(extra),
                **_nodes(choice),
            )

        try:
            keeping = Keeping(keep_float, keep_sensitive, sensitivity_file, sensitivity_time_s)
            choice, details = keep_in_float(job, source, write, keeping, op_types or LAYERS)
            write(job.folder / MODEL, choice)
        except ValueError as error:
            raise StageFailure("calibration_failed", one_line(error)) from error
    return made(job, {"calibration_examples": len(examples), **details})


def _static_options(model: Any, method: str, percentile: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if len(list(graphs(model.graph))) > 1:
        # The quantizer drops a ReLU whose range a scale holds, and overlooks that branches of an If read it.
        found["QDQKeepRemovableActivations"] = True
    if method != "minmax":
        # One example at a time: all at once, histograms want one length, and memory for every value of every example.
        found["CalibStridedMinMax"] = 1
    if method == "percentile":
        found["CalibPercentile"] = percentile
    return found


def _type(name: str) -> Any:
    from onnxruntime.quantization import QuantType

    return QuantType.QInt8 if name == "int8" else QuantType.QUInt8


def _nodes(choice: Choice) -> dict[str, list[str]]:
    """Return a choice as the library's arguments."""
    return {"nodes_to_exclude": list(choice.kept), "nodes_to_quantize": [choice.alone] if choice.alone else []}


class _Reader:
    """What ONNX Runtime asks for one batch after the other."""

    def __init__(self, batches: list[Feeds]) -> None:
        self._all = batches
        self._batches = iter(batches)

    def __len__(self) -> int:
        return len(self._all)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Go to a part of the batches."""
        self._batches = iter(self._all[start_index:end_index])

    def get_next(self) -> Feeds | None:
        """Return the next batch, or None after the last."""
        return next(self._batches, None)
