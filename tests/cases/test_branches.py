"""Weights in the branches of an `If`: quantizers overlook them, or read a tensor that they have renamed."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

WIDTH, CLASSES = 24, 5


def two_heads():
    """A stem, and a small or a large head by the sign of the first row's sum; one weight belongs to both heads."""
    rng = np.random.default_rng(5)

    def weight(*shape):
        return (rng.normal(size=shape) / shape[0] ** 0.5).astype(np.float32)

    def out():
        return [value("y", "float32", "n", CLASSES)]

    shared = [("MatMul", ["h", "both"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    small = [*shared, ("MatMul", ["b", "small"], ["y"], {})]
    large = [*shared, ("MatMul", ["b", "wide"], ["c"], {}), ("Tanh", ["c"], ["d"], {}),
             ("MatMul", ["d", "narrow"], ["y"], {})]  # fmt: skip
    branches = {
        "then_branch": graph("small", small, [], out(), {"small": weight(WIDTH, CLASSES)}),
        "else_branch": graph("large", large, [], out(), {"wide": weight(WIDTH, 96), "narrow": weight(96, CLASSES)}),
    }
    nodes = [
        ("Gather", ["x", "first"], ["row"], {"axis": 0}),
        ("ReduceSum", ["row"], ["total"], {"keepdims": 0}),
        ("Greater", ["total", "zero"], ["easy"], {}),
        ("MatMul", ["x", "stem"], ["s"], {}),
        ("Relu", ["s"], ["h"], {}),
        ("If", ["easy"], ["y"], branches),
    ]
    weights = {"zero": np.float32(0), "first": np.asarray(0), "stem": weight(16, WIDTH), "both": weight(WIDTH, WIDTH)}
    return graph("two_heads", nodes, [value("x", "float32", "n", 16)], out(), weights)


@pytest.fixture
def branched(bench):
    rng = np.random.default_rng(6)
    rows = (rng.normal(size=(40, 16)) + rng.choice([-1, 1], (40, 1))).astype(np.float32)  # signs that are plain
    signs = [float(np.sign(row.sum())) for row in rows[8:]]
    assert {-1.0, 1.0} <= set(signs), "the test rows are to take both branches"
    model = onnx_model(bench, two_heads(), bench.dataset({"x": list(rows)}))
    assert model.status == "ok", model.error
    return model


def test_dynamic_int8_reaches_into_the_branches_and_says_how_much(bench, branched, row):
    made = bench.step("quantize", "ort_int8_dynamic", branched, branched, min_cosine=0.99)
    row("branches", "quantize=ort_int8_dynamic", made.status, made.error)
    assert made.status == "ok", made.error
    assert made.details["quantized_share"] == 1.0
    assert made.details["nodes"]["MatMulInteger"] == 6
    assert made.size_bytes < 0.75 * made_size(branched)


def made_size(model):
    return next(file.bytes for file in model.files if file.path == "model.onnx")


def test_the_probes_take_both_branches(bench, branched):
    from strop.examples import Examples

    rows = Examples.read(bench.artifact(branched).file("examples/test.parquet")).columns["x"]
    taken = {bool(rows[row].sum() > 0) for [row] in branched.check["rows"]}
    assert taken == {True, False}


def test_static_int8_keeps_the_relu_that_the_branches_read_and_says_how_little_it_quantized(bench, branched, row):
    made = bench.step("quantize", "ort_int8_static", branched, branched, min_cosine=0.99)
    row("branches", "quantize=ort_int8_static", made.status, made.error)
    assert made.status == "ok", made.error  # by itself the library drops the ReLU, at an error of 84 %
    assert made.details["nodes"]["Relu"] == 3
    assert made.details["quantized_share"] < 0.5


@pytest.mark.parametrize(("option", "floor"), [("onnx_fp16", 0.9999), ("ort_int8_weights", 0.999), ("ort_int4", 0.95)])
def test_half_floats_and_weights_alone_reach_into_the_branches(bench, branched, row, option, floor):
    made = bench.step("quantize", option, branched, branched, min_cosine=floor)
    row("branches", f"quantize={option}", made.status, made.error)
    assert made.status == "ok", made.error
    assert made.details.get("quantized_share", 1.0) == 1.0
    assert made_size(made) < 0.75 * made_size(branched)


def test_nncf_and_openvino_keep_the_branches(bench, branched, row):
    engine = bench.step("engine", "openvino", branched, branched, min_cosine=0.9999)
    row("branches", "engine=openvino", engine.status, engine.error)
    assert engine.status == "ok", engine.error
    made = bench.step("quantize", "nncf_int8", branched, branched, min_cosine=0.95)
    row("branches", "quantize=nncf_int8", made.status, made.error)
    assert made.status == "ok", made.error
