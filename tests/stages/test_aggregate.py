"""Rows say what was measured, or which step failed first and why; quality is paired by example."""

import numpy as np
import pytest

from strop import records
from strop.artifact import File, Manifest, write_manifest
from strop.errors import StropError
from strop.stages.aggregate import FROM_BENCHMARK, FROM_RUN, aggregate, run_row

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
    audit = {"audit": {"warnings": ["it saturates", "it is half float"]}}
    step(results, "quantize/q", seconds=2.0, details=audit)
    step(results, "engine/e", seconds=3.0, files=files, details={"audit": {"warnings": ["it saturates"]}})
    step(results, "benchmark/b", details={"speedup": 2.0, "speedup_low": 1.9, "speedup_high": float("nan"), "calls": 9})
    step(results, "track/t", details={"mlflow_run_id": "r"})


def test_a_measured_run_has_all_its_numbers(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1] * 90 + [0] * 10)
    predictions(tmp_path, "evaluate/int8", [1] * 88 + [0] * 12)
    row = run_row(run, tmp_path, "study")
    assert (row["status"], row["speedup"], row["calls"], row["mlflow_run_id"]) == ("ok", 2.0, 9, "r")
    assert row["warnings"] == "it saturates\nit is half float"
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
        "study": {
            "name": "study",
            "limits": {"quality_drop": 0.9},
            "objective": "speedup",
            "tie_breaker": "size_bytes",
        },
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
    assert (row["feasible"], row["recommended"], row["limits_verdict"], row["tie_group"]) == (True, True, "pass", 1)


def decided(results, run, **limits):
    """Return the row of a study of one run with these limits."""
    study = {"name": "study", "limits": limits, "objective": "speedup", "tie_breaker": "size_bytes"}
    aggregate({"study": study, "variants": [], "runs": [run]}, results)
    return records.read("summary", results / "studies/study/summary.parquet").to_pylist()[0]


def calls(latencies_s, arm="variant", instance=0):
    """Return samples of calls one after the other; `start_s` says in which order they were."""
    return [
        {"run_id": "b", "instance": instance, "block": at, "arm": arm, "start_s": float(at), "latency_s": latency_s,
         "items": 1, "batch": 0}
        for at, latency_s in enumerate(latencies_s)
    ]  # fmt: skip


def test_a_limit_on_a_tail_is_judged_on_the_variants_own_calls(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1] * 4)
    predictions(tmp_path, "evaluate/int8", [1] * 4)
    path = tmp_path / "benchmark/b/samples.parquet"
    slow = calls([9.0] * 300, arm="reference")
    for count, verdict in ((230, "pass"), (100, "undecided")):
        ours = [one for at in (0, 1) for one in calls([0.01] * count, instance=at)]
        records.write("samples", [*slow, *ours][::-1], path)
        assert decided(tmp_path, run, latency_p99_s=0.02)["limits_verdict"] == verdict
    assert (
        "about 260 more calls are needed (benchmark.min_calls=460)"
        in (decided(tmp_path, run, latency_p99_s=0.02)["infeasible_reason"])
    )
    assert decided(tmp_path, run, latency_p50_s=0.005)["limits_verdict"] == "fail"
    assert decided(tmp_path, run, latency_p90_s=0.02, latency_p50_s=0.02)["limits_verdict"] == "pass"


def test_calls_are_judged_in_their_order_so_that_a_burst_counts_as_one(tmp_path, run):
    """Slow calls in one burst are worth fewer independent ones than the same calls spread evenly."""
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1] * 4)
    predictions(tmp_path, "evaluate/int8", [1] * 4)
    burst = calls([0.01] * 570 + [0.03] * 30)
    spread = calls(([0.01] * 19 + [0.03]) * 30)
    reasons = []
    for samples in (burst, spread):
        records.write(
            "samples", sorted(samples, key=lambda one: one["latency_s"]), tmp_path / "benchmark/b/samples.parquet"
        )
        reasons.append(decided(tmp_path, run, latency_p90_s=0.02)["limits_verdict"])
    assert reasons == ["undecided", "pass"]


def test_a_quality_limit_that_the_test_set_cannot_decide_says_how_large_it_must_be(tmp_path, run):
    measured(tmp_path)
    predictions(tmp_path, "evaluate/eager", [1] * 99 + [0])
    predictions(tmp_path, "evaluate/int8", [1] * 99 + [0])
    row = decided(tmp_path, run, quality_drop=0.01)
    assert (row["limits_verdict"], row["feasible"], row["recommended"]) == ("undecided", False, False)
    assert "on 100 examples; about 390 test examples would decide (dataset.test_size)" in row["infeasible_reason"]


def test_all_that_the_benchmark_tells_is_in_the_row(tmp_path, run):
    """A column that the benchmark fills and that is not copied would be null for ever."""
    decision = {
        "limits_verdict",
        "feasible",
        "infeasible_reason",
        "pareto",
        "tie_group",
        "control_low",
        "control_high",
        "recommended",
    }
    elsewhere = {"study", "status", "error", "log", "repeat", "metric", "quality", "quality_drop", "quality_drop_low",
                 "quality_drop_high", "fidelity", "examples", "size_bytes", "build_s", "artifact",
                 "mlflow_run_id", "warnings"}  # fmt: skip
    assert {*FROM_RUN, *FROM_BENCHMARK} | decision | elsewhere == set(records.SUMMARY.names)
    measured(tmp_path)
    details = {"latency_p99_s": None, "latency_p99_calls_needed": 230, "affinity": "0,1", "processes": 4}
    step(tmp_path, "benchmark/b", details=details)
    row = run_row(run, tmp_path, "study")
    assert {name: row[name] for name in details} == details
