"""Dynamic int8 has one scale a call: a row of large values takes the steps away from its neighbours."""

import numpy as np
import pytest

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(20, 32), nn.Linear(32, 3)

    def forward(self, window):
        return self.head(torch.tanh(self.body(window)))


class WithPrice(Net):
    def forward(self, price, window):
        return super().forward(window) + price * 1e-6


def build():
    return Net()


def build_with_price():
    return WithPrice()
"""
BAD = 29  # the row of a saturated sensor


def windows():
    rows = np.random.default_rng(9).normal(size=(40, 20)).astype(np.float32)
    rows[8 + BAD] *= 400
    return rows


def exported(bench, columns, factory="build"):
    model = bench.model(MODEL, bench.dataset({name: list(rows) for name, rows in columns.items()}), factory=factory)
    assert model.status == "ok", model.error
    made = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert made.status == "ok", made.error
    return made, model


def worst(manifest, batch_size):
    """Return the largest relative error of a row among the outputs in batches of this size."""
    return max(entry["worst_row"] for entry in manifest.check["outputs"] if entry["batch_size"] == batch_size)


def test_rows_are_right_alone_and_wrong_beside_an_outlier(bench, row):
    onnx, model = exported(bench, {"window": windows()})
    assert BAD in {at for batch in model.check["rows"] for at in batch}
    made = bench.step("quantize", "ort_int8_dynamic", onnx, model)
    row("coupling", "quantize=ort_int8_dynamic", made.status, made.error)
    assert made.status == "wrong_output"
    assert made.error.startswith("batch 8: ")
    assert worst(made, 1) < 0.2 < 0.9 < worst(made, 8)


def test_static_int8_gives_a_row_the_same_answer_alone_and_in_a_batch(bench, row):
    from strop.examples import Examples
    from strop.runtimes import open_session
    from strop.runtimes.session import run

    onnx, model = exported(bench, {"window": windows()})
    made = bench.step("quantize", "ort_int8_static", onnx, model)
    row("coupling", "quantize=ort_int8_static", made.status, made.error)
    session = open_session(bench.artifact(made), threads=1)
    test = Examples.read(bench.artifact(model).file("examples/test.parquet"))
    together = run(session, test.batch([0, 1, BAD, 2]))["output_0"]
    alone = np.concatenate([run(session, test.batch([at]))["output_0"] for at in (0, 1, BAD, 2)])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("option", ["ort_int4", "onnx_fp16"])
def test_weights_alone_and_half_floats_couple_nothing(bench, row, option):
    onnx, model = exported(bench, {"window": windows()})
    made = bench.step("quantize", option, onnx, model)
    row("coupling", f"quantize={option}", made.status, made.error)
    assert made.status == "ok", made.error


@pytest.mark.parametrize("outlier", [True, False])
def test_an_outlier_is_found_beside_an_input_of_larger_numbers(bench, outlier):
    price = np.random.default_rng(2).uniform(50_000, 90_000, (40, 1)).astype(np.float32)
    rows = windows() if outlier else windows() / np.where(np.arange(40) == 8 + BAD, 400, 1)[:, None].astype(np.float32)
    onnx, model = exported(bench, {"price": price, "window": rows}, "build_with_price")
    made = bench.step("quantize", "ort_int8_dynamic", onnx, model)
    assert made.status == ("wrong_output" if outlier else "ok"), made.error
