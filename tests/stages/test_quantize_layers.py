"""Mixed precision in ONNX: layers stay in float by name, by measured loss, or by the list of an earlier run."""

import json

import numpy as np
import pytest
from graphs import graph, onnx_model, value


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tensor(name, *shape):
    return value(name, "float32", *shape)


def uneven(bench, calibration=8):
    """Two layers, of which the second has a row of huge weights that a single scale for all rows cannot bear."""
    head = floats(16, 5, seed=1)
    head[:, 4] *= 3000
    nodes = [
        ("MatMul", ["x", "body.w"], ["h"], {"name": "body"}),
        ("Relu", ["h"], ["r"], {"name": "relu"}),
        ("Gemm", ["r", "head.w", "head.b"], ["both"], {"name": "head"}),
        ("Split", ["both", "sizes"], ["classes", "score"], {"axis": 1, "name": "split"}),
    ]
    weights = {"body.w": floats(16, 16), "head.w": head, "head.b": floats(5), "sizes": np.asarray([4, 1])}
    outputs = [tensor("classes", "n", 4), tensor("score", "n", 1)]
    made = graph("uneven", nodes, [tensor("x", "n", 16)], outputs, weights)
    return onnx_model(bench, made, bench.dataset({"x": list(floats(40, 16, seed=2))}, calibration=calibration))


@pytest.mark.parametrize("mixed", [{"keep_sensitive": 1}, {"keep_float": ["head"]}, {"keep_float": ["h*d"]}])
def test_the_layer_that_loses_most_stays_in_float(bench, mixed):
    model = uneven(bench)
    ruined = bench.step("quantize", "ort_int8_dynamic", model, model, per_channel=False)
    assert ruined.status == "wrong_output"
    made = bench.step("quantize", "ort_int8_dynamic", model, model, per_channel=False, min_cosine=0.99, **mixed)
    assert made.status == "ok", made.error
    assert made.details["kept_in_float"] == ["head"]
    assert made.details["quantized_share"] == 0.5


def test_losses_are_measured_written_and_sorted(bench):
    model = uneven(bench)
    made = bench.step("quantize", "ort_int8_dynamic", model, model, per_channel=False, keep_sensitive=1)
    rows = json.loads((bench.artifact(made).folder / "sensitivity.json").read_text())
    assert rows == made.details["sensitivity"]
    assert [(row["layer"], row["kept"]) for row in rows] == [("head", True), ("body", False)]
    assert 0 < rows[1]["loss"] < 0.1 < 0.5 < rows[0]["loss"]
    assert (made.details["layers_measured"], made.details["layers"]) == (2, 2)


def test_a_list_of_losses_is_written_once_and_read_by_later_runs(bench, capsys):
    model = uneven(bench)
    ranked = bench.step("quantize", "sensitivity", model, model, per_channel=False)
    file = f"results/{ranked.key}/sensitivity.json"
    assert ranked.status == "no_effect"
    assert ranked.error == f"nothing was to be quantized: {file} ranks 2 of 2 layers"
    assert [row["kept"] for row in json.loads((bench.project / file).read_text())] == [False, False]
    assert "sensitivity 2/2" in capsys.readouterr().out
    mixed = {"per_channel": False, "keep_sensitive": 1, "sensitivity_file": file}
    made = bench.step("quantize", "ort_int8_dynamic", model, model, min_cosine=0.99, **mixed)
    assert made.status == "ok", made.error
    assert made.details["kept_in_float"] == ["head"]
    assert "sensitivity" not in capsys.readouterr().out


def test_a_list_of_another_model_or_of_nothing_is_refused(bench):
    model = uneven(bench)
    for text, word in (
        ('[{"layer": "other", "loss": 1}]', "none of its 1 layers"),
        ("{}", "none of its 0"),
        ("x", "no list"),
    ):
        (bench.project / "list.json").write_text(text)
        made = bench.step("quantize", "ort_int4", model, model, keep_sensitive=1, sensitivity_file="list.json")
        assert made.status == "build_failed"
        assert f"quantize.sensitivity_file=list.json: {word}" in made.error
    made = bench.step("quantize", "ort_int4", model, model, keep_sensitive=1, sensitivity_file="../list.json")
    assert "outside of the project's folder" in made.error


@pytest.mark.parametrize("option", ["ort_int8_static", "ort_int4", "ort_int8_weights", "onnx_fp16"])
def test_each_option_leaves_a_layer_out(bench, option):
    model = uneven(bench)
    made = bench.step("quantize", option, model, model, keep_sensitive=1, min_cosine=-1)
    assert made.status in ("ok", "wrong_output"), made.error
    rows = made.details["sensitivity"]
    assert [row["kept"] for row in rows] == [True, False]
    assert rows[0]["loss"] > rows[1]["loss"] > 0
    assert made.details.get("quantized_share", made.details.get("typed_share")) < 1


def test_time_for_measuring_is_bounded(bench):
    model = uneven(bench)
    made = bench.step("quantize", "ort_int4", model, model, keep_sensitive=1, sensitivity_time_s=-1.0)
    assert made.status == "ok", made.error
    assert (made.details["layers_measured"], made.details["layers"]) == (0, 2)
    assert "kept_in_float" not in made.details


def test_a_name_that_no_node_has_is_refused_with_the_nearest(bench):
    model = uneven(bench)
    for option in ("ort_int8_dynamic", "ort_int8_static", "onnx_fp16", "onnx_bf16", "ort_int4"):
        made = bench.step("quantize", option, model, model, keep_float=["haed"])
        assert made.status == "build_failed"
        assert made.error == "quantize.keep_float: no node is called 'haed'; did you mean 'head'?"


def test_keeping_all_in_float_is_no_effect(bench):
    model = uneven(bench)
    for option in ("ort_int8_dynamic", "ort_int8_static", "ort_int4"):
        made = bench.step("quantize", option, model, model, keep_float=["*"])
        assert made.status == "no_effect"
        assert "quantize.keep_float" in made.error
    half = bench.step("quantize", "onnx_fp16", model, model, keep_float=["*"])
    assert (half.status, half.details["typed_share"]) == ("no_effect", 0.0)


def test_nothing_to_measure_on_is_said(bench):
    model = uneven(bench, calibration=0)
    made = bench.step("quantize", "ort_int4", model, model, keep_sensitive=1)
    assert (made.status, made.error) == (
        "calibration_failed", "no calibration examples; set dataset.calibration_size",
    )  # fmt: skip
    assert bench.step("quantize", "ort_int4", model, model).status == "ok"
