"""Fixtures that many tests share."""

from __future__ import annotations

import os

import numpy as np
import pytest
from digits import make_digits
from hypothesis import settings
from support import TEXT_MODEL, Bench

settings.register_profile("shared_machine", deadline=None)  # a neighbour's burst is no failure
settings.load_profile("shared_machine")


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items):
    """Keep a file's tests in one process, and all of the workflow, which come first: they take longest."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group("workflow" if folder == "workflow" else item.path.stem))
    items.sort(key=lambda item: item.path.parent.name != "workflow")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    """Tests see no tracking server and no failure policy of whoever runs them."""
    for name in ("MLFLOW_TRACKING_URI", "STROP_ON_FAILURE", "STROP_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def text_bench(tmp_path_factory):
    """A small transformer-like classifier of token ids of unlike lengths, exported to ONNX, for all tests to read."""
    made = Bench(tmp_path_factory.mktemp("text"))
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 20, 40)
    ids = [rng.integers(1, 50, length).astype(np.int64) for length in lengths]
    mask = [np.ones_like(row) for row in ids]
    made.data = made.dataset({"input_ids": ids, "attention_mask": mask}, rng.integers(0, 3, 40))
    made.torch = made.model(TEXT_MODEL, made.data)
    assert made.torch.status == "ok", made.torch.error
    made.onnx = made.step("export", "onnx", made.torch, made.torch, min_cosine=0.999)
    assert made.onnx.status == "ok", made.onnx.error
    return made


@pytest.fixture(scope="session")
def digits_bench(tmp_path_factory):
    """A trained network of convolutions with its train split, for all tests to read."""
    return make_digits(tmp_path_factory.mktemp("digits"))
