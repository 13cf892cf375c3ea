"""Accuracy is counted by rows, on labels that mean something."""

import dataclasses

import numpy as np
import pytest

from strop import check, records
from strop.artifact import Artifact
from strop.check import write_reference
from strop.runtimes.cuda import CudaOptions
from strop.stages import evaluate

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


class OpenedError(Exception):
    """Ends a stage at the moment it opens a session: what follows needs the device."""


def test_what_is_evaluated_and_checked_is_opened_as_it_is_timed(bench, monkeypatch):
    """Quality is of the very session that is timed, its CUDA graph and transfers included."""
    made = evaluated(bench, logits(), None)
    chosen = {"transfers": "within", "cuda_graph": True, "own_stream": True}
    opened = []

    def open_session(_artifact, **how):
        opened.append(how)
        raise OpenedError

    upstream = dict.fromkeys(("source", "model"), made.upstream["model"])
    job = bench.job("evaluate", "classification", upstream, {"batch_size": 4})
    job = dataclasses.replace(job, device={"kind": "cuda", "threads": 3, **chosen})
    draft = Artifact(bench.results / made.upstream["model"]).manifest
    model_job = dataclasses.replace(job, stage="model", id=draft.id)
    for module in (check, evaluate):
        monkeypatch.setattr(module, "open_session", open_session)
    for opens in (
        lambda: evaluate.classification(job, batch_size=4),
        lambda: check.check(model_job, draft, 0.9),
        lambda: write_reference(model_job, draft),
    ):
        with pytest.raises(OpenedError):
            opens()
    assert opened == [{"device": "cuda", "threads": 3, "cuda": CudaOptions(**chosen)}] * 3
