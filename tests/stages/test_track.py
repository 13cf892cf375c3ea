"""Runs of a study in MLflow: logged while it goes on, none doubled, and sent later if the server was down."""

import json
import time

import pytest
from server import free_port, mlflow_server

from strop import records
from strop.artifact import Manifest, list_files, read_manifest, write_manifest
from strop.errors import StropError
from strop.stages.aggregate import aggregate
from strop.stages.track import sync, track, track_decision, track_run
from strop.tracking import embedded_uri

DEVICE = {"kind": "cpu", "threads": 1, "huge_pages": False}
NONE = dict.fromkeys(("optimize", "prune", "compile"), "none")
OPTIONS = {"model": "tiny", "dataset": "blobs", "export": "auto", **NONE}


@pytest.fixture(autouse=True)
def _no_server_of_the_tester(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


def add_step(plan, results, key, option, settings=None, upstream=None, **made):
    """Put a step into the plan, and its manifest with all files of its folder into the results."""
    stage, _, identity = key.partition("/")
    step = {"stage": stage, "id": identity, "option": option, "settings": settings or {}, "upstream": upstream or {}}
    plan["steps"][key] = {**step, "device": DEVICE, "label": option}
    manifest = Manifest(identity, stage, option, step["settings"], step["upstream"],
                        files=list_files(results / key), **made)  # fmt: skip
    write_manifest(manifest, results / key)


def add_run(plan, results, variant, speedup, chain, error=None):
    """Put a run into the plan and what was measured of it into the results; with `error` its benchmark failed."""
    evaluate, benchmark = f"evaluate/{variant}", f"benchmark/{variant}"
    ids = range(4)
    scores = [{"example_id": str(i), "label": 1, "prediction": 1, "score": 1.0} for i in ids]
    records.write("predictions", scores, results / evaluate / "predictions.parquet")
    quality = {"metric": "accuracy", "quality": 1.0, "examples": 4, "ignored": 0}
    add_step(plan, results, evaluate, "classification", {"batch_size": 16}, details=quality)
    numbers = {}
    if error is None:
        sample = {"run_id": variant, "instance": 0, "block": 0, "arm": "variant", "start_s": 0.0, "latency_s": 0.25}
        records.write("samples", [{**sample, "items": 1}], results / benchmark / "samples.parquet")
        numbers = {"speedup": speedup, "speedup_low": speedup - 0.125, "speedup_high": speedup + 0.125, "calls": 100,
                   "latency_p50_s": 0.25, "latency_p99_s": None, "noisy": False, "runtime": "onnxruntime"}  # fmt: skip
    state = {"status": "crashed", "error": error} if error else {}
    settings = {"batch_size": 1, "precision": 0.02}
    add_step(plan, results, benchmark, "single_stream", settings, details=numbers, **state)
    plan["runs"].append(
        {
            **OPTIONS,
            "run_id": variant,
            "variant": f"name {variant}",
            "variant_id": f"v{variant}",
            "quantize": variant,
            "engine": "onnxruntime",
            "overrides": f"quantize={variant}",
            "format": "ort",
            "scenario": "single_stream",
            "batch_size": 1,
            "device": "cpu",
            "threads": 1,
            "is_reference": variant == "none",
            "chain": chain,
            "dataset_step": "dataset/d",
            "evaluate": evaluate,
            "reference_evaluate": "evaluate/none",
            "benchmark": benchmark,
            "track": f"track/{variant}",
        }
    )


@pytest.fixture
def plan(results):
    """Return the plan of a study with three runs that are measured: the reference, a fast one, one that crashed."""
    made = {
        "digest": "0123456789ab",
        "study": {
            "name": "study",
            "limits": {"quality_drop": 0.9},
            "objective": "speedup",
            "tie_breaker": "size_bytes",
        },
        "tracking": {"method": "mlflow", "uri": None},
        "steps": {},
        "variants": [],
        "runs": [],
    }
    add_step(made, results, "dataset/d", "blobs", {"source": {"path": None}, "features": 16})
    add_step(made, results, "model/m", "factory", {"seed": 3}, format="torch", seconds=1.0)
    add_step(made, results, "quantize/q", "ort_int8_dynamic", {"per_channel": True}, format="onnx", seconds=2.0)
    add_run(made, results, "none", 1.0, ["model/m"])
    add_run(made, results, "int8", 2.5, ["model/m", "quantize/q"])
    add_run(made, results, "int4", 0.0, ["model/m", "quantize/q"], error="killed by SIGSEGV")
    return made


def finish(plan, results):
    """Do what the workflow does after the measurements."""
    for run in plan["runs"]:
        track_run(plan, run, results)
    aggregate(plan, results)
    (results / "studies" / "study" / "report.html").write_text("<p>decision</p>", encoding="utf-8")
    track_decision(plan, results)


def stored(uri):
    """Return the store's client and its active runs by their tag."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("study").experiment_id])
    tags = [run.data.tags["strop.run_id"] for run in runs]
    assert len(set(tags)) == len(tags), "a run is doubled"
    return client, dict(zip(tags, runs, strict=True))


def files_of(client, run, folder=None):
    found = set()
    for item in client.list_artifacts(run.info.run_id, folder):
        found |= files_of(client, run, item.path) if item.is_dir else {item.path}
    return found


def check_store(uri):
    """The store holds all three runs and the decision, complete and once."""
    client, runs = stored(uri)
    assert set(runs) == {"none", "int8", "int4", "study:0123456789ab"}
    fast = runs["int8"]
    assert fast.info.run_name == "name int8 · single_stream"
    assert fast.info.status == "FINISHED"
    wanted = {"quantize": "int8", "quantize.per_channel": "True", "model.seed": "3", "dataset.source.path": "None",
              "benchmark": "single_stream", "benchmark.precision": "0.02", "evaluate.batch_size": "16",
              "device": "cpu", "device.threads": "1"}  # fmt: skip
    assert wanted.items() <= fast.data.params.items()
    numbers = {"speedup": 2.5, "speedup_low": 2.375, "latency_p50_s": 0.25, "calls": 100.0, "quality": 1.0,
               "fidelity": 1.0, "build_s": 2.0, "noisy": 0.0, "feasible": 1.0, "recommended": 1.0}  # fmt: skip
    assert numbers.items() <= fast.data.metrics.items()
    assert "latency_p99_s" not in fast.data.metrics
    tags = {"strop.variant": "name int8", "strop.variant_id": "vint8", "strop.scenario": "single_stream",
            "strop.device": "cpu", "strop.status": "ok", "strop.study": "study",
            "strop.recommended": "true"}  # fmt: skip
    assert tags.items() <= fast.data.tags.items()
    manifests = {f"{stage}/manifest.json" for stage in ("dataset", "model", "quantize", "evaluate", "benchmark")}
    assert files_of(client, fast) == manifests | {"benchmark/samples.parquet"}
    failed = runs["int4"]
    assert failed.info.status == "FAILED"
    assert failed.data.tags["strop.status"] == "crashed"
    assert failed.data.tags["strop.error"] == "killed by SIGSEGV"
    assert failed.data.metrics["feasible"] == 0.0
    decision = files_of(client, runs["study:0123456789ab"])
    assert decision == {"report.html", "summary.parquet", "variants.parquet"}
    for run in runs.values():
        assert all(len(client.get_metric_history(run.info.run_id, name)) == 1 for name in run.data.metrics)
    return {key: run.info.run_id for key, run in runs.items()}


def test_a_study_is_logged_once_however_often_it_runs(plan, results):
    finish(plan, results)
    ids = check_store(embedded_uri(results))
    manifest = read_manifest(results / "track" / "int8")
    assert manifest.details == {
        "mlflow_run_id": ids["int8"],
        "synced": True,
        "reason": None,
        "experiment": "study",
    }
    assert manifest.status == "ok"
    summary = records.read("summary", results / "studies/study/summary.parquet").to_pylist()
    assert {row["run_id"]: row["mlflow_run_id"] for row in summary} == {k: ids[k] for k in ("none", "int8", "int4")}
    finish(plan, results)
    assert check_store(embedded_uri(results)) == ids
    done = sync(plan, results)
    assert (done.sent, done.present, done.failed, done.reason_suffix) == (0, 3, 0, "")
    assert check_store(embedded_uri(results)) == ids


def test_a_benchmark_that_ran_again_replaces_its_run(plan, results):
    old = track(plan, plan["runs"][1], results)
    benchmark = results / "benchmark" / "int8"
    manifest = read_manifest(benchmark)
    manifest.details["speedup"] = 2.75
    write_manifest(manifest, benchmark)
    new = track(plan, plan["runs"][1], results)
    _, runs = stored(embedded_uri(results))
    assert runs["int8"].data.metrics["speedup"] == 2.75
    assert new["mlflow_run_id"] == runs["int8"].info.run_id != old["mlflow_run_id"]


def test_without_tracking_nothing_is_logged(plan, results):
    plan["tracking"]["method"] = "none"
    finish(plan, results)
    details = read_manifest(results / "track" / "int8").details
    assert (details["synced"], details["mlflow_run_id"], details["reason"]) == (False, None, "tracking=none")
    assert not (results / "mlflow.db").exists()
    with pytest.raises(StropError, match="strop sync tracking=mlflow"):
        sync(plan, results)
    plan["tracking"]["method"] = "mlflow"
    assert sync(plan, results).sent == 3
    check_store(embedded_uri(results))


def test_sync_needs_a_study_that_ran(plan, results):
    (results / "benchmark/none/manifest.json").unlink()
    assert [sync(plan, results).sent for _ in range(2)] == [2, 0]  # what was not measured yet is not sent
    for run in plan["runs"][1:]:
        (results / run["benchmark"] / "manifest.json").unlink()
    with pytest.raises(StropError, match="run it first"):
        sync(plan, results)


def modified(results):
    return {path: path.stat().st_mtime_ns for path in (results / "track").rglob("*.json")} | {
        path: path.stat().st_mtime_ns for path in (results / "studies").rglob("*") if path.is_file()
    }


def test_a_server_that_was_down_gets_all_runs_later(plan, results, tmp_path, monkeypatch):
    down = f"http://me:s3cret@127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", down)
    started = time.monotonic()
    finish(plan, results)
    assert time.monotonic() - started < 10
    details = read_manifest(results / "track" / "int8").details
    assert (details["synced"], details["mlflow_run_id"]) == (False, None)
    assert details["reason"].startswith("no MLflow server at http://***@127.0.0.1:")
    assert not json.loads((results / "studies/study/tracked.json").read_text())["synced"]
    down_sync = sync(plan, results)
    assert (down_sync.sent, down_sync.present, down_sync.failed) == (0, 0, 3)
    assert "no MLflow server" in down_sync.reason_suffix
    written = [path for folder in ("track", "studies") for path in (results / folder).rglob("*") if path.is_file()]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
    before = modified(results)
    with mlflow_server(tmp_path / "server") as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        done = sync(plan, results)
        assert (done.sent, done.present, done.failed, done.reason) == (3, 0, 0, None)
        ids = check_store(address)
        again = sync(plan, results)
        assert (again.sent, again.present, again.failed) == (0, 3, 0)
        assert check_store(address) == ids
    assert modified(results) == before  # or Snakemake would do the study's end again
    assert read_manifest(results / "track" / "int8").details["mlflow_run_id"] == ids["int8"]
    summary = records.read("summary", results / "studies/study/summary.parquet").to_pylist()
    assert {row["run_id"]: row["mlflow_run_id"] for row in summary} == {k: ids[k] for k in ("none", "int8", "int4")}
    assert json.loads((results / "studies/study/tracked.json").read_text())["synced"]
    assert not (results / "mlflow.db").exists()
