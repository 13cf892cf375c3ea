"""One output row of huge weights: a scale that it shares ruins the other output, which a good one must not hide."""

import numpy as np
import pytest

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 5)
        with torch.no_grad():
            self.head.weight[4] *= 3000

    def forward(self, x):
        out = self.head(torch.relu(self.body(x)))
        return {"classes": out[:, :4], "score": out[:, 4:]}


def build():
    return Net()
"""


@pytest.fixture(scope="module")
def ranker(tmp_path_factory):
    from support import Bench

    bench = Bench(tmp_path_factory.mktemp("ranker"))
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32))})
    model = bench.model(MODEL, data)
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert onnx.status == "ok", onnx.error
    return bench, onnx, model


@pytest.mark.parametrize(
    ("option", "per_channel"), [("ort_int8_dynamic", False), ("ort_int8_static", False), ("ort_int8_static", True)]
)
def test_outputs_are_judged_one_by_one(ranker, row, option, per_channel):
    """Static int8 has one range for all that the head gives, so a scale for each channel does not save it."""
    bench, onnx, model = ranker
    made = bench.step("quantize", option, onnx, model, per_channel=per_channel)
    row("outlier row", f"quantize={option} quantize.per_channel={per_channel}".lower(), made.status, made.error)
    assert made.status == "wrong_output"
    assert "output 'classes'" in made.error
    score = [entry["cosine"] for entry in made.check["outputs"] if entry["output"] == "score"]
    assert min(score) > 0.95


@pytest.mark.parametrize("option", ["ort_int8_dynamic", "ort_int4", "ort_int8_weights", "nncf_int8", "onnx_fp16"])
def test_scales_that_are_not_shared_keep_both_outputs(ranker, row, option):
    bench, onnx, model = ranker
    made = bench.step("quantize", option, onnx, model)
    row("outlier row", f"quantize={option}", made.status, made.error)
    assert made.status == "ok", made.error
