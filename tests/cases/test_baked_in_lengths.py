"""A length that the model's code reads as a Python number: a trace bakes in the example's, and no other is right."""

import numpy as np
import pytest

MODEL = """
import math
import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        fade = math.exp(-1.0 / int(x.shape[1]))  # out of a tracer's sight
        return self.head((torch.tanh(self.body(x)) * fade).sum(1) / float(len(x[0])))


def build():
    return Pool()
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    from support import Bench

    bench = Bench(tmp_path_factory.mktemp("pool"))
    lengths = [9] * 8 + [1, 2, 9, 5] * 6
    rng = np.random.default_rng(15)
    data = bench.dataset({"x": [rng.normal(size=(n, 6)).astype(np.float32) for n in lengths]})
    model = bench.model(MODEL, data)
    assert model.status == "ok", model.error
    return bench, model


def test_it_is_tried_at_lengths_that_are_not_the_examples(pool):
    from strop.examples import Examples

    bench, model = pool
    lengths = Examples.read(bench.artifact(model).file("examples/test.parquet")).lengths()
    assert {int(lengths[row]) for [row] in model.check["rows"]} == {6 * n for n in (1, 2, 5, 9)}  # values


def test_a_trace_is_wrong_at_other_lengths(pool, row):
    bench, model = pool
    made = bench.step("compile", "torchscript", model, model, min_cosine=0.999)
    assert made.status == "wrong_output"
    row("length", "compile=torchscript", made.status, made.error)


@pytest.mark.parametrize(
    ("stage", "option", "status"),
    [
        ("export", "onnx", "export_unsupported"),
        ("compile", "torch_export", "build_failed"),
        ("compile", "aot_inductor", "build_failed"),
    ],
)
def test_exporters_say_which_length_became_a_number(pool, row, stage, option, status):
    bench, model = pool
    made = bench.step(stage, option, model, model, min_cosine=0.999)
    assert made.status == status
    assert "fixed axis 1 of 'x' to the example's 9; the model's code reads this length as a Python number" in made.error
    row("length", f"{stage}={option}", made.status, made.error)


def test_torch_compile_is_right_or_says_that_it_compiles_for_each_length(pool, row):
    bench, model = pool
    made = bench.step("compile", "inductor", model, model, min_cosine=0.999)
    assert made.status in ("ok", "build_failed")
    assert made.status == "ok" or "torch.compile has compiled for 8 shapes, its limit" in made.error
    row("length", "compile=inductor", made.status, made.error)
