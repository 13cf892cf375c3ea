"""A depthwise channel with huge weights after one with tiny values: one scale a tensor leaves nothing of the others."""

import numpy as np
import pytest

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen = nn.Conv2d(2, 12, 3, padding=1)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.head = nn.Conv2d(12, 4, 1, bias=False)
        with torch.no_grad():  # the function stays the same: ReLU lets a positive factor through
            self.widen.weight[3] /= 2000
            self.widen.bias[3] /= 2000
            self.depthwise.weight[3] *= 2000

    def forward(self, image):
        x = torch.relu(self.depthwise(torch.relu(self.widen(image))))
        return self.head(x).mean((2, 3))


def build():
    return Net()
"""


@pytest.fixture
def exported(bench):
    rng = np.random.default_rng(11)
    images = 2 * rng.normal(size=(40, 2, 1, 1)) + rng.normal(size=(40, 2, 6, 6))  # of one colour each, and noise
    data = bench.dataset({"image": list(images.astype(np.float32))}, rng.integers(0, 4, 40))
    model = bench.model(MODEL, data)
    made = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert made.status == "ok", made.error
    return made, model


@pytest.mark.parametrize("option", ["ort_int8_dynamic", "ort_int8_static"])
def test_one_scale_a_tensor_ruins_the_model_and_is_a_finding(bench, exported, row, option):
    onnx, model = exported
    made = bench.step("quantize", option, onnx, model, per_channel=False, min_cosine=0.99)
    row("depthwise", f"quantize={option} quantize.per_channel=false", made.status, made.error)
    assert made.status == "wrong_output"
    assert "output" in made.error


def test_one_scale_a_channel_is_reported_with_its_loss(bench, exported, row):
    onnx, model = exported
    made = bench.step("quantize", "ort_int8_static", onnx, model, per_channel=True, min_cosine=0.9)
    row("depthwise", "quantize=ort_int8_static", made.status, made.error)
    assert made.status == "ok", made.error
    worst = min(entry["cosine"] for entry in made.check["outputs"])
    assert 0.9 < worst < 0.99999
    scores = bench.do("evaluate", "classification", {"source": made.key, "model": model.key})
    assert scores.details["examples"] == 32


@pytest.mark.parametrize(
    ("stage", "option"), [("quantize", "nncf_int8"), ("quantize", "onnx_fp16"), ("engine", "openvino")]
)
def test_scales_for_each_channel_and_floats_are_right(bench, exported, row, stage, option):
    onnx, model = exported
    made = bench.step(stage, option, onnx, model, min_cosine=0.99)
    row("depthwise", f"{stage}={option}", made.status, made.error)
    assert made.status == "ok", made.error
