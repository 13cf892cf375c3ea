"""What an ONNX file holds: its operators, its precision, its inputs and outputs. Nothing here runs a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.artifact import Tensor
from strop.errors import StageFailure

QUANTIZED_OPS = frozenset(
    {
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearAdd",
        "QLinearAveragePool",
        "QLinearConv",
        "QLinearGlobalAveragePool",
        "QLinearMatMul",
        "QLinearMul",
    }
)
WEIGHTED_OPS = ("MatMul", "Gemm", "Conv", "FusedMatMul", "FusedGemm", "FusedConv")
QUANTIZED_WEIGHTED = {
    "MatMul": ("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "MatMulNBits"),
    "Gemm": ("QGemm",),
    "Conv": ("ConvInteger", "QLinearConv"),
}


def load_graph(path: Path) -> Any:
    """Return the `onnx.ModelProto` at `path` without its external weights.

    Raises:
        StageFailure: it is not a model, or the external data that it names is missing or too short.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise StageFailure("build_failed", f"{path.name}: not an ONNX model ({type(error).__name__})") from error
    _check_external(model, path)
    return model


def _check_external(model: Any, path: Path) -> None:
    """A side-car that was left behind or cut off is named before anything reads past its end."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    for tensor in _initializers(model.graph):
        if not uses_external_data(tensor):
            continue
        info = ExternalDataInfo(tensor)
        file = path.parent / info.location
        if not file.is_file():
            raise StageFailure("build_failed", f"{path.name}: its external data '{info.location}' is missing beside it")
        if file.stat().st_size < int(info.offset or 0) + int(info.length or 0):
            raise StageFailure("build_failed", f"{path.name}: its external data '{info.location}' is cut short")


def walk(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph, those in the branches of `If` and the bodies of loops included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from walk(inner)


def _initializers(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _initializers(inner)


def node_counts(model: Any) -> dict[str, int]:
    """Return operator type -> number of nodes, most frequent first."""
    return dict(Counter(node.op_type for node in walk(model.graph)).most_common())


def is_quantized(model: Any) -> bool:
    """Return whether the model computes or carries quantized values already."""
    return any(node.op_type in QUANTIZED_OPS or node.op_type == "DequantizeLinear" for node in walk(model.graph))


def graph_precision(model: Any) -> str:
    """Return `int8`, `int4`, `f16`, `bf16` or `f32`: the lowest precision that a part of the model uses."""
    import onnx

    if any(node.op_type == "MatMulNBits" for node in walk(model.graph)):
        return "int4"
    if is_quantized(model):
        return "int8"
    types = {tensor.data_type for tensor in _initializers(model.graph)}
    for name, kind in (("f16", onnx.TensorProto.FLOAT16), ("bf16", onnx.TensorProto.BFLOAT16)):
        if kind in types:
            return name
    return "f32"


def quantized_share(model: Any) -> float | None:
    """Return the share of MatMul, Gemm and Conv nodes with constant weights that work in int8 [1]; None if none is there.

    A float node counts as quantized if both its data and its weights come straight from DequantizeLinear nodes: that
    is the form (QDQ) that runtimes fuse.
    """
    quantized = {name for names in QUANTIZED_WEIGHTED.values() for name in names}
    done = total = 0
    for graph in _graphs(model.graph):
        constants = {tensor.name for tensor in _initializers(model.graph)}
        makers = {output: node for node in graph.node for output in node.output}
        for node in graph.node:
            if node.op_type in quantized:
                done, total = done + 1, total + 1
            elif node.op_type in WEIGHTED_OPS:
                sources = [_source(name, makers) for name in node.input[:2]]
                from_q = [maker is not None and maker.op_type == "DequantizeLinear" for maker in sources]
                if (
                    any(from_q)
                    or set(node.input[:2]) & constants
                    or any(m and m.op_type == "Constant" for m in sources)
                ):
                    done, total = done + all(from_q), total + 1
    return done / total if total else None


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _graphs(inner)


def _source(name: str, makers: dict[str, Any]) -> Any:
    """Return the node that makes `name`, seen through what only moves values about."""
    node = makers.get(name)
    while node is not None and node.op_type in ("Transpose", "Reshape", "Identity", "Unsqueeze", "Squeeze"):
        node = makers.get(node.input[0])
    return node


def tensors(values: Any, skip: frozenset[str] = frozenset()) -> tuple[Tensor, ...]:
    """Return graph inputs or outputs as `Tensor`s; an axis without a number or a name is called `<tensor>_<axis>`."""
    import onnx

    found = []
    for value in values:
        if value.name in skip:
            continue
        kind = value.type.tensor_type
        dtype = "str" if kind.elem_type == onnx.TensorProto.STRING else _numpy_name(kind.elem_type)
        axes = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{axis}"
            for axis, dim in enumerate(kind.shape.dim)
        ]
        found.append(Tensor(value.name, dtype, tuple(axes)))
    return tuple(found)


def _numpy_name(elem_type: int) -> str:
    import onnx

    return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
