"""What an audit sees in an OpenVINO model file: each product's precision from the graph, its work from its shapes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from strop.audit.look import Look, Product
from strop.runtimes.openvino import read_model

Feeds = dict[str, np.ndarray]

PRODUCTS = frozenset({"MatMul", "Convolution", "GroupConvolution", "ConvolutionBackpropData"})
MOVES = frozenset({"Convert", "FakeQuantize", "FakeConvert"})
SEEN_THROUGH = frozenset({"Convert", "Multiply", "Subtract", "Reshape", "Transpose", "FakeQuantize", "Unsqueeze"})
NAMES = {"f32": "f32", "f64": "f64", "f16": "f16", "bf16": "bf16", "i8": "int8", "u8": "int8", "i4": "int4",
         "u4": "int4", "i2": "int2", "u2": "int2", "f8e4m3": "fp8", "f8e5m2": "fp8", "nf4": "int4"}  # fmt: skip


def look_at_openvino(path: Path, feeds: Feeds) -> Look:
    """Look at an OpenVINO model.

    Args:
        path: `model.xml`.
        feeds: one example, whose shapes the model is given.

    Raises:
        StageFailure: OpenVINO cannot read it.
    """
    model = read_model(path)
    for port in model.inputs:
        port.get_node().set_partial_shape(_shape(feeds, port.get_names()))
    model.validate_nodes_and_infer_types()
    found = Look()
    for op in model.get_ops():
        kind = op.get_type_name()
        if kind in PRODUCTS:
            _add(found, op)
        elif kind in MOVES:
            found.moves[kind] += 1
        elif kind == "Constant" and sum(size > 1 for size in op.get_output_shape(0)) > 1:  # others are scales
            name = NAMES.get(op.get_element_type().get_type_name())
            if name:
                found.weights[name] += math.prod(op.get_output_shape(0))
    return found


def _shape(feeds: Feeds, names: set[str]) -> Any:
    import openvino

    return openvino.PartialShape(list(feeds[next(name for name in names if name in feeds)].shape))


def _add(found: Look, op: Any) -> None:
    data, factor = (op.input_value(at).get_node() for at in (0, 1))
    weight = _constant(factor)
    integers = _quantized(data) and _quantized(factor)
    precision = "int8" if integers else NAMES.get(op.get_output_element_type(0).get_type_name(), "f32")
    count = math.prod(weight.get_output_shape(0)) if weight is not None else 0
    kept = NAMES.get(weight.get_element_type().get_type_name()) if weight is not None else None
    found.products.append(Product(op.get_friendly_name(), op.get_type_name(), precision, count, kept, _macs(op)))
    if factor is weight and weight.get_element_type().get_type_name() == "f32":
        found.note_zeros(weight.get_data() != 0, _sum_axis(op, len(weight.get_output_shape(0))))


def _constant(node: Any) -> Any:
    """Return the constant behind a node, or None."""
    while node.get_type_name() in SEEN_THROUGH:
        node = node.input_value(0).get_node()
    return node if node.get_type_name() == "Constant" else None


def _quantized(node: Any) -> bool:
    """Return whether a factor is put on the steps of integers just before it is used."""
    while node.get_type_name() in ("Reshape", "Transpose", "Unsqueeze"):
        node = node.input_value(0).get_node()
    if node.get_type_name() == "FakeQuantize":
        return True
    return node.get_type_name() in ("Multiply", "Convert") and _is_integer(_constant(node))


def _is_integer(constant: Any) -> bool:
    return constant is not None and constant.get_element_type().get_type_name() in ("i8", "u8")


def _sum_axis(op: Any, axes: int) -> int:
    if op.get_type_name() == "MatMul":
        return -1 if op.get_attributes()["transpose_b"] else -2
    return {"GroupConvolution": 2, "ConvolutionBackpropData": 0}.get(op.get_type_name(), 1) if axes > 2 else 1


def _macs(op: Any) -> int | None:
    """Return a product's multiplications [1], or None if its shapes depend on data."""
    shapes = [op.get_input_partial_shape(0), op.get_input_partial_shape(1), op.get_output_partial_shape(0)]
    if any(shape.is_dynamic for shape in shapes):
        return None
    given, factor, made = ([int(size) for size in shape.to_shape()] for shape in shapes)
    if op.get_type_name() == "MatMul":
        return math.prod(made) * given[-2 if op.get_attributes()["transpose_a"] else -1]
    if op.get_type_name() == "ConvolutionBackpropData":
        return math.prod(given) * math.prod(factor[1:])
    return math.prod(made) * math.prod(factor[2:] if op.get_type_name() == "GroupConvolution" else factor[1:])
