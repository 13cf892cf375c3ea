"""Rows say what was measured, or which step failed first and why; quality is paired by example."""

import numpy as np
import pytest

from strop import records
from strop.artifact import File, Manifest, write_manifest
from strop.errors import StropError
from strop.stages.aggregate import aggregate, run_row

CHAIN = ["model/m", "quantize/q", "engine/e"]


@pytest.fixture
def run():
    return {
        "run_id": "b", "variant": "int8", "variant_id": "v", "is_reference": False, "chain": CHAIN,
        "evaluate": "evaluate/int8", "reference_evaluate": "evaluate/eager", "benchmark": "benchmark/b",
        "track": "track/t", "scenario": "single_stream", "batch_size": 1, "device": "cpu", "threads": 1,
    }  # fmt: skip


def step(results, key, **made):
    stage, _, identity = key.partition("/")
    write_manifest(Manifest(identity, stage, "x", {}, {}, **made), results / key)


def predictions(results, key, scores, ids=None):
    rows = [
        {"example_id": name, "label": 1, "prediction": int(score), "score": float(score)}
        for name, score in zip(ids or [f"e{n:04}" for n in range(len(scores))], scores, strict=True)
    ]
    records.write("predictions", rows, results / key / "predictions.parquet")
    details = {"metric": "accuracy", "quality": float(np.mean(scores)), "examples": len(scores)}
    step(results, key, details=details)


def measured(results):
    files = (File("model.onnx", 100, "0"), File("model.onnx_data", 900, "0"))
    step(results, "model/m", seconds=50.0)
    step(results, "quantize/q", seconds=2.0)
    step(results, "engine/e", seconds=3.0, files=files)
    step(results, "benchmark/b", details={"speedup": 2.0, "speedup_low": 1.9, "speedup_high": float("nan"), "calls": 9})
    step(results, "track/t", details={"mlflow_run_id": "r"})


def test_a_measured_run_has_all_its_numbers(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1] * 90 + [0] * 10)
    predictions(tmp_path, "evaluate/int8", [1] * 88 + [0] * 12)
    row = run_row(run, tmp_path, "study")
    assert (row["status"], row["speedup"], row["calls"], row["mlflow_run_id"]) == ("ok", 2.0, 9, "r")
    assert row["speedup_high"] is None  # not a number is no number
    assert row["size_bytes"] == 1000  # with the side-car
    assert row["build_s"] == 5.0  # everyone needs the model
    assert row["artifact"] == "engine/e"
    assert row["quality"] == pytest.approx(0.88)
    assert row["quality_drop"] == pytest.approx(0.02)
    assert row["quality_drop_low"] < 0.02 < row["quality_drop_high"]
    assert row["fidelity"] == pytest.approx(0.98)


def test_quality_is_paired_by_example_whatever_the_order(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1, 0, 1, 1], ids=list("abcd"))
    predictions(tmp_path, "evaluate/int8", [1, 1, 1, 0], ids=list("dcab"))
    row = run_row(run, tmp_path, "study")
    assert (row["quality_drop"], row["fidelity"]) == (0.0, 1.0)
    predictions(tmp_path, "evaluate/int8", [1, 1, 1, 0], ids=list("abce"))
    with pytest.raises(StropError, match="other examples than the reference's evaluate/eager"):
        run_row(run, tmp_path, "study")


def test_the_reference_has_no_drop_at_all(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1, 0, 1])
    row = run_row({**run, "evaluate": "evaluate/eager", "is_reference": True}, tmp_path, "study")
    assert (row["quality_drop"], row["quality_drop_low"], row["quality_drop_high"], row["fidelity"]) == (0, 0, 0, 1)


def test_the_first_failure_is_the_rows_status(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1, 0, 1])
    failure = {"status": "crashed", "error": "killed", "log": "q.log", "repeat": "strop repeat quantize/q"}
    step(tmp_path, "quantize/q", **failure)
    root = {"root": {"step": "quantize/q", "status": "crashed", "error": "killed"}}
    for key in ("engine/e", "evaluate/int8", "benchmark/b"):
        step(tmp_path, key, status="blocked", error="waits", details=root, log="q.log")
    row = run_row(run, tmp_path, "study")
    assert {name: row[name] for name in failure} == failure
    assert row.get("size_bytes") is None
    assert row["speedup"] is None


def test_what_was_not_run_is_blocked(tmp_path, run):
    row = run_row(run, tmp_path, "study")
    assert (row["status"], row["error"]) == ("blocked", "model/m was not run")


def test_tables_hold_skipped_combinations_and_the_decision(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1, 0, 1])
    predictions(tmp_path, "evaluate/int8", [1, 0, 1])
    skipped = {"variant": "x", "variant_id": "s", "status": "skipped", "reason": "no kernels", "chain": []}
    plan = {
        "study": {"name": "study", "limits": {"quality_drop": 0.9}, "objective": "speedup"},
        "variants": [{**skipped, "variant_id": "v", "status": "planned", "reason": None, "chain": CHAIN}, skipped],
        "runs": [run],
    }
    aggregate(plan, tmp_path)
    variants = records.read("variants", tmp_path / "studies/study/variants.parquet").to_pylist()
    assert [(row["status"], row["reason"], row["chain"]) for row in variants] == [
        ("planned", None, " ".join(CHAIN)),
        ("skipped", "no kernels", ""),
    ]
    (row,) = records.read("summary", tmp_path / "studies/study/summary.parquet").to_pylist()
    assert (row["feasible"], row["recommended"]) == (True, True)
