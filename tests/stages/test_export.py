"""Exports keep their axes free, or say that they do not."""

import numpy as np
import pytest

MODELS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
class Loop(Net):
    def forward(self, x):
        total = torch.zeros(x.shape[0], 2)
        for step in range(x.shape[1]):
            total = total + self.fc(x[:, step]) * (step + 1)
        return total
class Branch(Net):
    def forward(self, x):
        out = self.fc(x).sum(1)
        return out if float(x.sum()) > 0 else -out
def loop():
    return Loop()
def branch():
    return Branch()
"""


@pytest.fixture
def sequences(bench):
    rng = np.random.default_rng(0)
    return bench.dataset({"x": [rng.normal(size=(n, 4)).astype(np.float32) for n in rng.integers(2, 9, 30)]})


def test_batch_and_sequence_stay_free(text_bench):
    assert [tensor.shape for tensor in text_bench.onnx.inputs] == [("batch", "sequence")] * 2
    import onnx

    graph = onnx.load(str(text_bench.artifact(text_bench.onnx).file("model.onnx"))).graph
    assert all(dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim)
    sizes = {entry["batch_size"]: entry["cosine"] for entry in text_bench.onnx.check["outputs"]}
    assert sizes.keys() == {1, 2, 4, 8}
    assert min(sizes.values()) > 0.9999


def test_a_length_that_is_baked_in_is_a_finding(bench, sequences):
    model = bench.model(MODELS, sequences, factory="loop")
    assert model.status == "ok", model.error
    exported = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert exported.status in ("export_unsupported", "wrong_output")
    assert exported.error


def test_a_branch_on_values_is_a_finding(bench, sequences):
    model = bench.model(MODELS, sequences, factory="branch")
    exported = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert exported.status == "export_unsupported"
    assert exported.error.startswith("the model's code decides by a value inside of a tensor")


def test_traced_code_is_checked_at_other_lengths(bench, sequences):
    model = bench.model(MODELS, sequences, factory="loop")
    traced = bench.step("compile", "torchscript", model, model, min_cosine=0.999)
    assert traced.status == "wrong_output"
    assert "batch 1" in traced.error


def test_optimum_refuses_what_it_does_not_know(text_bench):
    exported = text_bench.step("export", "optimum", text_bench.torch, text_bench.torch)
    assert exported.status == "export_unsupported"
    assert exported.error.endswith("use export=onnx")
