"""OpenVINO computes float models in bfloat16 where the CPU can, asked or not: the facts say what it really does."""

import numpy as np
import pytest

from strop.examples import Examples
from strop.runtimes import open_session
from strop.runtimes.session import run

TREND = """
import torch
from torch import nn


class Trend(nn.Module):
    def __init__(self):
        super().__init__()
        self.change = nn.Linear(16, 3, bias=False)
        with torch.no_grad():  # differences of near numbers around a thousand
            self.change.weight -= self.change.weight.mean(1, keepdim=True)

    def forward(self, pressure):
        return self.change(pressure)


def build():
    return Trend()
"""


@pytest.fixture(scope="module")
def trend(tmp_path_factory):
    from support import Bench

    bench = Bench(tmp_path_factory.mktemp("trend"))
    rows = 1000 + np.random.default_rng(29).normal(size=(40, 16)).cumsum(1)
    model = bench.model(TREND, bench.dataset({"pressure": list(rows.astype(np.float32))}))
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert onnx.status == "ok", onnx.error
    return bench, onnx, model


def error_of(bench, made, model):
    """Return the relative error of an artifact's outputs against the model's."""
    rows = Examples.read(bench.artifact(model).file("examples/test.parquet")).batch(list(range(16)))
    wanted, got = (run(open_session(bench.artifact(m), threads=1), rows)["output_0"] for m in (model, made))
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("asked", ["auto", "f32", "bf16", "f16"])
def test_the_facts_agree_with_the_errors(trend, row, asked):
    import openvino

    bench, onnx, model = trend
    made = bench.step("engine", "openvino", onnx, model, precision=asked, min_cosine=0.999)
    told = made.check["facts"]["precision"]
    if asked in ("f32", "bf16"):  # what the others become is the CPU's
        row("bfloat16", f"engine=openvino engine.precision={asked}", made.status, made.error)
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert told in {"f32", *(["bf16"] if "BF16" in able else []), *(["f16"] if "FP16" in able else [])}
    assert asked != "f32" or told == "f32"
    error = error_of(bench, made, model)
    if told == "f32":
        assert (made.status, error < 1e-4) == ("ok", True), made.error
    else:
        assert (made.status, error > 1e-2) == ("wrong_output", True)


@pytest.mark.parametrize(
    ("option", "status"),
    [("ort_int8_dynamic", "wrong_output"), ("ort_int8_static", "wrong_output"), ("nncf_int8", "wrong_output")],
)
def test_integers_of_raw_units_are_wrong(trend, row, option, status):
    bench, onnx, model = trend
    made = bench.step("quantize", option, onnx, model)
    row("bfloat16", f"quantize={option}", made.status, made.error)
    assert made.status == status


def test_an_int8_model_says_what_its_float_part_is_computed_in(text_bench):
    int8 = text_bench.step("quantize", "nncf_int8", text_bench.onnx, text_bench.torch)
    made = text_bench.step("engine", "openvino", int8, text_bench.torch, precision="f32")
    facts = open_session(text_bench.artifact(made), threads=1).facts
    assert (facts["precision"], facts["float_precision"]) == ("int8", "f32")
