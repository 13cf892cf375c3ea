"""ONNX's quantizers: half floats, blocks of weights, ranges."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.graph import load_graph
from strop.runtimes import open_session
from strop.stages.quantize.onnx_float import to_bfloat16, to_float16

RNG = np.random.default_rng


def floats(*shape, seed=0):
    return RNG(seed).normal(size=shape).astype(np.float32)


def tensor(name, *shape, dtype="float32"):
    return value(name, dtype, *shape)


# Half floats


def test_float16_halves_a_model_and_keeps_its_inputs_and_outputs(text_bench):
    made = text_bench.step("quantize", "onnx_fp16", text_bench.onnx, text_bench.torch, min_cosine=0.9999)
    assert made.status == "ok", made.error
    assert made.details["typed_share"] == 1.0
    assert made.details["casts_at_run_time"] >= made.details["casts"] >= 1
    assert {t.dtype for t in made.outputs} == {"float32"}
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == "f16"
    again = text_bench.step("quantize", "onnx_fp16", made, text_bench.torch)
    assert (again.status, again.error) == ("skipped", "the model is in f16 already")


def scorer():
    """Incomes of up to a million, scaled inside of the graph: mean and scale are beyond float16 on either side."""
    nodes = [
        ("Sub", ["customer", "mean"], ["off"], {"name": "scale/Sub"}),
        ("Mul", ["off", "inverse"], ["z"], {"name": "scale/Mul"}),
        ("Gemm", ["z", "w", "b"], ["risk"], {"name": "head/Gemm"}),
    ]
    weights = {
        "mean": np.float32([40, 90_000]), "inverse": np.float32([0.06, 1.2e-5]), "w": floats(2, 3), "b": floats(3),
    }  # fmt: skip
    return graph("scorer", nodes, [tensor("customer", "n", 2)], [tensor("risk", "n", 3)], weights)


@pytest.fixture
def incomes(bench):
    rng = RNG(6)
    rows = np.stack([rng.uniform(18, 80, 40), np.exp(rng.normal(11.2, 0.7, 40))], 1).astype(np.float32)
    assert rows.max() > 65504
    return onnx_model(bench, scorer(), bench.dataset({"customer": list(rows)}))


def test_what_float16_cannot_hold_is_named_with_the_mend_and_the_mend_works(bench, incomes):
    made = bench.step("quantize", "onnx_fp16", incomes, incomes, min_cosine=0.99)
    assert made.status == "wrong_output"
    for word in ("weight 'mean' (9e+04)", "input 'customer'", "quantize.keep_float=[scale/Sub,scale/Mul]"):
        assert word in made.error
    kept = ["scale/*"]
    mended = bench.step("quantize", "onnx_fp16", incomes, incomes, min_cosine=0.99999, keep_float=kept)
    assert mended.status == "ok", mended.error
    assert mended.details["kept_in_float"] == ["scale/Sub", "scale/Mul"]
    assert "beyond_float16" not in mended.details
    assert 0 < mended.details["typed_share"] < 1


def typed(bench, manifest):
    import onnx

    return onnx.shape_inference.infer_shapes(onnx.load(str(bench.artifact(manifest).folder / "model.onnx")))


def test_kept_nodes_hand_each_other_float32(incomes, bench):
    model = to_float16(typed(bench, incomes), ["scale/Sub", "scale/Mul"])
    kinds = [node.op_type for node in model.graph.node if node.op_type != "Identity"]
    assert kinds == ["Sub", "Mul", "Cast", "Gemm", "Cast"]  # down in front of the head, up behind it


def test_a_mask_of_the_smallest_float_is_clamped_and_does_its_work(bench):
    nodes = [("Add", ["x", "mask"], ["m"], {}), ("Softmax", ["m"], ["y"], {"axis": 1})]
    mask = np.float32([[0, np.finfo(np.float32).min, 0, 0]])
    masked = graph("masked", nodes, [tensor("x", "n", 4)], [tensor("y", "n", 4)], {"mask": mask})
    model = onnx_model(bench, masked, bench.dataset({"x": list(floats(40, 4))}))
    made = bench.step("quantize", "onnx_fp16", model, model, min_cosine=0.9999)
    assert made.status == "ok", made.error
    assert [item["name"] for item in made.details["beyond_float16"]][:1] == ["mask"]


def test_a_float_that_goes_through_an_integer_still_loses_its_fraction(bench):
    nodes = [
        ("Cast", ["x"], ["whole"], {"to": 7}),
        ("Cast", ["whole"], ["back"], {"to": 1}),
        ("MatMul", ["back", "w"], ["y"], {}),
    ]
    floored = graph("floored", nodes, [tensor("x", "n", 4)], [tensor("y", "n", 3)], {"w": floats(4, 3)})
    model = onnx_model(bench, floored, bench.dataset({"x": list(floats(40, 4) * 3)}))
    made = bench.step("quantize", "onnx_fp16", model, model, min_cosine=0.9999)
    assert made.status == "ok", made.error


def test_bfloat16_is_right_and_says_which_kernel_the_cpu_lacks(text_bench):
    import onnx
    from onnx.reference import ReferenceEvaluator

    source = text_bench.artifact(text_bench.onnx).folder / "model.onnx"
    model = to_bfloat16(onnx.load(str(source)), [])
    assert {t.data_type for t in model.graph.initializer} <= {onnx.TensorProto.BFLOAT16, onnx.TensorProto.INT64}
    feeds = {"input_ids": np.asarray([[3, 5, 7, 9]]), "attention_mask": np.ones((1, 4), np.int64)}
    wanted, found = (ReferenceEvaluator(m).run(None, feeds)[0] for m in (onnx.load(str(source)), model))
    assert found.dtype == np.float32
    assert 0 < np.linalg.norm(found - wanted) < 0.05 * np.linalg.norm(wanted)
    made = text_bench.step("quantize", "onnx_bf16", text_bench.onnx, text_bench.torch, min_cosine=0.99)
    if made.status != "ok":  # ONNX Runtime 1.32 has next to no bfloat16 kernels for CPUs
        assert made.status == "build_failed"
        assert "no bfloat16 kernel for" in made.error


def test_bfloat16_holds_what_float16_cannot(bench, incomes):
    import onnx

    model = to_bfloat16(typed(bench, incomes), [])
    onnx.checker.check_model(model, full_check=True)
    arrays = {t.name: onnx.numpy_helper.to_array(t).astype(np.float32) for t in model.graph.initializer}
    assert np.allclose(arrays["mean"], [40, 90_000], rtol=0.005)
    assert np.allclose(arrays["inverse"], [0.06, 1.2e-5], rtol=0.005)


# Blocks of weights


def gemms(bench):
    """Layers that are all Gemm, behind a table: the library leaves both in float by itself."""
    nodes = [
        ("Gather", ["table", "item"], ["e"], {}),
        ("Gemm", ["e", "w1", "b1"], ["h"], {"transB": 1, "name": "first"}),
        ("Relu", ["h"], ["r"], {}),
        ("Gemm", ["r", "w2", "b2"], ["y"], {"transB": 1, "name": "second"}),
    ]
    weights = {
        "table": floats(60, 32), "w1": floats(48, 32, seed=1), "b1": floats(48, seed=2),
        "w2": floats(5, 48, seed=3), "b2": floats(5, seed=4),
    }  # fmt: skip
    made = graph("gemms", nodes, [tensor("item", "n", dtype="int64")], [tensor("y", "n", 5)], weights)
    items = [np.asarray(row) for row in RNG(5).integers(0, 60, 40)]
    return onnx_model(bench, made, bench.dataset({"item": items}))


@pytest.mark.parametrize(("option", "floor", "size"), [("ort_int4", 0.98, 0.75), ("ort_int8_weights", 0.9999, 0.85)])
def test_a_gemm_becomes_blocks_of_integers(bench, option, floor, size):
    model = gemms(bench)
    made = bench.step("quantize", option, model, model, min_cosine=floor)
    assert made.status == "ok", made.error
    assert made.details["nodes"]["MatMulNBits"] == 2
    assert made.details["quantized_share"] == 1.0
    assert made.check["facts"]["precision"] == option.removeprefix("ort_").removesuffix("_weights")
    assert made.size_bytes < size * sum(f.bytes for f in model.files if f.path == "model.onnx")


def test_a_table_becomes_int4_if_asked_for(bench):
    model = gemms(bench)
    made = bench.step("quantize", "ort_int4", model, model, op_types=["Gather"], block_size=16, min_cosine=0.98)
    assert made.status == "ok", made.error
    assert made.details["nodes"]["GatherBlockQuantized"] == 1
    assert made.details["quantized_share"] == 0.0


@pytest.mark.parametrize("settings", [{"symmetric": True}, {"block_size": 128}, {"accuracy_level": "int8"}])
def test_blocks_are_as_they_were_asked_for(bench, settings):
    model = gemms(bench)
    made = bench.step("quantize", "ort_int4", model, model, **settings)
    assert made.status == "ok", made.error
    nodes = load_graph(bench.artifact(made).folder / "model.onnx").graph.node
    [first, _] = [node for node in nodes if node.op_type == "MatMulNBits"]
    found = {item.name: item.i for item in first.attribute}
    assert found["block_size"] == settings.get("block_size", 32)
    assert found.get("accuracy_level", 0) == (4 if "accuracy_level" in settings else 0)
    assert len(first.input) == (3 if "symmetric" in settings else 4)


def test_a_block_size_that_the_library_lacks_is_refused(bench):
    model = gemms(bench)
    made = bench.step("quantize", "ort_int4", model, model, block_size=24)
    assert (made.status, made.error) == (
        "build_failed", "quantize.block_size=24: the library knows 16, 32, 64, 128, 256",
    )  # fmt: skip


def test_a_model_without_products_is_left_alone_by_weight_only_quantizers(bench):
    nodes = [("Conv", ["x", "w"], ["y"], {})]
    conv = graph("conv", nodes, [tensor("x", "n", 2, 5, 5)], [tensor("y", "n", 3, 3, 3)], {"w": floats(3, 2, 3, 3)})
    model = onnx_model(bench, conv, bench.dataset({"x": list(floats(20, 2, 5, 5))}))
    made = bench.step("quantize", "ort_int4", model, model)
    assert made.status == "no_effect"
    assert "no matrix product with constant weights" in made.error


def test_what_is_quantized_already_or_made_of_texts_ends_as_it_should(bench):
    model = gemms(bench)
    for first in ("ort_int4", "ort_int8_static"):
        done = bench.step("quantize", first, model, model)
        for option in ("onnx_fp16", "onnx_bf16", "ort_int4", "ort_int8_weights"):
            again = bench.step("quantize", option, done, model)
            assert (again.status, again.error) == ("skipped", "the model is quantized already")


# Static int8


@pytest.mark.parametrize(
    "settings",
    [
        {"calibration_method": "percentile", "calibration_percentile": 99.9},
        {"calibration_method": "entropy"},
        {"activation_type": "int8"},
        {"weight_type": "uint8", "reduce_range": False},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_ranges_and_types_of_static_int8(text_bench, settings):
    """Texts of unlike lengths, of which the library's histograms make nothing when they see all of them at once."""
    kinds = ["MatMul", "Gemm"]
    made = text_bench.step(
        "quantize", "ort_int8_static", text_bench.onnx, text_bench.torch, min_cosine=0.95, op_types=kinds, **settings
    )
    assert made.status == "ok", made.error
    assert made.details["quantized_share"] > 0.5


