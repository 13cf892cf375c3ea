"""Quantizers quantize, say how much, and their silent failures are rows with a reason."""

import numpy as np
import pytest

from strop.artifact import Artifact
from strop.runtimes import open_session


@pytest.mark.parametrize(
    ("option", "settings"), [("ort_int8_dynamic", {}), ("ort_int8_static", {"op_types": ["MatMul", "Gemm"]})]
)
def test_onnx_becomes_smaller_and_stays_right(text_bench, option, settings):
    made = text_bench.step("quantize", option, text_bench.onnx, text_bench.torch, min_cosine=0.95, **settings)
    assert made.status == "ok", made.error
    assert made.format == "onnx"
    assert made.details["quantized_share"] > 0.5
    assert made.size_bytes < 0.7 * text_bench.onnx.size_bytes
    again = text_bench.step("quantize", option, made, text_bench.torch)
    assert (again.status, again.error) == ("skipped", "the model is quantized already")


def test_operators_that_are_not_there_have_no_effect(text_bench):
    made = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch, op_types=["Conv"])
    assert made.status == "no_effect"
    assert "quantize.op_types" in made.error


def test_nncf_gives_an_openvino_model_in_int8(text_bench):
    made = text_bench.step("quantize", "nncf_int8", text_bench.onnx, text_bench.torch, min_cosine=0.95)
    assert made.status == "ok", made.error
    assert made.details["transformer"] is True
    assert made.details["fake_quantize_nodes"] > 0
    session = open_session(text_bench.artifact(made), threads=1)
    assert session.facts["precision"] == "int8"


@pytest.mark.parametrize("option", ["torchao_int8_dynamic", "bf16"])
def test_torch_modules_keep_their_inputs_and_outputs_in_float32(text_bench, option):
    made = text_bench.step("quantize", option, text_bench.torch, text_bench.torch, min_cosine=0.95)
    assert made.status == "ok", made.error
    assert {"model.json", "weights.safetensors"} <= {file.path for file in made.files}
    assert made.size_bytes < text_bench.torch.size_bytes
    session = open_session(text_bench.artifact(made), threads=1)
    assert session.facts["precision"] == {"torchao_int8_dynamic": "int8", "bf16": "bf16"}[option]
    from strop.examples import Examples
    from strop.runtimes.session import run

    test = Examples.read(text_bench.artifact(text_bench.torch).file("examples/test.parquet"))
    assert run(session, test.batch([0, 1]))["output_0"].dtype == np.float32


def test_nothing_to_quantize_is_said(bench):
    code = "import torch\ndef build():\n    return Net()\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
    code += "        super().__init__()\n        self.w = torch.nn.Parameter(torch.ones(4))\n"
    code += "    def forward(self, x):\n        return x * self.w\n"
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))})
    model = bench.model(code, data)
    made = bench.step("quantize", "torchao_int8_dynamic", model, model)
    assert (made.status, made.error) == ("no_effect", "the model has no linear layer")


def test_changed_bytes_are_refused(text_bench, tmp_path):
    import shutil

    from strop.errors import StageFailure

    copy = tmp_path / "copy"
    shutil.copytree(text_bench.artifact(text_bench.onnx).folder, copy)
    (copy / "model.onnx").write_bytes(b"other")
    with pytest.raises(StageFailure, match="its bytes have changed"):
        open_session(Artifact(copy), threads=1)
