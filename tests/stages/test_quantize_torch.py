"""torchao's forms keep their promises: bits, files without pickle, and what cannot be quantized stays and is named."""

import numpy as np
import pytest

from strop.runtimes import open_session
from strop.runtimes.modules import QUANTIZED
from strop.stages.__main__ import attempt

ON_CPU = {"torchao_int8_weights": 0.999, "torchao_int4_weights": 0.9, "torchao_fp8_weights": 0.99}


@pytest.mark.parametrize("option", sorted(ON_CPU))
def test_linear_layers_are_quantized_and_come_back_from_the_file(text_bench, option):
    made = text_bench.step("quantize", option, text_bench.torch, text_bench.torch, min_cosine=ON_CPU[option])
    assert made.status == "ok", made.error
    assert made.details["quantized_share"] == 1.0
    assert "kept_in_float" not in made.details
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == QUANTIZED[option]
    sizes = [sum(f.bytes for f in m.files if f.path == "weights.safetensors") for m in (made, text_bench.torch)]
    assert sizes[0] < 0.6 * sizes[1]


def test_they_go_through_the_compiler(text_bench):
    """The fewest bits; `tests/stages/test_compile.py` compiles integer activations, too."""
    made = text_bench.step("quantize", "torchao_int4_weights", text_bench.torch, text_bench.torch)
    compiled = text_bench.step("compile", "inductor", made, text_bench.torch)
    assert compiled.status == "ok", compiled.error
    assert compiled.check["facts"]["precision"] == "int4"


@pytest.mark.parametrize("option", [*sorted(QUANTIZED.keys() - {"torchao_fp8"}), "bf16"])
def test_a_quantized_module_is_not_quantized_again(text_bench, option):
    once = text_bench.step("quantize", "torchao_int8_weights", text_bench.torch, text_bench.torch)
    made = text_bench.step("quantize", option, once, text_bench.torch)
    assert (made.status, made.error) == ("skipped", "the model is quantized already")


NARROW = """
import torch
def build():
    return Net()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(32, 12), torch.nn.Linear(12, 3)
    def forward(self, x):
        return self.head(torch.relu(self.body(x)))
"""


def test_layers_that_no_block_fits_stay_in_float_and_are_named(bench):
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 32)).astype(np.float32))})
    model = bench.model(NARROW, data)
    made = bench.step("quantize", "torchao_int4_weights", model, model, min_cosine=0.5)
    assert made.status == "ok", made.error
    assert (made.details["quantized_share"], made.details["kept_in_float"]) == (0.5, ["head"])
    none = bench.step("quantize", "torchao_int4_weights", model, model, block_size=64)
    assert (none.status, none.error) == (
        "no_effect", "the width of no linear layer is a multiple of quantize.block_size=64",
    )  # fmt: skip


def test_float8_products_are_skipped_without_a_device_that_has_them(text_bench, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    upstream = {"source": text_bench.torch.key, "model": text_bench.torch.key}
    result = attempt(text_bench.job("quantize", "torchao_fp8", upstream, {}, min_cosine=0.9))
    assert (result["status"], result["error"]) == ("skipped", "this PyTorch finds no CUDA device")
