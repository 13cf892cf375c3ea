"""Integers that overflow on CPUs without VNNI are found, and nothing else is taken for it."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.audit.emulation import in_float
from strop.audit.saturation import has_integer_products, saturation, verdict, worst
from strop.machine import VNNI, machine_facts

DEPTH, WIDTH = 256, 32


def adds_in_16_bits():
    """Return whether this CPU's fastest int8 product adds pairs in 16 bits."""
    facts = machine_facts()
    return facts["architecture"] in ("x86_64", "AMD64") and not VNNI & set(facts["instruction_sets"])


def extreme():
    """Activations and weights near the ends of their ranges, with signs that do not cancel."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.5, 1, (40, DEPTH)).astype(np.float32)
    return rows, np.where(rng.random((DEPTH, WIDTH)) < 0.8, 1, -1).astype(np.float32)


@pytest.fixture
def product(bench):
    rows, weights = extreme()
    nodes = [("MatMul", ["x", "w"], ["y"], {})]
    made = graph("product", nodes, [value("x", "float32", "n", DEPTH)], [value("y", "float32", "n", WIDTH)],
                 {"w": weights})  # fmt: skip
    return onnx_model(bench, made, bench.dataset({"x": list(rows)}))


def looked_at(bench, manifest):
    return saturation(bench.artifact(manifest).folder / "model.onnx", [{"x": extreme()[0]}], threads=1)


@pytest.mark.parametrize("option", ["ort_int8_static", "ort_int8_dynamic"])
def test_eight_bit_weights_saturate_where_pairs_are_added_in_16_bits(bench, product, option):
    made = bench.step("quantize", option, product, product, reduce_range=False, min_cosine=-1)
    assert made.status in ("ok", "wrong_output"), made.error
    found = looked_at(bench, made)
    audited = made.details["audit"]["saturation"]  # of the examples that are checked: other rows, other differences
    assert audited["saturates"] == found["saturates"]
    assert made.details["audit"]["warnings"] == ([audited["reason"]] if audited["reason"] else [])
    assert made.status == "ok" or made.error.endswith(audited["reason"])
    assert found["saturates"] == adds_in_16_bits()
    if found["saturates"]:
        assert found["relative_difference"] > 0.2
        assert "lacks VNNI" in found["reason"]
        assert "quantize.reduce_range=true" in found["reason"]
    else:
        assert found["relative_difference"] < 0.01
        assert found["reason"] is None


@pytest.mark.parametrize("option", ["ort_int8_static", "ort_int8_dynamic"])
@pytest.mark.parametrize("remedy", [{"reduce_range": True}, {"reduce_range": False, "weight_type": "uint8"}])
def test_seven_bits_or_unsigned_weights_never_saturate(bench, product, option, remedy):
    made = bench.step("quantize", option, product, product, **remedy)
    assert made.status == "ok", made.error
    found = looked_at(bench, made)
    assert (found["saturates"], found["reason"]) == (False, None)
    assert found["relative_difference"] < 0.01


def saturated(a, b):
    """Multiply uint8 by int8 as AVX2 does: products of two neighbours are added in 16 bits, the sums in 32."""
    pairs = a.reshape(len(a), -1, 2).astype(np.int64), b.reshape(-1, 2, b.shape[1]).astype(np.int64)
    sums = np.einsum("npk,pkm->npm", *pairs)
    return np.clip(sums, -(2**15), 2**15 - 1).sum(1)


def test_the_comparison_tells_saturated_sums_from_exact_ones(tmp_path):
    """The sums of a CPU without VNNI, whichever CPU this is."""
    rows, weights = extreme()
    a, b = np.round(rows * 255).astype(np.uint8), np.round(weights * 127).astype(np.int8)
    exact = {"y": a.astype(np.float32) @ b.astype(np.float32)}
    overflown, rounded = {"y": saturated(a, b).astype(np.float32)}, {"y": np.round(exact["y"], -3)}
    assert verdict(worst(exact, overflown), worst(exact, overflown), set())["saturates"]
    assert not verdict(0.0, worst(exact, rounded), set())["saturates"]
    seven = np.round(weights * 63).astype(np.int8)
    assert np.array_equal(saturated(a, seven), a.astype(np.int64) @ seven.astype(np.int64))
    if adds_in_16_bits():
        [found] = executed(tmp_path, [("MatMulInteger", ["a", "b"], ["y"], {}, "")], {"b": b}, {"a": a}, "int32")
        assert np.array_equal(found, saturated(a, b))


def test_the_verdict_names_what_it_is():
    assert verdict(0.0, 0.09, set()) == {"relative_difference": 0.09, "saturates": False, "reason": None}
    assert "lacks VNNI" in verdict(0.1, 0.1, {"avx2"})["reason"]
    assert "lacks VNNI" not in verdict(0.1, 0.1, {"avx512_vnni"})["reason"]
    assert "not by saturation" in verdict(0.0, 0.5, set())["reason"]
    assert verdict(float("inf"), float("inf"), set())["saturates"]


def test_models_without_products_of_integers_have_nothing_to_look_at(bench, product):
    assert looked_at(bench, product) is None
    for option in ("ort_int4", "onnx_fp16"):
        made = bench.step("quantize", option, product, product, min_cosine=-1)
        assert looked_at(bench, made) is None


# The emulation multiplies the same integers: with small ones, no CPU's sums overflow, and both are the same.

RNG = np.random.default_rng(1)
A = RNG.integers(0, 30, (3, 8)).astype(np.uint8)
IMAGE = RNG.integers(0, 30, (2, 4, 6, 6)).astype(np.uint8)
HELD = {
    "b": RNG.integers(-20, 20, (8, 5)).astype(np.int8),
    "w": RNG.integers(-20, 20, (6, 4, 3, 3)).astype(np.int8),
    "a0": np.uint8(7), "b0": RNG.integers(-3, 3, 5).astype(np.int8), "w0": np.int8(0), "y0": np.uint8(128),
    "a_step": np.float32(0.02), "b_steps": RNG.uniform(0.01, 0.03, 5).astype(np.float32),
    "w_steps": RNG.uniform(0.01, 0.03, 6).astype(np.float32), "w0s": np.zeros(6, np.int8), "b0s": np.zeros(5, np.int8),
    "y_step": np.float32(0.05), "bias": RNG.normal(size=5).astype(np.float32),
    "w_bias": RNG.integers(-99, 99, 6).astype(np.int32),
}  # fmt: skip
MS = "com.microsoft"
NODES = {
    "MatMulInteger": ("MatMulInteger", ["a", "b", "a0", "b0"], {}, "", "int32"),
    "MatMulInteger-without-zeros": ("MatMulInteger", ["a", "b"], {}, "", "int32"),
    "ConvInteger": ("ConvInteger", ["image", "w", "a0", "w0"], {"pads": [1] * 4, "strides": [2, 1]}, "", "int32"),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat", ["a", "b", "a_step", "b_steps", "a0", "b0", "bias"], {}, MS, "float32",
    ),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", ["x", "b", "b_steps", "b0", "bias"], {}, MS, "float32"),
    "DynamicQuantizeMatMul-bare": ("DynamicQuantizeMatMul", ["x", "b", "b_steps"], {}, MS, "float32"),
    "QLinearMatMul": (
        "QLinearMatMul", ["a", "a_step", "a0", "b", "b_steps", "b0s", "y_step", "y0"], {}, "", "uint8",
    ),
    "QLinearConv": (
        "QLinearConv", ["image", "a_step", "a0", "w", "w_steps", "w0s", "y_step", "y0", "w_bias"],
        {"pads": [1] * 4}, "", "uint8",
    ),
}  # fmt: skip


def executed(folder, nodes, weights, feeds, result, change=lambda model: model):
    """Run a graph of nodes (operator, inputs, outputs, attributes, domain), without ONNX Runtime's optimizations."""
    import onnx
    import onnxruntime as ort
    from onnx import helper

    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype)) for name, array in feeds.items()}
    made = [helper.make_node(op, ins, outs, domain=domain, **given) for op, ins, outs, given, domain in nodes]
    main = helper.make_graph(
        made, "integers",
        [helper.make_tensor_value_info(name, kinds[name], list(array.shape)) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    model = change(helper.make_model(main, opset_imports=opsets, ir_version=8))
    onnx.save(model, str(folder / "integers.onnx"))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(folder / "integers.onnx"), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], feeds)


