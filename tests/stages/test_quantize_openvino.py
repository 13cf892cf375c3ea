"""NNCF's quantizers say what they did: quantizers, bits of weights, what stayed in float."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.runtimes import open_session

RNG = np.random.default_rng
SIZES = ((60, 16), (16, 32), (32, 4))  # examples, and the weights of two layers


def quantize(bench, option, **settings):
    return bench.step("quantize", option, bench.onnx, bench.torch, **settings)


@pytest.mark.parametrize(
    ("settings", "precision", "bits"),
    [
        ({"weight_mode": "int8_asym"}, "int8", {"8"}),
        ({"weight_mode": "int8_sym"}, "int8", {"8"}),
        ({"weight_mode": "int4_sym"}, "int4", {"4", "8"}),
        ({"weight_mode": "int4_asym", "all_layers": True}, "int4", {"4"}),
        ({"weight_mode": "int4_asym", "int4_ratio": 0.5}, "int4", {"4", "8"}),
        ({"weight_mode": "int4_sym", "all_layers": True, "data_aware": "awq"}, "int4", {"4"}),
        ({"weight_mode": "int4_sym", "all_layers": True, "data_aware": "scale_estimation"}, "int4", {"4"}),
    ],
)
def test_weights_get_the_bits_that_were_asked_for(text_bench, settings, precision, bits):
    made = quantize(text_bench, "nncf_weights", min_cosine=0.9, **settings)
    assert made.status == "ok", made.error
    shares = made.details["weights_by_bits"]
    assert bits <= shares.keys()
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(shares[name] for name in bits) > 0.9
    assert made.details["compressed_constants"] > 0
    assert made.details["fake_quantize_nodes"] == 0
    assert len(made.details["kept_in_float"]) == 2  # attention's products have no weights
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == precision


def test_a_smaller_ratio_leaves_fewer_weights_in_4_bits(text_bench):
    shares = [
        quantize(text_bench, "nncf_weights", weight_mode="int4_sym", int4_ratio=r).details["weights_by_bits"]["4"]
        for r in (1.0, 0.5)
    ]
    assert shares[0] > shares[1] > 0


def test_weights_that_cannot_be_compressed_so_are_refused_with_the_mend(text_bench):
    made = quantize(text_bench, "nncf_weights", weight_mode="int4_sym", block_size=64)
    assert made.status == "build_failed"
    assert "quantize.block_size=64" in made.error
    made = quantize(text_bench, "nncf_weights", data_aware="awq")
    assert (made.status, made.error) == ("build_failed", "quantize.data_aware=awq is for 4 bits, not int8_asym")


def adder(bench, labels=None):
    """A model without weights."""
    nodes = [("Add", ["x", "x"], ["y"], {})]
    made = graph("adder", nodes, [value("x", "float32", "n", 4)], [value("y", "float32", "n", 4)], {})
    rows = list(RNG(0).normal(size=(40, 4)).astype(np.float32))
    return onnx_model(bench, made, bench.dataset({"x": rows}, labels))


def test_a_model_without_weights_is_said_to_be_left_alone(bench):
    model = adder(bench)
    made = bench.step("quantize", "nncf_weights", model, model)
    assert (made.status, made.error) == ("no_effect", "NNCF found no weights to compress")


def test_what_moves_into_weights_is_chosen(text_bench):
    made = [quantize(text_bench, "nncf_int8", smooth_quant_alpha=alpha) for alpha in (-1.0, 0.5)]
    assert [m.status for m in made] == ["ok", "ok"], [m.error for m in made]
    assert len({next(f.sha256 for f in m.files if f.path == "model.bin") for m in made}) == 2
    assert made[0].details["kept_in_float"] == []
    assert made[0].details["weights_by_bits"]["8"] > 0.8


def test_layers_return_to_float_until_accuracy_is_back(bench, capsys):
    """A feature of huge values, which the first layer ignores, makes the others vanish in int8."""
    rows, first, second = (RNG(seed).normal(size=size).astype(np.float32) for seed, size in enumerate(SIZES))
    rows[:, 0] *= 1e5
    first[0] = 0
    nodes = [
        ("MatMul", ["x", "w1"], ["h"], {"name": "first"}),
        ("Relu", ["h"], ["r"], {}),
        ("MatMul", ["r", "w2"], ["y"], {"name": "second"}),
    ]
    weights = {"w1": first, "w2": second}
    made = graph("wide", nodes, [value("x", "float32", "n", 16)], [value("y", "float32", "n", 4)], weights)
    labels = (np.maximum(rows @ first, 0) @ second).argmax(1)
    model = onnx_model(bench, made, bench.dataset({"x": list(rows)}, labels, calibration=40))
    kept = bench.step("quantize", "nncf_accuracy", model, model, max_drop=0.1)
    assert kept.status == "ok", kept.error
    assert kept.details["max_drop_met"] is True
    assert kept.details["calibration_accuracy"]["float"] == 1
    assert len(kept.details["kept_in_float"]) == 1
    assert kept.details["weights_by_bits"].keys() == {"8", "32"}
    assert "nncf: accuracy" in capsys.readouterr().out
    ruined = bench.step("quantize", "nncf_accuracy", model, model, max_drop=1.0, min_cosine=-1)
    assert ruined.details["kept_in_float"] == []
    assert ruined.details["calibration_accuracy"]["quantized"] < 0.9


def test_accuracy_without_labels_is_refused(bench):
    model = adder(bench)
    made = bench.step("quantize", "nncf_accuracy", model, model)
    assert (made.status, made.error) == (
        "calibration_failed", "the calibration examples have no labels to measure accuracy by",
    )  # fmt: skip


@pytest.mark.parametrize(
    "option", ["nncf_int8", "nncf_accuracy", "nncf_weights", "ort_int4", "onnx_fp16", "sensitivity"]
)
def test_a_quantized_model_is_not_quantized_again(text_bench, option):
    once = quantize(text_bench, "ort_int8_dynamic")
    made = text_bench.step("quantize", option, once, text_bench.torch)
    assert (made.status, made.error) == ("skipped", "the model is quantized already")