def test_a_bias_of_one_row_is_no_obstacle(bench):
    nodes = [("Gemm", ["x", "w", "b"], ["y"], {})]
    made = graph("row", nodes, [tensor("x", "n", 8)], [tensor("y", "n", 4)], {"w": floats(8, 4), "b": floats(1, 4)})
    model = onnx_model(bench, made, bench.dataset({"x": list(floats(40, 8))}))
    static = bench.step("quantize", "ort_int8_static", model, model, per_channel=True, min_cosine=0.95)
    assert static.status == "ok", static.error


# Files and extremes


@pytest.mark.parametrize("option", ["ort_int8_dynamic", "ort_int8_static", "ort_int4", "onnx_fp16", "onnx_bf16"])
def test_weights_beside_the_file_stay_beside_it_and_are_written_once(bench, option):
    import onnx
    from onnx import helper

    data = bench.dataset({"x": list(floats(40, 64))})
    nodes = [("MatMul", ["x", "w1"], ["h"], {}), ("Relu", ["h"], ["r"], {}), ("MatMul", ["r", "w2"], ["y"], {})]
    weights = {"w1": floats(64, 64) / 8, "w2": floats(64, 64, seed=1) / 8}
    made = graph("large", nodes, [tensor("x", "n", 64)], [tensor("y", "n", 64)], weights)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, str(bench.project / "large.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    model = bench.do("model", "onnx", {"dataset": data.key}, source={"path": "large.onnx"})
    assert model.status == "ok", model.error
    mixed = {} if option == "onnx_bf16" else {"keep_sensitive": 1}
    made = bench.step("quantize", option, model, model, min_cosine=0.95, **mixed)
    if option != "onnx_bf16":
        assert made.status == "ok", made.error
    assert {"model.onnx", "model.onnx.data"} <= {file.path for file in made.files}
    assert made.size_bytes < sum(weight.nbytes for weight in weights.values())


def test_infinities_fit_float16(bench):
    nodes = [("Add", ["x", "mask"], ["m"], {}), ("Softmax", ["m"], ["y"], {"axis": 1})]
    mask = np.float32([[0, -np.inf, 0, 0]])
    masked = graph("infinite", nodes, [tensor("x", "n", 4)], [tensor("y", "n", 4)], {"mask": mask})
    model = onnx_model(bench, masked, bench.dataset({"x": list(floats(40, 4))}))
    made = bench.step("quantize", "onnx_fp16", model, model, min_cosine=0.9999)
    assert made.status == "ok", made.error
    assert "beyond_float16" not in made.details