@pytest.mark.parametrize("name", sorted(NODES))
def test_the_emulation_multiplies_the_same_integers(tmp_path, name):
    op, inputs, attributes, domain, result = NODES[name]
    feeds = {"a": A, "image": IMAGE, "x": RNG.normal(size=(3, 8)).astype(np.float32)}
    feeds = {key: array for key, array in feeds.items() if key in inputs}
    weights = {key: array for key, array in HELD.items() if key in inputs}
    nodes = [(op, inputs, ["y"], attributes, domain)]
    rewritten = []

    def emulation(model):
        assert has_integer_products(model)
        rewritten.extend(node.op_type for node in in_float(model).graph.node)
        return model

    [wanted] = executed(tmp_path, nodes, weights, feeds, result)
    [found] = executed(tmp_path, nodes, weights, feeds, result, emulation)
    assert op not in rewritten
    assert found.dtype == wanted.dtype
    if result == "uint8":  # a value in the middle between two steps may be rounded either way
        assert np.max(np.abs(found.astype(int) - wanted.astype(int))) <= 1
        assert np.mean(found == wanted) > 0.95
    else:
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_branches_are_emulated_too(bench):
    rows, weights = extreme()

    def branch(name, factor):
        nodes = [("MatMul", ["x", "w"], [f"{name}.y"], {})]
        return graph(name, nodes, [], [value(f"{name}.y", "float32", "n", WIDTH)], {"w": weights * factor})

    nodes = [
        ("ReduceSum", ["x"], ["total"], {"keepdims": 0}),
        ("Greater", ["total", "zero"], ["plus"], {}),
        ("If", ["plus"], ["y"], {"then_branch": branch("yes", 1), "else_branch": branch("no", 2)}),
    ]
    made = graph("branches", nodes, [value("x", "float32", "n", DEPTH)], [value("y", "float32", "n", WIDTH)],
                 {"zero": np.float32(0)})  # fmt: skip
    model = onnx_model(bench, made, bench.dataset({"x": list(rows)}))
    done = bench.step("quantize", "ort_int8_dynamic", model, model, reduce_range=False, min_cosine=-1)
    assert done.details["quantized_share"] == 1.0
    assert looked_at(bench, done)["saturates"] == adds_in_16_bits()
