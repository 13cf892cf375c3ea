"""Writes small ONNX files and makes models of them, for tests of what no exporter would write."""

from __future__ import annotations

import numpy as np

from strop.artifact import Manifest

KINDS = {"float32": 1, "int64": 7, "str": 8, "bool": 9}  # onnx.TensorProto's numbers


def value(name, dtype, *shape):
    """Describe an input or output: `value("x", "float32", "n", 4)`."""
    import onnx

    return onnx.helper.make_tensor_value_info(name, KINDS[dtype], list(shape))


def graph(name, nodes, inputs, outputs, weights):
    """Return a graph of nodes `(operator, inputs, outputs, attributes)` with weights by name."""
    import onnx
    from onnx import helper

    made = [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes]
    held = [onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    return helper.make_graph(made, name, inputs, outputs, held)


def onnx_model(bench, main, data: Manifest) -> Manifest:
    """Write `main` as a file and make a model artifact of it, as `model=onnx_file` does."""
    import onnx
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    made = helper.make_model(main, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made)
    onnx.save(made, str(bench.project / f"{main.name}.onnx"))
    return bench.do("model", "onnx", {"dataset": data.key}, source={"path": f"{main.name}.onnx"})
