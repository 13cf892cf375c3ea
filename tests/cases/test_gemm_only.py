"""Layers that are all Gemm: the library's int4 changes nothing in them, which would pass as a lossless int4."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value
from support import Bench


@pytest.fixture(scope="module")
def gemms(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("gemms"))
    rng = np.random.default_rng(10)
    shapes = {"table": (60, 32), "w1": (48, 32), "b1": (48,), "w2": (5, 48), "b2": (5,)}
    weights = {name: (rng.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        ("Gather", ["table", "item"], ["e"], {}),
        ("Gemm", ["e", "w1", "b1"], ["h"], {"transB": 1}),
        ("Relu", ["h"], ["r"], {}),
        ("Gemm", ["r", "w2", "b2"], ["y"], {"transB": 1}),
    ]
    made = graph("gemms", nodes, [value("item", "int64", "n")], [value("y", "float32", "n", 5)], weights)
    model = onnx_model(bench, made, bench.dataset({"item": [np.asarray(i) for i in rng.integers(0, 60, 40)]}))
    assert model.status == "ok", model.error
    return bench, model


def worst(made):
    return max(entry["relative_l2"] for entry in made.check["outputs"])


@pytest.mark.parametrize("op_types", [[], ["MatMul", "Gemm"]])
def test_int4_reaches_the_gemms_and_costs_something(gemms, row, op_types):
    bench, model = gemms
    made = bench.step("quantize", "ort_int4", model, model, op_types=op_types)
    words = f" quantize.op_types=[{','.join(op_types)}]" if op_types else ""
    row("gemm", f"quantize=ort_int4{words}", made.status, made.error)
    assert made.status == "ok", made.error
    assert (made.details["nodes"]["MatMulNBits"], made.details["quantized_share"]) == (2, 1.0)
    assert worst(made) > 0.01


def test_int4_of_operators_that_are_not_there_has_no_effect(gemms, row):
    bench, model = gemms
    made = bench.step("quantize", "ort_int4", model, model, op_types=["MatMul"])
    row("gemm", "quantize=ort_int4 quantize.op_types=[MatMul]", made.status, made.error)
    assert made.status == "no_effect"


def test_int4_of_the_table_says_that_no_product_is_in_integers(gemms, row):
    bench, model = gemms
    made = bench.step("quantize", "ort_int4", model, model, op_types=["MatMul", "Gather"], block_size=16)
    row("gemm", "quantize=ort_int4 quantize.op_types=[MatMul,Gather]", made.status, made.error)
    assert made.status == "ok", made.error
    assert made.details["quantized_share"] == 0.0


@pytest.mark.parametrize("option", ["ort_int8_dynamic", "ort_int8_static", "nncf_int8"])
def test_int8_is_right(gemms, row, option):
    bench, model = gemms
    made = bench.step("quantize", option, model, model)
    row("gemm", f"quantize={option}", made.status, made.error)
    assert made.status == "ok", made.error
    assert worst(made) > 1e-4
