"""Half the bits and still floats: ONNX models typed in float16 or bfloat16; inputs and outputs stay float32."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.errors import StageFailure
from strop.graph import graph_precision, graphs, load_graph, node_counts, side_cars, walk
from strop.job import Job, Made
from strop.runtimes.onnxruntime import create
from strop.runtimes.onnxruntime_providers import CPU_PROVIDER, CUDA_PROVIDER
from strop.stages.quantize.common import MODEL, prepared
from strop.stages.quantize.onnx_layers import Choice, Keeping, keep_in_float
from strop.stages.quantize.onnx_range import beyond_float16

BF16_OPSET = 22  # the first in which convolutions and activations take bfloat16, too


def onnx_fp16(
    job: Job, *, keep_float: list[str], keep_sensitive: int, sensitivity_file: str | None, sensitivity_time_s: float
) -> Made:
    """ONNX typed in float16, by ONNX Runtime's converter."""
    with prepared(job) as source:
        write = _writer(source, to_float16)
        keeping = Keeping(keep_float, keep_sensitive, sensitivity_file, sensitivity_time_s)
        choice, details = keep_in_float(job, source, write, keeping)
        write(job.folder / MODEL, choice)
        details |= beyond_float16(job, source, set(choice.kept))
    return _made(job, "FLOAT16", {**details, "casts_at_run_time": _casts_at_run_time(job)})


def onnx_bf16(job: Job, *, keep_float: list[str]) -> Made:
    """ONNX typed in bfloat16, which has float32's range and 8 bits of precision: for devices whose kernels know it."""
    with prepared(job) as source:
        write = _writer(source, to_bfloat16)
        choice, details = keep_in_float(job, source, write, Keeping(keep_float, 0, None, 0.0))
        write(job.folder / MODEL, choice)
    on_cuda = job.device["kind"] == "cuda"
    if not on_cuda:
        _must_have_kernels(job)
    return _made(job, "BFLOAT16", {**details, "providers": [CUDA_PROVIDER if on_cuda else CPU_PROVIDER]})


def _writer(source: Path, convert: Callable[[Any, list[str]], Any]) -> Callable[[Path, Choice], None]:
    """Return what converts `source` and writes it.

    Raises:
        StageFailure: `skipped`: the model is in half precision already.
    """
    import onnx

    graph = load_graph(source)
    precision = graph_precision(graph)
    if precision != "f32":
        raise StageFailure("skipped", f"the model is in {precision} already")
    names = [node.name for node in walk(graph.graph)]
    beside = bool(side_cars(graph))

    def write(target: Path, choice: Choice) -> None:
        others = [name for name in names if name != choice.alone] if choice.alone else []
        model = convert(onnx.load(str(source)), [*choice.kept, *others])
        onnx.save(model, str(target), save_as_external_data=beside, location=f"{MODEL}.data" if beside else None)

    return write


def to_float16(model: Any, kept: list[str]) -> Any:
    """Return a float32 `onnx.ModelProto` with its operators in float16, but those of the nodes `kept`.

    Operators that ONNX or ONNX Runtime do not know in float16 stay as they are; casts lie between.

    Args:
        model: with the types of its values inferred and a name for each node; it is changed.
        kept: names of nodes.
    """
    return _sorted(_converted(_with_unique_names(model), kept))


def _converted(model: Any, kept: list[str]) -> Any:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    before = {node.name for node in walk(model.graph)}
    # Not `OnnxModel.convert_float_to_float16`: it joins any two casts in a row, so a float that goes through an integer
    # would keep its fraction.
    made = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True, node_block_list=kept)
    _drop_detours(made.graph, before)
    return made


def _with_unique_names(model: Any) -> Any:
    """Return a model in which no two graphs use a name for different values: the converter knows one scope only."""
    import onnx_ir

    made = onnx_ir.from_proto(model)
    fixed = {*made.graph.inputs, *made.graph.outputs}
    seen = {value.name for value in fixed}
    for graph in made.graphs():
        outputs = [value for node in graph for value in node.outputs]
        for value in [*graph.initializers.values(), *outputs]:
            if value in fixed or not value.name:
                continue
            while value.name in seen:
                value.name += "_inner"
            seen.add(value.name)
    proto = onnx_ir.to_proto(made)
    for part in graphs(proto.graph):  # a weight has a type of its own; the converter would change this one only
        held = {tensor.name for tensor in part.initializer}
        kept = [value for value in part.value_info if value.name not in held]
        del part.value_info[:]
        part.value_info.extend(kept)
    return proto


