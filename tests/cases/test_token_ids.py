"""Ids that the table has no row for: PyTorch and ONNX Runtime raise, OpenVINO reads zeros; strop refuses them first."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

ROWS = 30
MODEL = """
import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.kinds, self.head = nn.Embedding(30, 8), nn.Embedding(2, 8), nn.Linear(8, 3)

    def forward(self, kind, tokens):
        return self.head((self.table(tokens.long()) + self.kinds(kind)).mean(1))


class Clamped(Bag):
    def forward(self, kind, tokens):
        return super().forward(kind, tokens.clamp(0, 29))


class Indexed(Bag):
    def forward(self, kind, tokens):
        return self.head((self.table.weight[tokens] + self.kinds(kind)).mean(1))


def build():
    return Bag()


def build_clamped():
    return Clamped()


def build_indexed():
    return Indexed()
"""


def columns(token=None, kind=None, dtype=np.int32):
    """Return examples of unlike lengths; in the middle of the test rows stands a wrong id."""
    rng = np.random.default_rng(12)
    lengths = rng.integers(4, 12, 40)
    tokens = [rng.integers(0, ROWS, length).astype(dtype) for length in lengths]
    kinds = [rng.integers(0, 2, length) for length in lengths]
    middle = 8 + int(np.argsort(lengths[8:], kind="stable")[14])
    if token is not None:
        tokens[middle][2] = token
    if kind is not None:
        kinds[middle][1] = kind
    return {"kind": kinds, "tokens": tokens}, middle - 8


def bag():
    rng = np.random.default_rng(0)
    weights = {"table": rng.normal(size=(ROWS, 8)).astype(np.float32), "w": rng.normal(size=(8, 3)).astype(np.float32)}
    nodes = [
        ("Cast", ["tokens"], ["ids"], {"to": 7}),
        ("Gather", ["table", "ids"], ["e"], {}),
        ("ReduceMean", ["e"], ["p"], {"axes": [1], "keepdims": 0}),
        ("MatMul", ["p", "w"], ["y"], {}),
    ]
    return graph("bag", nodes, [value("tokens", "int64", "n", "s")], [value("y", "float32", "n", 3)], weights)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"token": ROWS}, "'tokens' holds the id 30, the model's table has 0 to 29"),
        ({"token": -1}, "'tokens' holds the id -1, the model's table has 0 to 29"),
        ({"kind": 2}, "'kind' holds the id 2, the model's table has 0 to 1"),
    ],
)
def test_a_module_with_a_wrong_id_in_one_row_ends_before_anything_is_built(bench, row, wrong, words):
    given, at = columns(**wrong)
    model = bench.model(MODEL, bench.dataset(given))
    row("ids", "model=factory " + str(wrong).strip("{}").replace("'", ""), model.status, model.error)
    assert model.status == "build_failed"
    assert f"test example {at} (row:{at + 8}): {words}" in model.error


def test_rows_of_weights_by_index_are_a_table_too(bench):
    given, row = columns(ROWS, dtype=np.int64)
    model = bench.model(MODEL, bench.dataset(given), factory="build_indexed")
    assert (
        f"test example {row} (row:{row + 8}): 'tokens' holds the id 30, the model's table has -30 to 29" in model.error
    )


def test_a_module_that_limits_its_ids_itself_may_have_any(bench):
    model = bench.model(MODEL, bench.dataset(columns(ROWS)[0]), factory="build_clamped")
    assert model.status == "ok", model.error


def test_ids_in_range_are_no_matter(bench, row):
    model = bench.model(MODEL, bench.dataset(columns()[0]))
    row("ids", "model=factory, ids in range", model.status, model.error)
    assert model.status == "ok", model.error


def test_a_wrong_id_among_the_calibration_rows_is_refused(bench):
    given, _ = columns()
    given["tokens"][3][0] = 1000
    model = bench.model(MODEL, bench.dataset(given))
    assert "calibration example 3 (row:3): 'tokens' holds the id 1000" in model.error


@pytest.mark.parametrize("token", [ROWS, -ROWS - 1])
def test_a_file_with_a_wrong_id_in_one_row_ends_before_anything_is_built(bench, row, token):
    given, at = columns(token, dtype=np.int64)
    model = onnx_model(bench, bag(), bench.dataset({"tokens": given["tokens"]}))
    row("ids", f"model=onnx_file tokens: {token}", model.status, model.error)
    assert model.status == "build_failed"
    assert f"test example {at} (row:{at + 8}): 'tokens' holds the id {token}" in model.error


def test_negative_ids_count_from_the_end_in_a_file(bench, row):
    given, _ = columns(-1, dtype=np.int64)
    model = onnx_model(bench, bag(), bench.dataset({"tokens": given["tokens"]}))
    assert model.status == "ok", model.error
    made = bench.step("engine", "openvino", model, model, min_cosine=0.99999)
    row("ids", "model=onnx_file tokens: -1 engine=openvino", made.status, made.error)
    assert made.status == "ok", made.error
