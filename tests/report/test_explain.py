"""Kinds, rules and lines of an explanation, on small made profiles."""

import pytest

from strop.artifact import Manifest
from strop.report.explain import chain_lines, explanation, failure_lines, verdict_lines
from strop.report.profile import KINDS, Side, is_integer, kind_of
from strop.report.reasons import reasons

FACTS = {"runtime": "torch", "version": "2", "threads": 1, "precision": "f32"}


def side(rows, call_s=0.01, format_="torch", facts=None, details=None, **profile):
    """A side whose operators are (type, share) or (type, share, kernel)."""
    made = [{"operator": row[0], "share": row[1], "kernel": row[2] if len(row) > 2 else None} for row in rows]
    chain = [Manifest("1", "model", "factory", {}, {}, format="torch", details=details or {}),
             Manifest("2", "engine", "onnxruntime", {}, {}, format=format_)]  # fmt: skip
    found = {"call_s": call_s, "profiled_call_s": 2 * call_s, "coverage": 0.9, "calls": 5, "cpus": 2,
             "instruction_sets": ["avx2"], "facts": {**FACTS, **(facts or {})}, **profile}  # fmt: skip
    return Side("v", chain, found, made)


EAGER = side(
    [("aten::addmm", 0.6), ("aten::gelu", 0.2), ("aten::native_layer_norm", 0.1), ("outside of operators", 0.1)]
)


def first(variant, reference=EAGER):
    return reasons(variant, reference)[0].text


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "matrix products"), ("aten::mm", "matrix products"), ("FusedGemm", "matrix products"),
        ("DynamicQuantizeMatMul", "matrix products"), ("FullyConnected", "matrix products"),
        ("mkldnn::_linear_pointwise", "matrix products"), ("aten::_int_mm", "matrix products"),
        ("QLinearConv", "convolution"), ("aten::mkldnn_convolution", "convolution"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention and softmax"),
        ("SkipLayerNormalization", "normalization"), ("MVN", "normalization"),
        ("aten::gelu", "activation, elementwise, sums"), ("Relu", "activation, elementwise, sums"),
        ("DynamicQuantizeLinear", "conversion of types and layouts"), ("Reorder", "conversion of types and layouts"),
        ("Convert", "conversion of types and layouts"), ("aten::_to_copy", "conversion of types and layouts"),
        ("aten::copy_", "memory movement"), ("Transpose", "memory movement"), ("aten::expand", "memory movement"),
        ("graph_0_cpp_fused_gelu_0", "generated kernels"), ("TorchDynamo Cache Lookup", "outside of operators"),
        ("SomethingNew", "other"),
    ],
)  # fmt: skip
def test_kind_of_an_operator(operator, kind):
    assert kind_of(operator) == kind
    assert kind in KINDS


def test_integers_are_told_by_type_or_kernel():
    rows = [("MatMulIntegerToFloat", None), ("FullyConnected", "brgemm_avx512_i8"), ("FullyConnected", "jit_gemm_f32")]
    assert [is_integer({"operator": kind, "kernel": kernel}) for kind, kernel in rows] == [True, True, False]


def test_zeros_in_dense_kernels():
    pruned = side([("aten::addmm", 0.6), ("aten::gelu", 0.4)], details={"sparsity": 0.8})
    assert first(pruned).startswith("80 % of the weights are zeros, but aten::addmm are kernels for dense weights")
    cheaper = side([("aten::addmm", 0.2), ("aten::gelu", 0.8)], details={"sparsity": 0.8})
    assert not any("zeros" in reason.text for reason in reasons(cheaper, EAGER))


def test_conversions():
    rows = [("DynamicQuantizeLinear", 0.4), ("MatMulIntegerToFloat", 0.5)]
    quantized = side(rows, facts={"precision": "int8"}, instruction_sets=["avx512_vnni"])
    assert first(quantized).startswith("40 % of a call go into converting types and layouts (DynamicQuantizeLinear)")


def test_integers_without_instructions_and_products_left_in_float():
    rows = [("MatMulIntegerToFloat", 0.6), ("MatMul", 0.3)]
    texts = [reason.text for reason in reasons(side(rows, facts={"precision": "int8"}), EAGER)]
    assert texts[0].startswith("60 % of a call are products of integers, and this CPU has no instructions")
    assert any(text.startswith("33 % of the time of products is still spent in float (MatMul)") for text in texts)
    able = side(rows, facts={"precision": "int8"}, instruction_sets=["avx512_vnni"])
    assert not any("VNNI" in reason.text for reason in reasons(able, EAGER))


