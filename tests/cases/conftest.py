"""`--write-cases FILE` writes a page of what strop answers in the cases: the rows that tests record with `row`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CASES = {  # key -> what it is, and a public report of its kind, below https://github.com/
    "depthwise": ("One depthwise channel with huge weights", "microsoft/onnxruntime/issues/15888"),
    "outlier row": ("One output row with huge weights", "microsoft/onnxruntime/issues/11286"),
    "mask": ("An attention mask of the smallest float", "microsoft/Olive/pull/1597"),
    "large features": ("Features and constants beyond float16", "microsoft/onnxconverter-common/issues/295"),
    "branches": ("Weights in the branches of an `If`", "microsoft/onnxruntime/issues/8488"),
    "coupling": ("A row of outliers in a batch", "microsoft/onnxruntime/issues/8625"),
    "gemm": ("Layers that are all `Gemm`", "microsoft/onnxruntime-genai/issues/1271"),
    "ids": ("Token ids outside of the table", "openvinotoolkit/openvino/issues/35687"),
    "length": ("A length baked in as a Python number", "pytorch/pytorch/issues/122321"),
    "state": ("A module with hidden state", "pytorch/pytorch/issues/140539"),
    "side-car": ("External weights moved or cut off", "onnx/onnx/issues/3157"),
    "empty": ("Empty inputs, scalars, outputs of any length", "microsoft/onnxruntime/issues/20375"),
    "no calibration": ("Calibration examples that hold nothing", "openvinotoolkit/nncf/pull/2230"),
    "bfloat16": ("OpenVINO computes in bfloat16 unasked", "openvinotoolkit/openvino/issues/27795"),
    "quantized": ("A model that its author quantized", "microsoft/onnxruntime/pull/9869"),
    "texts": ("A model of texts", "onnx/sklearn-onnx/issues/125"),
    "cached": ("Modules that look up or put off their answers", "promptfoo/promptfoo/issues/10595"),
    "labels": ("Labels out of range, test rows that calibrate", "intel/neural-compressor/issues/6"),
    "values": ("Values and folders as people write them", "hydra-ecosystem/hydra/issues/2599"),
    "threads": ("More threads than CPUs", "microsoft/onnxruntime/issues/29510"),
}
PAGE = """# Reported cases

Users of inference libraries reported inputs on which these give wrong numbers without a word. Here are small inputs of
the same kinds, and the row that strop gives each option: the right result, or a status and its reason. `make cases`
(`python -m pytest tests/cases --write-cases docs/cases.md`) runs them all and writes this page; figures that depend on
the machine are left out (`…`), and "right" says whether the test passed that knows what is right.
`planned` and `refused` (exit code 2, one line) are answers of the plan, and `noisy` is the column of a measurement.

| case | option | row | right |
|---|---|---|---|
"""
FIGURE = re.compile(
    r"(?<!floor )(?<!allowed )(?<![\w.`'])-?\d+\.\d+(e[+-]?\d+)?|(?<=reference's is )-?\d\S*(?=,)|(?<=kernel for )\w+"
)


def pytest_addoption(parser):
    parser.addoption("--write-cases", metavar="FILE", help="write the page of the reported cases")


@pytest.fixture
def row(record_property):
    """Record what strop answers: `row(case, option, status, reason)`, after the test has looked at it or before."""

    def record(case: str, option: str, status: str, reason: str | None = None) -> None:
        assert case in CASES
        record_property("case", (case, option, status, reason or ""))

    return record


def pytest_terminal_summary(terminalreporter, config):
    """Write the page, if asked to."""
    target = config.getoption("--write-cases", default=None)
    if target is None:
        return
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    found = [
        (*value, report.passed) for report in reports if report.when == "call"
        for name, value in report.user_properties if name == "case"
    ]  # fmt: skip
    order = list(CASES)
    found.sort(key=lambda item: (order.index(item[0]), item[1]))
    Path(target).write_text(PAGE + "".join(_line(*item) for item in found), encoding="utf-8")
    terminalreporter.write_line(f"{len(found)} rows of {len({item[0] for item in found})} cases in {target}")


def _line(case: str, option: str, status: str, reason: str, right: bool) -> str:
    title, report = CASES[case]
    words = FIGURE.sub("…", reason).replace("|", "\\|")
    words = words if len(words) <= 200 else words[:199] + "…"
    shown = f"`{status}`" + (f": {words}" if words else "")
    return f"| [{title}](https://github.com/{report}) | {option} | {shown} | {'yes' if right else 'NO'} |\n"
