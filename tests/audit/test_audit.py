"""The audit says what really became of a model: what is integer, what is float and why, what grew and what did not."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.audit.verdict import no_effect, warnings
from strop.report.audits import cells, shares

FLOAT = {"f32": 1.0}


def audited(bench, stage, option, source=None, **settings):
    made = bench.step(stage, option, source or bench.onnx, bench.torch, min_cosine=0.3, **settings)
    assert made.status == "ok", made.error
    return made.details["audit"]


def test_a_model_and_its_export_have_the_same_weights_and_the_same_work(text_bench):
    model, exported = (manifest.details["audit"] for manifest in (text_bench.torch, text_bench.onnx))
    assert model["weights"] == exported["weights"] == model["work"] == exported["work"] == FLOAT
    assert model["parameters"] == exported["parameters"] == exported["parameters_before"]
    assert model["macs"] == exported["macs"] == exported["macs_before"]


def test_work_is_counted_by_hand(text_bench):
    """Six linear layers; scores and their use; on one example whose length is the middle of those that are checked."""
    found = text_bench.torch.details["audit"]
    tokens = [n for n in range(3, 21) if found["macs"] == n * 32 * 32 * 3 + 2 * n * n * 32 + 2 * n * 32 * 128 + 96]
    assert len(tokens) == 1


def test_fused_attention_is_work_as_any_other(bench):
    """Two products of 5 x 4 by 4 x 5 and 5 x 5 by 5 x 4."""
    code = """
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])


def build():
    return Attention()
"""
    rng = np.random.default_rng(0)
    model = bench.model(code, bench.dataset({"x": [rng.normal(size=(5, 4)).astype(np.float32) for _ in range(20)]}))
    assert model.status == "ok", model.error
    exported = bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert model.details["audit"]["macs"] == exported.details["audit"]["macs"] == 2 * 5 * 5 * 4


@pytest.mark.parametrize("option", ["torchao_int8_dynamic", "ort_int8_dynamic"])
def test_attention_stays_in_float_where_activations_are_quantized_at_run_time(text_bench, option):
    found = audited(text_bench, "quantize", option, text_bench.torch if "torchao" in option else None)
    assert found["weights"]["int8"] > 0.85
    assert 0.9 < found["work"]["int8"] < 1
    assert {row["reason"] for row in found["left_in_float"]} == {"neither factor is a weight"}
    assert sum(row["work"] for row in found["left_in_float"]) == pytest.approx(found["work"]["f32"])
    assert found["macs"] == found["macs_before"]


@pytest.mark.parametrize("option", ["ort_int8_static", "nncf_int8"])
def test_ranges_from_examples_make_all_products_integer(text_bench, option):
    found = audited(text_bench, "quantize", option)
    assert found["work"] == {"int8": 1.0}
    assert found["left_in_float"] == []
    assert found["moves_added"] > 10


def test_weights_alone_leave_the_work_in_float_and_it_is_said(text_bench):
    found = audited(text_bench, "quantize", "ort_int4")
    assert found["weights"]["int4"] > 0.85
    assert found["work"] == FLOAT
    assert "only its weights are quantized" in {row["reason"] for row in found["left_in_float"]}
    assert audited(text_bench, "quantize", "ort_int4", accuracy_level="int8")["work"]["int8"] > 0.9


def test_half_floats_are_seen_in_weights_and_work(text_bench):
    assert audited(text_bench, "quantize", "onnx_fp16")["work"] == {"f16": 1.0}
    found = audited(text_bench, "quantize", "bf16", text_bench.torch)
    assert (found["weights"], found["work"]) == ({"bf16": 1.0}, {"bf16": 1.0})


def test_what_was_not_to_be_quantized_has_its_reason(digits_bench, text_bench):
    exported = digits_bench.step("export", "onnx", digits_bench.torch, digits_bench.torch, min_cosine=0.999)
    made = digits_bench.step("quantize", "ort_int8_static", exported, digits_bench.torch, op_types=["Conv"])
    assert made.status == "ok", made.error
    (row,) = made.details["audit"]["left_in_float"]
    assert (row["operator"], row["reason"]) == ("Gemm", "quantize.op_types leaves Gemm out")
    kept = audited(text_bench, "quantize", "ort_int8_static", keep_float=["*MatMul*"])
    assert "kept in float on purpose" in {row["reason"] for row in kept["left_in_float"]}


def test_zeros_are_counted_through_export_and_engine(digits_bench):
    pruned = digits_bench.step("prune", "magnitude", digits_bench.torch, digits_bench.torch, amount=0.7, min_cosine=0)
    exported = digits_bench.step("export", "onnx", pruned, digits_bench.torch, min_cosine=0)
    built = digits_bench.step("engine", "openvino", exported, digits_bench.torch, min_cosine=0)
    for made in (pruned, exported, built):
        assert made.details["audit"]["sparsity"] == pytest.approx(0.7, abs=0.01)
        assert made.details["audit"]["warnings"] == []


def test_the_two_four_pattern_survives_the_export(digits_bench):
    pruned = digits_bench.step("prune", "two_four", digits_bench.torch, digits_bench.torch, min_cosine=0)
    found = pruned.details["audit"]
    exported = digits_bench.step("export", "onnx", pruned, digits_bench.torch, min_cosine=0)
    assert exported.details["audit"]["two_four"] == pytest.approx(found["two_four"])
    assert found["two_four"] > digits_bench.torch.details["audit"]["two_four"]
    warned = found["warnings"]
    assert (found["two_four"] > 0.99) == (warned == [])


def test_removed_channels_are_fewer_weights_and_less_work(digits_bench):
    pruned = digits_bench.step("prune", "structured", digits_bench.torch, digits_bench.torch, amount=0.3, min_cosine=0)
    found = pruned.details["audit"]
    assert found["parameters"] < found["parameters_before"]
    assert found["macs"] < found["macs_before"]


def test_a_step_that_changes_no_precision_has_no_effect(bench):
    """Bfloat16 of a module that has no float weight at all."""
    code = """
