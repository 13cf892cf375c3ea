"""What an audit sees in an ONNX file: each product's precision from the graph, its work from one real call."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from strop.audit.look import Look, Product
from strop.graph import INTEGER_OPS, MOVES_ONLY, graphs, load_graph, side_cars

Feeds = dict[str, np.ndarray]

# Operator -> place of its weights among the inputs.
WEIGHTS_AT = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "FusedGemm", "FusedConv"), 1),
    **dict.fromkeys(("MatMulInteger", "ConvInteger", "MatMulNBits", "Attention", "QAttention"), 1),
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), 1),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv", "QGemm"), 3),
}
CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvInteger", "QLinearConv"})
SUMS_TELL = frozenset(WEIGHTS_AT) - {"MatMulNBits", "Attention", "QAttention"}  # those are packed, or three in one
MOVES = frozenset(
    {"Cast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ReorderInput", "ReorderOutput"}
)
SEEN_THROUGH = MOVES_ONLY | {"Cast", "DequantizeLinear"}


def look_at_onnx(path: Path, feeds: Feeds, threads: int) -> Look:
    """Look at an ONNX model.

    Args:
        path: the model, its external weights beside it.
        feeds: one example to call it with, for the shapes of its products; names that it has no input of are left out.
        threads: of that call [1].

    Raises:
        StageFailure: it is not a model, or its external data is damaged.
    """
    import onnx

    load_graph(path)  # names a side-car that is missing
    model = onnx.load(str(path))
    shapes = _shapes(model, path, feeds, threads)
    found = Look()
    reader = _Reader(model)
    for at, (node, weight, product) in enumerate(reader.products()):
        macs = _macs(node, weight, *shapes[at]) if at in shapes else None
        found.products.append(dataclasses.replace(product, macs=macs))
    for kind, count in reader.weights():
        found.weights[kind] += count
    for nonzero, axis in reader.nonzero():
        found.note_zeros(nonzero, axis)
    for part in graphs(model.graph):
        found.moves.update(node.op_type for node in part.node if node.op_type in MOVES)
    return found


class _Reader:
    """Follows names to the constants behind them."""

    def __init__(self, model: Any) -> None:
        import onnx

        self.nodes = [node for part in graphs(model.graph) for node in part.node]
        self.makers = {output: node for node in self.nodes for output in node.output if output}
        self.constants = {tensor.name: tensor for part in graphs(model.graph) for tensor in part.initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                self.constants[node.output[0]] = node.attribute[0].t
        self.types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        for part in graphs(onnx.shape_inference.infer_shapes(_bare(model)).graph):
            self.types |= {value.name: value.type.tensor_type.elem_type for value in part.value_info}

    def source(self, name: str) -> str:
        """Return the name of the constant behind a name; of what is computed, one that no constant has."""
        while name in self.makers and self.makers[name].op_type in SEEN_THROUGH:
            name = self.makers[name].input[0]
        return name

    def weight_name(self, node: Any) -> str:
        """Return `source` of what stands in a product's place for weights."""
        at = WEIGHTS_AT[node.op_type]
        return self.source(node.input[at]) if at < len(node.input) else ""

    def products(self) -> Iterator[tuple[Any, Any, Product]]:
        """Yield each product's node, its constant factor or None, and what is known of it without its shapes."""
        for node in self.nodes:
            if node.op_type not in WEIGHTS_AT:
                continue
            weight = self.constants.get(self.weight_name(node))
            product = Product(node.name, node.op_type, self._precision(node, weight))
            if weight is not None:
                kept = f"int{_attribute(node, 'bits', 4)}" if node.op_type == "MatMulNBits" else _kind(weight)
                product = dataclasses.replace(product, weights=_numbers(node, weight), kept=kept)
            yield node, weight, product

    def _precision(self, node: Any, weight: Any) -> str:
        if node.op_type == "MatMulNBits":
            return "int8" if _attribute(node, "accuracy_level", 0) == 4 else _kind(self.constants.get(node.input[2]))
        if node.op_type in INTEGER_OPS or node.op_type == "QAttention":
            return "int8"
        if all(self._is_unpacked(name) for name in node.input[:2]):
            return "int8"
        known = next((self.types[name] for name in (*node.output, *node.input[:2]) if self.types.get(name)), None)
        return _type(known) if known else _kind(weight)

    def _is_unpacked(self, name: str) -> bool:
        """Return whether a float comes straight from a DequantizeLinear, seen through what only moves values."""
        while name in self.makers and self.makers[name].op_type in MOVES_ONLY:
            name = self.makers[name].input[0]
        return name in self.makers and self.makers[name].op_type == "DequantizeLinear"

    def weights(self) -> Iterator[tuple[str, int]]:
        """Yield precision and numbers of each constant of two axes or more that is no scale and no zero point."""
        besides = {name for node in self.nodes for name in _scales(node)}
        packed = {node.input[0 if node.op_type == "GatherBlockQuantized" else 1]: node for node in self.nodes
                  if node.op_type in ("MatMulNBits", "GatherBlockQuantized")}  # fmt: skip
        for name, tensor in self.constants.items():
            if name in packed:
                yield f"int{_attribute(packed[name], 'bits', 4)}", _numbers(packed[name], tensor)
            elif len(tensor.dims) > 1 and name not in besides and _kind(tensor) in KINDS:
                yield _kind(tensor), math.prod(tensor.dims)

    def nonzero(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield where a product's weight is not zero, and the axis that is added over; packed blocks tell nothing."""
        import onnx

        sums = {self.weight_name(node): _sum_axis(node) for node in self.nodes if node.op_type in SUMS_TELL}
        origins = {node.input[0]: node.input[2] for node in self.nodes
                   if node.op_type == "DequantizeLinear" and len(node.input) > 2}  # fmt: skip
        for name in sums.keys() & self.constants.keys():
            tensor = self.constants[name]
            if len(tensor.dims) < 2 or _kind(tensor) not in ("f32", "f16", "f64", "int8"):
                continue
            origin = self.constants.get(origins.get(name, ""))
            if origin is not None and np.any(onnx.numpy_helper.to_array(origin)):
                continue  # a zero of its own for each channel, which few values hit
            yield onnx.numpy_helper.to_array(tensor) != 0, sums[name]


KINDS = frozenset({"f64", "f32", "f16", "bf16", "fp8", "int8", "int4"})


def _type(elem_type: int) -> str:
    import onnx

    name = onnx.TensorProto.DataType.Name(elem_type)
    names = {"FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BFLOAT16": "bf16", "INT8": "int8", "UINT8": "int8",
             "INT4": "int4", "UINT4": "int4"}  # fmt: skip
    return "fp8" if name.startswith("FLOAT8") else names.get(name, name.lower())


def _kind(tensor: Any) -> str:
    return "f32" if tensor is None else _type(tensor.data_type)


def _attribute(node: Any, name: str, default: int) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)


