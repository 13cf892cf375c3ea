"""A column of incomes and its scaler in the graph: float16 ends at 65504, and int8 over incomes is coarse."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value
from support import Bench


def scorer(incomes):
    mean, spread = incomes.mean(0), incomes.std(0)
    nodes = [
        ("Sub", ["customer", "mean"], ["off"], {"name": "scale/Sub"}),
        ("Add", ["inverse", "guard"], ["safe"], {"name": "scale/Add"}),
        ("Mul", ["off", "safe"], ["z"], {"name": "scale/Mul"}),
        ("Gemm", ["z", "w", "b"], ["l"], {"name": "head/Gemm"}),
        ("Softmax", ["l"], ["risk"], {"axis": 1, "name": "head/Softmax"}),
    ]
    weights = {
        "mean": mean, "inverse": (1 / spread).astype(np.float32), "guard": np.float32(1e-9),
        "w": np.float32([[-1.2, 1.2], [-5, 5], [6, -6]]), "b": np.float32([0.3, -0.3]),
    }  # fmt: skip
    return graph("risk", nodes, [value("customer", "float32", "n", 3)], [value("risk", "float32", "n", 2)], weights)


@pytest.fixture(scope="module")
def risk(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("risk"))
    rng = np.random.default_rng(6)
    income = np.exp(rng.normal(11.2, 0.7, 60))
    rows = np.stack([rng.uniform(18, 80, 60), income, income * rng.beta(2, 5, 60)], 1).astype(np.float32)
    model = onnx_model(bench, scorer(rows), bench.dataset({"customer": list(rows)}, calibration=20))
    assert model.status == "ok", model.error
    return bench, model


def test_float16_is_finite_and_wrong_and_the_reason_names_what_does_not_fit(risk, row):
    bench, model = risk
    made = bench.step("quantize", "onnx_fp16", model, model, min_cosine=0.99)
    row("large features", "quantize=onnx_fp16", made.status, made.error)
    assert made.status == "wrong_output"
    assert "weight 'mean'" in made.error
    assert "input 'customer'" in made.error
    kept = bench.step("quantize", "onnx_fp16", model, model, min_cosine=0.99, keep_float=["scale/*"])
    row("large features", "quantize=onnx_fp16 quantize.keep_float=[scale/*]", kept.status, kept.error)
    assert kept.status == "ok", kept.error


def test_ranges_over_incomes_ruin_static_int8(risk, row):
    bench, model = risk
    made = bench.step("quantize", "ort_int8_static", model, model)
    row("large features", "quantize=ort_int8_static", made.status, made.error)
    assert made.status == "wrong_output"


@pytest.mark.parametrize(
    ("stage", "option", "settings"),
    [
        ("quantize", "ort_int8_static", {"op_types": ["MatMul", "Gemm"]}),
        ("quantize", "ort_int8_dynamic", {}),
        ("engine", "openvino", {"precision": "f32"}),
        ("engine", "openvino", {"precision": "bf16"}),
    ],
)
def test_what_never_sees_incomes_or_has_float32s_range_is_right(risk, row, stage, option, settings):
    bench, model = risk
    made = bench.step(stage, option, model, model, min_cosine=0.99, **settings)
    words = "".join(f" {stage}.{key}={value}".replace("'", "").replace(", ", ",") for key, value in settings.items())
    row("large features", f"{stage}={option}{words}", made.status, made.error)
    assert made.status == "ok", made.error


def test_nncf_is_judged_by_its_worst_row(risk, row):
    """Near the limit: whichever way it goes, the numbers that decided are in the check."""
    bench, model = risk
    made = bench.step("quantize", "nncf_int8", model, model)
    row("large features", "quantize=nncf_int8", made.status, made.error)
    worst = max(entry["worst_row"] for entry in made.check["outputs"])
    cosine = min(entry["cosine"] for entry in made.check["outputs"])
    assert (made.status == "ok") == (worst <= 2 * 0.2**0.5 and cosine >= 0.9)
