"""Accuracy is counted by rows, on labels that mean something."""

import numpy as np
import pytest

from strop import records

IDENTITY = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
    def forward(self, x):
        return x * self.scale
def build():
    return Net()
"""


def logits(rows=30, classes=3, seed=0):
    return list(np.random.default_rng(seed).normal(size=(rows, classes)).astype(np.float32))


def evaluated(bench, x, labels, **settings):
    data = bench.dataset({"x": x}, labels, calibration=0)
    model = bench.model(IDENTITY, data)
    assert model.status == "ok", model.error
    return bench.do("evaluate", "classification", {"source": model.key, "model": model.key}, **settings)


def test_rows_are_counted_and_unlabelled_ones_left_out(bench):
    x = logits()
    labels = [int(row.argmax()) for row in x]
    labels[0] = (labels[0] + 1) % 3
    labels[1], labels[2] = -100, -1
    made = evaluated(bench, x, labels, batch_size=7)
    assert made.details == {"metric": "accuracy", "quality": pytest.approx(27 / 28), "examples": 28, "ignored": 2}
    table = records.read("predictions", bench.results / made.key / "predictions.parquet")
    assert table["prediction"].to_pylist() == [int(row.argmax()) for row in x]
    assert table["label"].to_pylist()[:3] == [labels[0], None, None]


def test_a_label_that_is_no_class_names_its_row(bench):
    labels = [0] * 30
    labels[4] = 7
    made = evaluated(bench, logits(), labels)
    assert made.status != "ok"
    assert made.error == "test example row:4: label 7, but the model has 3 classes"


def test_without_labels_there_are_predictions_only(bench):
    made = evaluated(bench, logits(), None)
    assert made.details == {"metric": "accuracy", "quality": None, "examples": 0, "ignored": 30}


def test_outputs_that_are_no_logits_are_refused(bench):
    made = evaluated(bench, [row.reshape(1, 3) for row in logits()], None)
    assert "logits of shape (batch, classes) are needed" in made.error
