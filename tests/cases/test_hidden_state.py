"""A module whose answer depends on earlier calls is no reference: no export of it could be right or wrong."""

import numpy as np
import pytest

MODULES = """
import torch
from torch import nn


class Denoise(nn.Module):
    '''Follows the noise floor in a buffer, as filters of sound do.'''

    def __init__(self):
        super().__init__()
        self.register_buffer("floor", torch.zeros(8))
        self.head = nn.Linear(8, 3)

    def forward(self, frame):
        self.floor = 0.7 * self.floor + 0.3 * frame.abs().mean(0)
        return self.head(torch.relu(frame - self.floor))


class InPlace(Denoise):
    def forward(self, frame):
        self.floor.mul_(0.7).add_(0.3 * frame.abs().mean(0))
        return self.head(torch.relu(frame - self.floor))


class Previous(Denoise):
    '''Answers by the change since the call before.'''

    def forward(self, frame):
        change, self.floor = frame - self.floor, frame.mean(0)
        return self.head(change)


class Training(Denoise):
    '''Batch normalization that was left in training.'''

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, frame):
        self.norm.train()
        self.norm(frame) if len(frame) > 1 else frame
        self.norm.eval()
        return self.head(self.norm(frame))


class ChangesItsInput(Denoise):
    def forward(self, frame):
        return self.head(frame.mul_(2))


def build(name):
    return globals()[name]()
"""


@pytest.fixture
def frames(bench):
    rows = np.random.default_rng(17).normal(size=(40, 8)) + 0.5
    return bench.dataset({"frame": list(rows.astype(np.float32))})


@pytest.mark.parametrize("name", ["Denoise", "InPlace", "Previous", "Training"])
def test_state_ends_as_unstable_with_nothing_compared(bench, frames, row, name):
    model = bench.model(MODULES, frames, factory_args={"name": name})
    row("state", f"model=factory ({name})", model.status, model.error)
    assert model.status == "unstable"
    assert "the reference is stateful" in model.error
    assert "nothing can be compared with it" in model.error
    assert "outputs" not in model.check  # and what follows is `blocked`


def test_a_module_that_changes_its_input_gets_a_fresh_one_each_time(bench, frames, row):
    model = bench.model(MODULES, frames, factory_args={"name": "ChangesItsInput"})
    row("state", "model=factory (ChangesItsInput)", model.status, model.error)
    assert model.status == "ok", model.error
    made = bench.step("export", "onnx", model, model, min_cosine=0.999)
    row("state", "model=factory (ChangesItsInput) export=onnx", made.status, made.error)
    assert made.status in ("ok", "export_unsupported", "wrong_output")
