"""What an ONNX file holds: its operators, its precision, its inputs and outputs. Nothing here runs a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.artifact import Tensor
from strop.errors import StageFailure

WEIGHTED_OPS = ("MatMul", "Gemm", "Conv", "FusedMatMul", "FusedGemm", "FusedConv")
INTEGER_OPS = frozenset(
    {
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "QLinearMatMul",
        "MatMulNBits",
        "QGemm",
        "ConvInteger",
        "QLinearConv",
    }
)
QUANTIZED_OPS = INTEGER_OPS | {
    "QuantizeLinear",
    "DequantizeLinear",
    "GatherBlockQuantized",
    "DynamicQuantizeLinear",
    "DynamicQuantizeLSTM",
    "QAttention",
}
MOVES_ONLY = frozenset({"Transpose", "Reshape", "Identity", "Unsqueeze", "Squeeze"})


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


def side_cars(model: Any) -> list[str]:
    """Return the files of external weights that a model names, relative to its folder."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    held = [tensor for tensor in _initializers(model.graph) if uses_external_data(tensor)]
    return sorted({ExternalDataInfo(tensor).location for tensor in held})


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, the branches of its `If`s and the bodies of its loops."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from graphs(inner)


def walk(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph and of the graphs in it."""
    return (node for part in graphs(graph) for node in part.node)


def _initializers(graph: Any) -> Iterator[Any]:
    return (tensor for part in graphs(graph) for tensor in part.initializer)


def node_counts(model: Any) -> dict[str, int]:
    """Return operator type -> number of nodes, most frequent first."""
    return dict(Counter(node.op_type for node in walk(model.graph)).most_common())


def compared(before: dict[str, int], after: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return what a manifest says of a graph that was rewritten: `nodes_before` and `nodes` by type, and `fusions`.

    The last is type -> how many more (or, below 0, fewer) there are after, of those that changed, gains first:
    `{"SkipLayerNormalization": 12, "LayerNormalization": -12, "Add": -12}` tells what was fused into what.
    """
    found = {name: after.get(name, 0) - before.get(name, 0) for name in before | after}
    order = sorted(found, key=lambda name: (-found[name], name))
    return {
        "nodes_before": before,
        "nodes": after,
        "fusions": {name: found[name] for name in order if found[name]},
    }


def is_quantized(model: Any) -> bool:
    """Return whether the model computes or carries quantized values already."""
    return any(node.op_type in QUANTIZED_OPS for node in walk(model.graph))


def graph_precision(model: Any) -> str:
    """Return `int8`, `int4`, `f16`, `bf16` or `f32`: the lowest precision that a part of the model uses."""
    import onnx

    blocks = [node for node in walk(model.graph) if node.op_type in ("MatMulNBits", "GatherBlockQuantized")]
    if blocks:
        bits = [item.i for node in blocks for item in node.attribute if item.name == "bits"]
        return f"int{min(bits, default=4)}"
    if is_quantized(model):
        return "int8"
    types = {tensor.data_type for tensor in _initializers(model.graph)}
    for name, kind in (("f16", onnx.TensorProto.FLOAT16), ("bf16", onnx.TensorProto.BFLOAT16)):
        if kind in types:
            return name
    return "f32"


def quantized_share(model: Any) -> float | None:
    """Return the share of MatMul, Gemm and Conv nodes with constant weights that work in int8 [1], None without such.

    A float node counts as quantized if both its data and its weights come straight from DequantizeLinear nodes: that
    is the form (QDQ) that runtimes fuse.
    """
    constants = {tensor.name for tensor in _initializers(model.graph)}
    found: list[bool] = []
    for part in graphs(model.graph):
        makers = {output: node for node in part.node for output in node.output}
        for node in part.node:
            if node.op_type in INTEGER_OPS:
                found.append(True)
            elif node.op_type in WEIGHTED_OPS:
                kinds = {_source_kind(name, makers, constants) for name in node.input[:2]}
                if kinds & {"constant", "quantized"}:
                    found.append(kinds == {"quantized"})
    return sum(found) / len(found) if found else None


def _source_kind(name: str, makers: dict[str, Any], constants: set[str]) -> str:
    """Return what `name` is, seen through what only moves values about: `constant`, `quantized` or `computed`."""
    while name in makers and makers[name].op_type in MOVES_ONLY:
        name = makers[name].input[0]
    if name in constants or (name in makers and makers[name].op_type == "Constant"):
        return "constant"
    return "quantized" if name in makers and makers[name].op_type == "DequantizeLinear" else "computed"


def id_ranges(model: Any) -> dict[str, tuple[int, int]]:
    """Return input -> smallest and largest id, for inputs that look up rows of a table of constants as they are."""
    tables = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    makers = {output: node for node in model.graph.node for output in node.output}
    found: dict[str, tuple[int, int]] = {}
    for node in model.graph.node:
        if node.op_type != "Gather" or node.input[0] not in tables:
            continue
        name = node.input[1]
        while name in makers and makers[name].op_type in MOVES_ONLY | {"Cast"}:
            name = makers[name].input[0]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        rows = min(tables[node.input[0]][axis], found.get(name, (0, 2**63 - 1))[1] + 1)
        found[name] = (-rows, rows - 1)
    return {value.name: found[value.name] for value in model.graph.input if value.name in found}


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
