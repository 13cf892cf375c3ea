"""An ONNX graph of integer products, rewritten so that the same integers are multiplied and added as float32.

Sums of products of 8-bit integers are below 2^31, and float32 is exact up to 2^24 and good to 6e-8 beyond: the result
differs from exact integers by less than rounding does anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strop.graph import graphs

Rewrite = Callable[["Rewriter", Any], None]


def in_float(model: Any) -> Any:
    """Rewrite the integer products of an `onnx.ModelProto` in place, those in branches too, and return it.

    A graph of Q/DQ pairs around float products needs nothing: without ONNX Runtime's optimizations it is its own
    emulation. `QGemm`, `QAttention` and `DynamicQuantizeLSTM` stay as they are.
    """
    for part in graphs(model.graph):
        rewriter = Rewriter(part)
        for node in list(part.node):
            REWRITES.get(node.op_type, Rewriter.keep)(rewriter, node)
        del part.node[:]
        part.node.extend(rewriter.nodes)
    return model


class Rewriter:
    """Collects the nodes of one graph anew."""

    def __init__(self, graph: Any) -> None:
        self.nodes: list[Any] = []
        self._ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}

    def keep(self, node: Any) -> None:
        """Take a node as it is."""
        self.nodes.append(node)

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        import onnx

        self.nodes.append(onnx.helper.make_node(op, inputs, [output], **attributes))
        return output

    def centred(self, name: str, zero: str, output: str, columns: int = 0) -> str:
        """Return integers less their zero point as float32; `columns`: axes behind the one of the zero points [1]."""
        import onnx

        kind = onnx.TensorProto.FLOAT
        value = self.add("Cast", [name], f"{output}.{name}.float", to=kind)
        if not zero:
            return value
        origin = self.add("Cast", [zero], f"{output}.{zero}.float", to=kind)
        if columns:
            shape = f"{output}.{zero}.shape"
            made = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1 + columns], [-1] + [1] * columns)
            self.nodes.append(onnx.helper.make_node("Constant", [], [shape], value=made))
            origin = self.add("Reshape", [origin, shape], f"{output}.{zero}.column")
        return self.add("Sub", [value, origin], f"{output}.{name}.centred")

    def matmul_integer(self, node: Any) -> None:
        """MatMulInteger: (a - a0) @ (b - b0), in int32."""
        import onnx

        a, b, a_zero, b_zero = _inputs(node, 4)
        out = node.output[0]
        product = self.add("MatMul", [self.centred(a, a_zero, out), self.centred(b, b_zero, out)], f"{out}.product")
        self.add("Cast", [product], out, to=onnx.TensorProto.INT32)

    def conv_integer(self, node: Any) -> None:
        """ConvInteger: the convolution of (x - x0) with (w - w0), in int32."""
        import onnx

        x, w, x_zero, w_zero = _inputs(node, 4)
        out = node.output[0]
        weights = self.centred(w, w_zero, out, columns=self._ranks.get(w, 4) - 1)
        product = onnx.helper.make_node("Conv", [self.centred(x, x_zero, out), weights], [f"{out}.product"])
        product.attribute.extend(node.attribute)
        self.keep(product)
        self.add("Cast", [product.output[0]], out, to=onnx.TensorProto.INT32)

    def matmul_integer_to_float(self, node: Any) -> None:
        """MatMulIntegerToFloat: (a - a0) @ (b - b0), times both scales, plus a bias."""
        a, b, a_scale, b_scale, a_zero, b_zero, bias = _inputs(node, 7)
        self._scaled((a, a_scale, a_zero), (b, b_scale, b_zero), bias, node.output[0])

    def dynamic_quantize_matmul(self, node: Any) -> None:
        """DynamicQuantizeMatMul: as MatMulIntegerToFloat, of what DynamicQuantizeLinear makes of the float input."""
        import onnx

        a, b, b_scale, b_zero, bias = _inputs(node, 5)
        out = node.output[0]
        made = [f"{out}.a", f"{out}.a_scale", f"{out}.a_zero"]
        self.keep(onnx.helper.make_node("DynamicQuantizeLinear", [a], made))
        self._scaled((made[0], made[1], made[2]), (b, b_scale, b_zero), bias, out)

    def _scaled(self, a: tuple[str, str, str], b: tuple[str, str, str], bias: str, out: str) -> None:
        factors = [self.centred(a[0], a[2], out), self.centred(b[0], b[2], out)]
        product = self.add("MatMul", factors, f"{out}.product")
        scale = self.add("Mul", [a[1], b[1]], f"{out}.scale")
        scaled = self.add("Mul", [product, scale], f"{out}.scaled" if bias else out)
        if bias:
            self.add("Add", [scaled, bias], out)

    def qlinear_matmul(self, node: Any) -> None:
        """QLinearMatMul: as Q/DQ pairs around a float product."""
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = _inputs(node, 8)
        out = node.output[0]
        factors = [
            self.add("DequantizeLinear", [a, a_scale, a_zero], f"{out}.a"),
            self.add("DequantizeLinear", [b, b_scale, b_zero], f"{out}.b", axis=-1),
        ]
        product = self.add("MatMul", factors, f"{out}.product")
        self.add("QuantizeLinear", [product, scale, zero], out)

    def qlinear_conv(self, node: Any) -> None:
        """QLinearConv: as Q/DQ pairs around a float convolution."""
        import onnx

        x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = _inputs(node, 9)
        out = node.output[0]
        inputs = [
            self.add("DequantizeLinear", [x, x_scale, x_zero], f"{out}.x"),
            self.add("DequantizeLinear", [w, w_scale, w_zero], f"{out}.w", axis=0),
        ]
        if bias:
            step = self.add("Mul", [x_scale, w_scale], f"{out}.step")
            inputs.append(self.add("DequantizeLinear", [bias, step], f"{out}.bias", axis=0))
        product = onnx.helper.make_node("Conv", inputs, [f"{out}.product"])
        product.attribute.extend(node.attribute)
        self.keep(product)
        self.add("QuantizeLinear", [product.output[0], scale, zero], out)


def _inputs(node: Any, count: int) -> list[str]:
    """Return a node's inputs by place; those left out are empty."""
    return [*node.input, *[""] * (count - len(node.input))]


REWRITES: dict[str, Rewrite] = {
    "MatMulInteger": Rewriter.matmul_integer,
    "ConvInteger": Rewriter.conv_integer,
    "MatMulIntegerToFloat": Rewriter.matmul_integer_to_float,
    "DynamicQuantizeMatMul": Rewriter.dynamic_quantize_matmul,
    "QLinearMatMul": Rewriter.qlinear_matmul,
    "QLinearConv": Rewriter.qlinear_conv,
}
