"""Modules that look an answer up, or put it off, would time as nothing: they are no reference."""

import numpy as np
import pytest

MODULES = """
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Remembering(Plain):
    most = None

    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = x.numpy().tobytes()
        if key not in self.known:
            if self.most == len(self.known):
                self.known.clear()
            self.known[key] = super().forward(x)
        return self.known[key]


class RemembersTheLast(Remembering):
    most = 1


class SetsUpOnce(Plain):
    ready = False

    def forward(self, x):
        if not self.ready:
            self.shift, self.ready = torch.ones(3) * 2, True
        return super().forward(x) + self.shift


class Later:
    '''Looks like a tensor, and computes when it is read.'''

    def __init__(self, work):
        self.work, self.shape, self.dtype = work, (1, 3), torch.float32

    def detach(self):
        return self.work()

    def numpy(self):
        return self.work().numpy()


class PutsOff(Plain):
    def forward(self, x):
        return {"now": super().forward(x), "later": Later(lambda: super(PutsOff, self).forward(x))}


def build(name):
    return globals()[name]()
"""


@pytest.fixture
def points(bench):
    return bench.dataset({"x": list(np.random.default_rng(32).normal(size=(40, 8)).astype(np.float32))})


@pytest.mark.parametrize("name", ["Remembering", "RemembersTheLast"])
def test_a_module_that_looks_its_answers_up_is_no_reference(bench, points, row, name):
    model = bench.model(MODULES, points, factory_args={"name": name})
    row("cached", f"model=factory ({name})", model.status, model.error)
    assert model.status == "unstable"
    assert "the model remembers" in model.error


@pytest.mark.parametrize("name", ["Plain", "SetsUpOnce"])
def test_work_that_is_done_once_or_always_is_no_memory(bench, points, name):
    model = bench.model(MODULES, points, factory_args={"name": name})
    assert model.status == "ok", model.error


def test_one_output_that_is_put_off_is_refused_beside_one_that_is_there(bench, points, row):
    model = bench.model(MODULES, points, factory_args={"name": "PutsOff"})
    row("cached", "model=factory (PutsOff)", model.status, model.error)
    assert model.status == "wrong_output"
    assert "output 'later' is a Later, not a tensor" in model.error