def test_threads_precision_and_spinning():
    crowded = side([("MatMul", 1.0)], facts={"threads": 16, "float_precision": "bf16"},
                   details={"spinning": False, "hint": "f32"})  # fmt: skip
    texts = [reason.text for reason in reasons(crowded, EAGER)]
    assert texts[0] == "16 threads share 2 CPUs (device.threads), so that they wait"
    assert any("was to compute in f32, and torch chose bf16" in text for text in texts)
    assert any(text.startswith("engine.spinning=false: 16 threads sleep") for text in texts)


def test_what_torch_compile_costs():
    compiled = side(
        [("aten::addmm", 0.3), ("graph_0_cpp_fused_gelu_0", 0.4), ("TorchDynamo Cache Lookup", 0.3)],
        call_s=0.02,
        format_="torch_compile",
        facts={"graphs": 3},
        details={"graph_breaks": 2, "graphs": 3, "graph_break_reasons": ["print"], "dynamic": False},
    )
    texts = [reason.text for reason in reasons(compiled, EAGER)]
    assert texts[0].startswith("2 graph breaks in 3 graphs")
    assert texts[0].endswith("(print)")
    assert "outside of operators (guards, Python and entering graphs)" in texts[1]
    assert texts[2].startswith("the kernels that the compiler made take 8 ms")
    assert texts[2].endswith("took 3 ms; the longest is graph_0_cpp_fused_gelu_0")
    assert any("3 graphs were compiled for the shapes" in text for text in texts)


def test_the_kind_that_lost_most_is_named_if_no_rule_knows_why():
    slow = side([("Conv", 0.9), ("outside of operators", 0.1)], call_s=0.01)
    assert first(slow).startswith("convolution take 9 ms (Conv), in the reference 0 ms (nothing of the kind)")


def test_nothing_is_blamed_on_an_equal():
    assert reasons(EAGER, EAGER) == []
    assert explanation(EAGER, EAGER)[-1] == "None of the causes that strop knows shows in the profile."


def test_table_adds_up_and_says_what_is_meant():
    lines = explanation(side([("aten::addmm", 0.5), ("outside of operators", 0.5)], call_s=0.02), EAGER)
    (whole,) = [line.split() for line in lines if line.startswith("all ")]
    assert whole == ["all", "10", "20", "+10"]
    assert any(line.startswith("Profiling slows calls") for line in lines)


def test_chain_shows_whatever_an_audit_holds():
    audit = {"warnings": ["weights saturate"], "saturation": {"share": 0.25, "layers": ["a", "b"]}, "none": None}
    step = Manifest("2", "quantize", "x", {}, {}, format="onnx", details={"audit": audit, "nodes": {"MatMul": 2}})
    assert chain_lines([step])[1:] == [
        "  nodes: MatMul 2",
        "  audit:",
        "    warnings:",
        "      weights saturate",
        "    saturation:",
        "      share: 0.25",
        "      layers: a, b",
    ]


def test_verdict_and_failure():
    row = {"variant": "v", "variant_id": "1", "scenario": "single_stream", "batch_size": 1, "threads": 1,
           "device": "cpu", "status": "ok", "error": None, "log": None, "repeat": None, "speedup": 0.8,
           "speedup_low": 0.7, "speedup_high": 0.9, "quality_drop": None}  # fmt: skip
    run = {"variant": "v", "variant_id": "1"}
    assert verdict_lines([row], run) == ["v (single_stream x1): slower than the reference, speedup 0.80 [0.70, 0.90]"]
    failed = {**row, "status": "timeout", "error": "too long", "log": "a.log", "repeat": "strop repeat x/1"}
    assert verdict_lines([failed], run) == [
        "v (single_stream x1): timeout: too long", "  log: a.log", "  repeat: strop repeat x/1"
    ]  # fmt: skip
    assert verdict_lines([], run) == ["v: the study has no row of it yet."]
    broken = Manifest("1", "compile", "x", {}, {}, status="build_failed", error="no", log="b.log", repeat="again")
    assert failure_lines(broken) == ["compile/1 ended as build_failed: no", "  log: b.log", "  repeat: again"]
