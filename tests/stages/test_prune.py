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
