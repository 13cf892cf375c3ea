"""Pruning sets the asked share of weights to zero, and says how many."""

import pytest

from strop.runtimes.modules import load_module


def zeros(bench, manifest):
    module = load_module(bench.artifact(manifest))
    return {name: float((p == 0).float().mean()) for name, p in module.named_parameters() if p.ndim == 2}


def test_global_pruning_takes_the_smallest_of_all_layers(text_bench):
    pruned = text_bench.step("prune", "magnitude", text_bench.torch, text_bench.torch, amount=0.3, min_cosine=0.5)
    assert pruned.status == "ok", pruned.error
    assert pruned.details["sparsity"] == pytest.approx(0.3, abs=1e-3)
    assert pruned.details["sparsity_before"] == 0.0
    assert pruned.details["parameters"] == pruned.details["parameters_before"]
    found = zeros(text_bench, pruned)
    assert found["embed.weight"] == 0.0  # an embedding is looked up, not multiplied
    assert found["wide.weight"] != pytest.approx(found["query.weight"], abs=1e-3)
    before, after = (load_module(text_bench.artifact(m)) for m in (text_bench.torch, pruned))
    kept = after.wide.weight != 0
    assert (after.wide.weight[kept] == before.wide.weight[kept]).all()
    assert before.wide.weight[~kept].abs().max() <= after.wide.weight[kept].abs().min()


def test_pruning_by_layer_takes_the_share_of_each(text_bench):
    pruned = text_bench.step(
        "prune", "magnitude", text_bench.torch, text_bench.torch, amount=0.5, scope="layer", min_cosine=0.0
    )
    found = zeros(text_bench, pruned)
    assert all(share == pytest.approx(0.5, abs=0.01) for name, share in found.items() if name != "embed.weight")


def test_pruning_nothing_has_no_effect(text_bench):
    pruned = text_bench.step("prune", "magnitude", text_bench.torch, text_bench.torch, amount=0.0)
    assert pruned.status == "no_effect"
    wrong = text_bench.step("prune", "magnitude", text_bench.torch, text_bench.torch, amount=1.5)
    assert "prune.amount=1.5: a share from 0 to below 1" in wrong.error


def test_two_four_keeps_the_two_largest_of_four_along_the_input(digits_bench):
    pruned = digits_bench.step("prune", "two_four", digits_bench.torch, digits_bench.torch, min_cosine=0.0)
    assert pruned.status == "ok", pruned.error
    assert pruned.details["left"] == ["depthwise.weight", "stem.weight"]  # one channel each to read from
    assert 0.9 < pruned.details["two_four_share"] < 1.0
    before, after = (load_module(digits_bench.artifact(m)) for m in (digits_bench.torch, pruned))
    for name in ("wide", "beside", "inner", "head"):
        old, new = (getattr(module, name).weight.movedim(1, -1).reshape(-1, 4) for module in (before, after))
        kept = new != 0
        assert (kept.sum(1) == 2).all()
        assert (new[kept] == old[kept]).all()
        assert (old.abs().masked_fill(~kept, 9).amin(1) >= old.abs().masked_fill(kept, 0).amax(1)).all()
    assert (after.stem.weight == before.stem.weight).all()


def test_two_four_twice_has_no_effect(digits_bench):
    once = digits_bench.step("prune", "two_four", digits_bench.torch, digits_bench.torch, min_cosine=0.0)
    again = digits_bench.step("prune", "two_four", once, digits_bench.torch, min_cosine=0.0)
    assert (again.status, again.error) == ("no_effect", "all weights are in the 2:4 pattern")


TIED = """
import torch
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.two.weight = self.one.weight
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))
def build():
    return Tied()
"""


def test_a_shared_weight_counts_once(bench):
    import numpy as np

    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))})
    model = bench.model(TIED, data)
    pruned = bench.step("prune", "magnitude", model, model, amount=0.25, min_cosine=0.0)
    assert pruned.details["layers"] == 1
    module = load_module(bench.artifact(pruned))
    assert module.one.weight is module.two.weight
    assert float((module.one.weight == 0).float().mean()) == 0.25
