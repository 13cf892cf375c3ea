"""Operators' times of every format that this machine executes."""

import re

import numpy as np
import pytest

from strop import records
from strop.errors import StageFailure
from strop.report.profile import Side
from strop.report.reasons import reasons
from strop.runtimes.profiling import Operator, Profiled
from strop.runtimes.profiling.onnxruntime import operators_of, profile
from strop.stages.profile import OUTSIDE, table

PRODUCTS = {
    "torch": "aten::addmm", "torchscript": "aten::addmm", "torch_export": "aten::addmm", "torch_compile": "aten::addmm",
    "aot_inductor": OUTSIDE, "onnx": "MatMul", "ort": "MatMul", "openvino": "FullyConnected",
}  # fmt: skip
CALLS = 10


def built(bench, format_):
    if format_ in ("torch", "onnx"):
        return getattr(bench, format_)
    stage, option, source = {
        "torchscript": ("compile", "torchscript", bench.torch),
        "torch_export": ("compile", "torch_export", bench.torch),
        "torch_compile": ("compile", "inductor", bench.torch),
        "aot_inductor": ("compile", "aot_inductor", bench.torch),
        "ort": ("engine", "onnxruntime", bench.onnx),
        "openvino": ("engine", "openvino", bench.onnx),
    }[format_]
    return bench.step(stage, option, source, bench.torch)


def profiled(bench, source, **settings):
    made = bench.step("profile", "operators", source, bench.torch, **{"calls": CALLS, "batch_size": 2, **settings})
    assert made.status == "ok", made.error
    path = bench.artifact(made).file("operators.parquet")
    return made, records.read("operators", path).to_pylist()


@pytest.mark.parametrize("format_", PRODUCTS)
def test_each_format_tells_its_operators(text_bench, format_):
    made, rows = profiled(text_bench, built(text_bench, format_))
    assert PRODUCTS[format_] in {row["operator"] for row in rows}
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert rows[-1]["operator"] == OUTSIDE
    found = made.details
    assert found["call_s"] > 0
    assert found["profiled_call_s"] > 0
    inside = sum(row["seconds_per_call"] for row in rows[:-1])
    assert found["coverage"] == pytest.approx(inside / found["profiled_call_s"])
    assert found["facts"]["threads"] == 1


def test_a_kernel_of_inductor_reports_itself(text_bench):
    _, rows = profiled(text_bench, built(text_bench, "torch_compile"))
    assert any("cpp_fused" in row["operator"] for row in rows)


def test_what_is_quantized_shows(text_bench):
    quantized = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch)
    _, rows = profiled(text_bench, text_bench.step("engine", "onnxruntime", quantized, text_bench.torch))
    names = {row["operator"] for row in rows}
    assert names & {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"}
    assert names & {"MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger"}
    product = next(row for row in rows if row["operator"] in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"))
    assert product["kernel"] == "CPUExecutionProvider"
    assert "float" in product["shapes"]


def test_a_node_of_a_branch_is_not_counted_twice():
    def event(name, start, duration, kind=None, thread=1):
        return {"name": name, "ts": start, "dur": duration, "tid": thread, "args": {"op_name": kind, "provider": "p"}}

    events = [
        event("a_kernel_time", 1, 90, "MatMul"),  # of a call that warms up
        event("model_run", 0, 100),
        event("model_run", 200, 100),
        event("if_kernel_time", 210, 80, "If"),
        event("inner_kernel_time", 220, 60, "MatMul"),
        event("beside_kernel_time", 220, 20, "Relu", thread=2),
    ]
    found = {item.name: round(item.seconds * 1e6) for item in operators_of(events, 1)}
    assert found == {"if": 20, "inner": 60, "beside": 20}


def test_operators_side_by_side_may_take_more_than_the_call():
    rows = table(Profiled([Operator("A", 3.0, 2), Operator("B", 1.0, 2)], 2.0, {}), 2)
    assert [(row["operator"], row["calls"], row["share"]) for row in rows] == [
        ("A", 1.0, 0.75), ("B", 1.0, 0.25), (OUTSIDE, 1.0, 0.0)
    ]  # fmt: skip


def test_onnx_runtime_tells_nothing_on_a_device(text_bench):
    with pytest.raises(StageFailure, match="launching"):
        profile(text_bench.artifact(text_bench.onnx), [], 1, threads=1, device="cuda", cuda=None)


def side(bench, *chain):
    """The side of an explanation that a chain's last artifact is; a call takes 1 s, so that shares alone decide."""
    made, rows = profiled(bench, chain[-1])
    return Side("v", chain, {**made.details, "call_s": 1.0}, rows)


def test_pruned_weights_are_blamed_on_dense_kernels(text_bench):
    pruned = text_bench.step("prune", "magnitude", text_bench.torch, text_bench.torch, amount=0.9, min_cosine=-1)
    assert pruned.details["sparsity"] == pytest.approx(0.9, abs=0.01)
    ours = side(text_bench, text_bench.torch, pruned)
    texts = [reason.text for reason in reasons(ours, ours)]  # beside itself: no neighbour's burst decides
    assert any(text.startswith("90 % of the weights are zeros") and "aten::addmm" in text for text in texts), texts


def test_quantizing_while_calls_are_made_has_its_share(text_bench):
    quantized = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch)
    ours, theirs = (side(text_bench, text_bench.torch, artifact) for artifact in (quantized, text_bench.onnx))
    kind = "conversion of types and layouts"
    assert {row["operator"] for row in ours.of(kind)} - {row["operator"] for row in theirs.of(kind)}
    assert ours.share(kind) > 0


BROKEN = """
import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def build():
    return Broken()
"""


def test_graph_breaks_are_blamed(bench):
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32))})
    bench.torch = bench.model(BROKEN, data)
    compiled = bench.step("compile", "inductor", bench.torch, bench.torch)
    assert compiled.status == "ok", compiled.error
    texts = [reason.text for reason in reasons(side(bench, bench.torch, compiled), side(bench, bench.torch))]
    assert any(re.match(r"\d graph breaks? in \d graphs", text) and "graph_break" in text for text in texts), texts
