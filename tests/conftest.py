"""Fixtures that many tests share."""

from __future__ import annotations

import os

import numpy as np
import pytest
from digits import make_digits
from hypothesis import settings
from support import TEXT_MODEL, Bench
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("shared_machine", deadline=None)  # a neighbour's burst is no failure
settings.load_profile("shared_machine")


class ByFile(LoadScopeScheduling):
    """Keeps a file's tests in one process, and all of the workflow, which share a study that takes long to run.

    xdist's own `--dist loadgroup` marks groups in the tests' ids, which pytest 9.2 does not let it change.
    """

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return "workflow" if "/workflow/" in file else file


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """The workflow comes first: it takes longest."""
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
