"""Rows of nothing, outputs of nothing, and scalars."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

SETS = """
import torch
from torch import nn


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.value = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, boxes):
        return self.value(torch.relu(self.score(boxes))).sum(1)


class Scaled(Sets):
    def forward(self, boxes, factor):
        out = super().forward(boxes) * factor[:, None]
        return {"rows": out, "mean": out.abs().mean()}


def build():
    return Sets()


def build_scaled():
    return Scaled()
"""


def boxes(counts):
    rng = np.random.default_rng(22)
    return [rng.normal(size=(count, 4)).astype(np.float32) for count in counts]


def test_empty_rows_among_full_ones_are_right_in_every_runtime(bench, row):
    counts = [0, 3, 2, 0, 1, 4, 5, 2] + [0, 1, 2, 5, 7] * 5
    model = bench.model(SETS, bench.dataset({"boxes": boxes(counts)}))
    assert model.status == "ok", model.error
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert onnx.status == "ok", onnx.error
    for engine in ("onnxruntime", "openvino"):
        made = bench.step("engine", engine, onnx, model, min_cosine=0.9999)
        row("empty", f"engine={engine}", made.status, made.error)
        assert made.status == "ok", made.error
    for option in ("ort_int8_static", "nncf_int8"):
        made = bench.step("quantize", option, onnx, model)
        row("empty", f"quantize={option}", made.status, made.error)
        assert made.details["calibration_examples"] == 6
        assert made.status == "ok", made.error


def test_dynamic_int8_needs_no_calibration(bench, row):
    counts = [0] * 8 + [0, 1, 2, 5, 7] * 5
    model = bench.model(SETS, bench.dataset({"boxes": boxes(counts)}))
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.999)
    made = bench.step("quantize", "ort_int8_dynamic", onnx, model)
    row("no calibration", "quantize=ort_int8_dynamic", made.status, made.error)
    assert made.status == "ok", made.error
    for option in ("ort_int8_static", "nncf_int8"):
        made = bench.step("quantize", option, onnx, model)
        row("no calibration", f"quantize={option}, empty rows alone", made.status, made.error)
        assert made.status == "calibration_failed"
        assert "0 calibration examples hold values" in made.error
    bare = bench.model(SETS, bench.dataset({"boxes": boxes(counts[8:])}, calibration=0))
    onnx = bench.step("export", "onnx", bare, bare, min_cosine=0.999)
    made = bench.step("quantize", "ort_int8_static", onnx, bare)
    row("no calibration", "quantize=ort_int8_static dataset.calibration_size=0", made.status, made.error)
    assert made.error == "no calibration examples; set dataset.calibration_size"


def test_a_number_an_example_and_an_output_without_axes_are_checked_like_others(bench):
    factor = [np.float32(n) for n in np.linspace(0.5, 2, 40)]
    data = bench.dataset({"boxes": boxes([3] * 40), "factor": [np.asarray(f) for f in factor]})
    model = bench.model(SETS, data, factory="build_scaled")
    assert model.status == "ok", model.error
    assert model.inputs[1].shape == ("batch",)
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.9999)
    assert onnx.status == "ok", onnx.error
    assert {entry["output"] for entry in onnx.check["outputs"]} == {"rows", "mean"}


def detector():
    """Scores, and the places of those above a threshold: an int64 output of any length."""
    rng = np.random.default_rng(1)
    nodes = [
        ("MatMul", ["x", "w"], ["s"], {}),
        ("Squeeze", ["s", "last"], ["score"], {}),
        ("Greater", ["score", "threshold"], ["keep"], {}),
        ("NonZero", ["keep"], ["at"], {}),
        ("Squeeze", ["at", "first"], ["kept"], {}),
    ]
    weights = {"w": rng.normal(size=(4, 1)).astype(np.float32), "last": np.asarray([1]), "first": np.asarray([0])}
    inputs = [value("x", "float32", "n", 4), value("threshold", "float32")]
    return nodes, weights, inputs, [value("kept", "int64", "k")]


def test_an_input_without_axes_is_named_with_the_mend(bench, row):
    nodes, weights, inputs, outputs = detector()
    data = bench.dataset({"x": [row[0] for row in boxes([1] * 20)], "threshold": [np.asarray(np.float32(0.1))] * 20})
    model = onnx_model(bench, graph("scalar", nodes, inputs, outputs, weights), data)
    row("empty", "model=onnx_file with a scalar input", model.status, model.error)
    assert model.status == "build_failed"
    assert "input 'threshold' has no axis (a scalar)" in model.error


@pytest.mark.parametrize(("threshold", "status"), [(0.0, "ok"), (1e6, "unstable")])
def test_outputs_of_nothing_prove_nothing(bench, row, threshold, status):
    nodes, weights, inputs, outputs = detector()
    weights["threshold"] = np.float32(threshold)
    data = bench.dataset({"x": [row[0] for row in boxes([1] * 40)]})
    model = onnx_model(bench, graph("detector", nodes, inputs[:1], outputs, weights), data)
    kind = "some" if status == "ok" else "no"
    row("empty", f"model=onnx_file with {kind} detections", model.status, model.error)
    assert model.status == status, model.error
    if status == "ok":
        made = bench.step("engine", "openvino", model, model, min_cosine=0.9999)
        assert made.status == "ok", made.error
    else:
        assert "empty outputs are always equal" in model.error