def _numbers(node: Any, tensor: Any) -> int:
    """Return how many weights a constant holds [1]; blocks of few bits are packed into bytes."""
    if node.op_type == "MatMulNBits":
        return _attribute(node, "K", 0) * _attribute(node, "N", 0)
    numbers = int(math.prod(tensor.dims))
    if node.op_type == "GatherBlockQuantized" and _kind(tensor) == "int8":
        return numbers * 8 // _attribute(node, "bits", 4)
    return numbers


def _scales(node: Any) -> list[str]:
    """Return the names of a node's inputs that are scales or zero points."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return list(node.input[1:])
    return list(node.input[2:4]) if node.op_type in ("MatMulNBits", "GatherBlockQuantized") else []


def _sum_axis(node: Any) -> int:
    """Return the axis of a product's weight that it adds over."""
    if node.op_type in CONVOLUTIONS:
        return 1
    if node.op_type in ("Gemm", "FusedGemm", "QGemm", "FusedMatMul"):
        return -1 if _attribute(node, "transB", 0) else -2
    return 0 if node.op_type == "ConvTranspose" else -2


def _macs(node: Any, weight: Any, given: list[int], made: list[int]) -> int | None:
    """Return a product's multiplications [1] from the shapes of its first input and its output."""
    if node.op_type in CONVOLUTIONS:
        return None if weight is None else math.prod(made) * math.prod(weight.dims[1:])
    if node.op_type == "ConvTranspose":
        return None if weight is None else math.prod(given) * math.prod(weight.dims[1:])
    if node.op_type in ("Attention", "QAttention"):  # the projections, then scores and their use
        tokens = math.prod(given[:-1])
        return None if weight is None else tokens * math.prod(weight.dims) + 2 * tokens * given[1] * made[-1]
    if node.op_type in ("Gemm", "FusedGemm", "QGemm", "FusedMatMul") and _attribute(node, "transA", 0):
        return math.prod(made) * given[-2]
    return math.prod(made) * given[-1]


def _bare(model: Any) -> Any:
    """Return a copy without the values of large constants, for whoever wants types only."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for part in graphs(bare.graph):
        for tensor in part.initializer:
            if len(tensor.raw_data) > 1024:
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="left_out")
    return bare


def _shapes(model: Any, path: Path, feeds: Feeds, threads: int) -> dict[int, tuple[list[int], list[int]]]:
    """Return place of a product among `_Reader.products` -> shapes of its first input and its output in a call.

    The graph is given an output for each of them, and called as it stands. Products inside of branches and loops have
    none, and a graph that ONNX Runtime has no kernels for has none at all.
    """
    import onnx
    import onnxruntime as ort

    from strop.runtimes.onnxruntime import session_options

    places = [node for part in graphs(model.graph) for node in part.node if node.op_type in WEIGHTS_AT]
    main = {id(node) for node in model.graph.node}
    asked = [(at, node.input[0], node.output[0]) for at, node in enumerate(places) if id(node) in main]
    larger = onnx.ModelProto()
    larger.CopyFrom(model)
    for at, *names in asked:
        for side, name in zip(("in", "out"), names, strict=True):
            output = f"strop.{at}.{side}"
            larger.graph.node.append(onnx.helper.make_node("Shape", [name], [output]))
            larger.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.INT64, [None]))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "shapes.onnx"
        onnx.save(larger, str(target), save_as_external_data=bool(side_cars(load_graph(path))))
        try:
            session = ort.InferenceSession(str(target), session_options(threads, "disabled", {}))
        except Exception as error:
            print(f"audit: no shapes of products: {error}", flush=True)
            return {}
        taken = {value.name: feeds[value.name] for value in session.get_inputs()}
        found = iter(session.run([f"strop.{at}.{side}" for at, *_ in asked for side in ("in", "out")], taken))
        return {at: (next(found).tolist(), next(found).tolist()) for at, *_ in asked}
