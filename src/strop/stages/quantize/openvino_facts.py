"""What an OpenVINO model holds: attention, quantizers, and the bits of its weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

SEEN_THROUGH = frozenset({"Select", "Convert", "Multiply", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})
# Between stored weights and the operator that reads them: scales, zero points, shapes.
UNPACKS = frozenset({"Convert", "Multiply", "Subtract", "Reshape", "Transpose", "FakeQuantize"})
MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze"})
WEIGHTED = frozenset({"MatMul", "Convolution", "GroupConvolution"})
TABLE = "Gather"
BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4}


def has_attention(model: Any) -> bool:
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


def facts(model: Any) -> dict[str, Any]:
    """Return what a manifest says of a quantized `openvino.Model`.

    `fake_quantize_nodes`: quantizers of activations (and of weights that are not stored as integers);
    `compressed_constants`: weights stored as integers; `weights_by_bits`: bits -> share of the weights [1];
    `weighted_nodes`: products and convolutions; `kept_in_float`: names of those that have neither; `precision`.
    """
    stored: dict[str, tuple[int, int]] = {}
    kept, weighted = [], 0
    for op in model.get_ops():
        if op.get_type_name() not in {*WEIGHTED, TABLE}:
            continue
        ports = range(1 if op.get_type_name() == TABLE else 2)
        found = {c.get_friendly_name(): _size(c) for port in ports if (c := _constant(op, port)) is not None}
        stored |= {name: size for name, size in found.items() if size is not None}
        if op.get_type_name() in WEIGHTED:
            weighted += 1
            low = any(size is not None and size[0] <= 8 for size in found.values())
            if not low and not all(_is_quantizer(op, port) for port in ports):
                kept.append(op.get_friendly_name())
    totals: Counter[int] = Counter()
    for bits, elements in stored.values():
        totals[bits] += elements
    quantizers = sum(op.get_type_name() == "FakeQuantize" for op in model.get_ops())
    lowest = min([bits for bits in totals if bits <= 8], default=8 if quantizers else 32)
    return {
        "fake_quantize_nodes": quantizers,
        "compressed_constants": sum(bits <= 8 for bits, _ in stored.values()),
        "weights_by_bits": {str(bits): totals[bits] / totals.total() for bits in sorted(totals)},
        "weighted_nodes": weighted,
        "kept_in_float": kept,
        "precision": f"int{lowest}" if lowest <= 8 else "f32",
    }


def _input(op: Any, port: int) -> Any:
    return op.input(port).get_source_output().get_node()


def _constant(op: Any, port: int) -> Any:
    """Return the constant that an input is unpacked from, or None."""
    node = _input(op, port)
    while node.get_type_name() in UNPACKS:
        node = _input(node, 0)
    return node if node.get_type_name() == "Constant" else None


def _size(constant: Any) -> tuple[int, int] | None:
    """Return bits and number of the elements of weights [1], or None of what is no weight."""
    kind, shape = constant.get_element_type().get_type_name(), list(constant.shape)
    elements = 1
    for axis in shape:
        elements *= int(axis)
    return (BITS[kind], elements) if kind in BITS and len(shape) > 1 else None


def _is_quantizer(op: Any, port: int) -> bool:
    node = _input(op, port)
    while node.get_type_name() in MOVES:
        node = _input(node, 0)
    return bool(node.get_type_name() == "FakeQuantize")