def _drop_detours(graph: Any, before: set[str]) -> None:
    """Let float32 nodes read each other's values as they are: the converter passes them through float16."""
    import onnx

    casts = [node for node in graph.node if node.op_type == "Cast" and node.name not in before]
    down = {node.output[0]: node.input[0] for node in casts if node.attribute[0].i == onnx.TensorProto.FLOAT16}
    for node in casts:
        if node.attribute[0].i == onnx.TensorProto.FLOAT and node.input[0] in down:
            node.op_type, node.input[0] = "Identity", down[node.input[0]]
            del node.attribute[:]
    read = {name for node in walk(graph) for name in node.input} | {output.name for output in graph.output}
    for node in [node for node in casts if node.output[0] not in read]:
        graph.node.remove(node)


def _sorted(model: Any) -> Any:
    """Return a model with each node behind those that it reads, as ONNX demands; converters append their casts."""
    import onnx_ir

    made = onnx_ir.from_proto(model)
    made.graph.sort()
    return onnx_ir.to_proto(made)


def to_bfloat16(model: Any, kept: list[str]) -> Any:
    """Return a float32 `onnx.ModelProto` in bfloat16: the casts of `to_float16`, another type and its values.

    No kept library converts to bfloat16 with today's ONNX (NVIDIA's ModelOpt pins an older one and CUDA packages).
    """
    import onnx

    if model.opset_import[0].version < BF16_OPSET:
        model = onnx.version_converter.convert_version(model, BF16_OPSET)
    model = _with_unique_names(model)
    original = onnx.ModelProto()
    original.CopyFrom(model)
    values = {key: tensor for key, tensor in _tensors(original.graph) if tensor.data_type == onnx.TensorProto.FLOAT}
    made = _converted(model, kept)
    for key, tensor in _tensors(made.graph):
        if tensor.data_type == onnx.TensorProto.FLOAT16:
            tensor.CopyFrom(_bfloat16(values.get(key, tensor), tensor.name))
    _retype(made.graph)
    return _sorted(made)


def _tensors(graph: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return (key, tensor) for all initializers and all tensors in attributes; keys survive the conversion."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for at, part in enumerate(graphs(graph)):
        found += [((str(at), tensor.name), tensor) for tensor in part.initializer]
    for node in walk(graph):
        found += [((node.name, item.name, ""), item.t) for item in node.attribute if item.HasField("t")]
    return found


def _bfloat16(tensor: Any, name: str) -> Any:
    import ml_dtypes
    import onnx

    array = onnx.numpy_helper.to_array(tensor).astype("float32")
    return onnx.numpy_helper.from_array(array.astype(ml_dtypes.bfloat16), name)


def _retype(graph: Any) -> None:
    """Put bfloat16 in the place of float16 in all types and casts."""
    import onnx

    half, brain = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    for part in graphs(graph):
        for value in (*part.input, *part.output, *part.value_info):
            if value.type.tensor_type.elem_type == half:
                value.type.tensor_type.elem_type = brain
    for node in walk(graph):
        for item in node.attribute:
            if item.name in ("to", "dtype") and item.i == half:
                item.i = brain


def _must_have_kernels(job: Job) -> None:
    """Say which bfloat16 operator the CPU lacks, where ONNX Runtime says that it cannot load the model."""
    try:
        create(job.folder / MODEL, job.threads, "all", {})
    except StageFailure as failure:
        found = re.search(r"Could not find an implementation for (\w+)", str(failure))
        if not found:
            raise
        reason = (
            f"ONNX Runtime has no bfloat16 kernel for {found[1]} on CPUs; in bfloat16 a CPU runs quantize=bf16 "
            "(PyTorch) or engine=openvino engine.precision=bf16"
        )
        raise StageFailure("build_failed", reason) from failure


def _casts_at_run_time(job: Job) -> int:
    """Return the number of casts in the graph as the CPU executes it: operators without float16 kernels get some."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        create(job.folder / MODEL, job.threads, "all", {}, save_to=target)
        return node_counts(load_graph(target)).get("Cast", 0)


def _made(job: Job, kind: str, details: dict[str, Any]) -> Made:
    """Describe the file: nodes, casts, and the share of float weights that are of the type `kind` now [1]."""
    import onnx

    graph = load_graph(job.folder / MODEL)
    number = getattr(onnx.TensorProto, kind)
    weights = [tensor for part in graphs(graph.graph) for tensor in part.initializer]
    sizes = {item: sum(_size(t) for t in weights if t.data_type == item) for item in (number, onnx.TensorProto.FLOAT)}
    total = sum(sizes.values())
    share = sizes[number] / total if total else None
    nodes = node_counts(graph)
    found: dict[str, Any] = {"typed_share": share, "nodes": nodes, "casts": nodes.get("Cast", 0)}
    if not sizes[number]:
        reason = f"no weight became {kind.lower()}: there is none in float32, or all are kept in float"
        found |= {"status": "no_effect", "status_reason": reason}
    return Made("onnx", details={**found, **details})


def _size(tensor: Any) -> int:
    return math.prod(tensor.dims)