import torch
from torch import nn


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([3, 1, 2, 0]))

    def forward(self, ids):
        return torch.nn.functional.one_hot(self.order[ids], 4).float().sum(1)


def build():
    return Table()
"""
    rng = np.random.default_rng(0)
    data = bench.dataset({"ids": [rng.integers(0, 4, 5) for _ in range(20)]})
    model = bench.model(code, data)
    made = bench.step("quantize", "bf16", model, model)
    assert (made.status, made.error) == (
        "no_effect",
        "no weight is kept, and no product is computed, in another precision than before",
    )


def test_branches_are_seen_though_their_work_is_not_known(bench):
    """Products of an If's branches have weights; how often they work depends on the data."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(8, 8)).astype(np.float32) for name in ("a", "b")}
    arms = {
        f"{arm}_branch": graph(arm, [("MatMul", ["x", name], [f"y_{name}"], {"name": arm})], [],
                               [value(f"y_{name}", "float32", None, 8)], {name: weights[name]})
        for arm, name in (("then", "a"), ("else", "b"))
    }  # fmt: skip
    nodes = [
        ("ReduceSum", ["x"], ["sum"], {"keepdims": 0}),
        ("Greater", ["sum", "zero"], ["choice"], {}),
        ("If", ["choice"], ["y"], arms),
    ]
    main = graph("branches", nodes, [value("x", "float32", "n", 8)], [value("y", "float32", "n", 8)],
                 {"zero": np.float32(0)})  # fmt: skip
    model = onnx_model(bench, main, bench.dataset({"x": list(rng.normal(size=(40, 8)).astype(np.float32))}))
    assert model.status == "ok", model.error
    found = model.details["audit"]
    assert (found["parameters"], found["products"], found["work"]) == (128, 2, None)
    made = bench.step("quantize", "ort_int8_dynamic", model, model, min_cosine=0.3)
    assert made.details["audit"]["weights"]["int8"] == 1.0


def seen(**changes):
    return {"parameters": 10, "weights": FLOAT, "work": FLOAT, "sparsity": 0.0, "two_four": 0.0, "size_bytes": 10,
            "size_expected_bytes": 10, "left_in_float": []} | changes  # fmt: skip


def test_a_verdict_is_by_what_the_stage_is_for():
    assert no_effect("quantize", seen(), seen()) is not None
    assert no_effect("quantize", seen(), seen(weights={"int8": 1.0})) is None
    assert no_effect("prune", seen(), seen()) is not None
    assert no_effect("prune", seen(), seen(sparsity=0.1)) is None
    assert no_effect("prune", seen(), seen(parameters=9)) is None
    assert no_effect("compile", seen(), seen()) is None


def test_warnings_name_what_was_asked_for_and_is_not_there():
    assert warnings(seen(sparsity=0.5), "prune", {"amount": 0.5}) == []
    (fewer,) = warnings(seen(sparsity=0.4), "prune", {"amount": 0.5})
    assert "40.0% of the products' weights are zeros, 50.0% were asked for" in fewer
    (pattern,) = warnings(seen(two_four=0.25), "prune", {})
    assert pattern.startswith("25% of the products' weights are in the 2:4 pattern")
    rows = [{"operator": "Gemm", "count": 3, "work": 0.8, "reason": "not known"}]
    (work,) = warnings(seen(work={"f32": 0.8, "int8": 0.2}, left_in_float=rows), "quantize", {})
    assert work == "80% of the work of matrix products and convolutions stays in float: 3 Gemm (not known)"
    (size,) = warnings(seen(size_bytes=2**22, size_expected_bytes=2**20), "quantize", {})
    assert size == "its files have 4.00 MiB, its weights in their precision take 1.00 MiB"


def test_a_small_share_is_never_shown_as_nothing(text_bench):
    assert shares({"int8": 0.99999, "f32": 0.00001}) == "100 % int8, 0.1 % f32"
    shown = cells(audited(text_bench, "quantize", "ort_int8_dynamic"))
    assert shown["left_in_float"] == "2 MatMul: neither factor is a weight"
    assert shown["work"].startswith("97 % int8")
