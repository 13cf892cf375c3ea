"""Studies as a user runs them: real Snakemake, real sessions, from an empty results folder to the decision."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from project import copy_of
from server import free_port, mlflow_server

from strop import records
from strop.artifact import Artifact, read_manifest

PAIR = "quantize=none engine=onnxruntime"


def logged_runs(results: Path, uri: str | None = None) -> list[str]:
    """Return the tag of each of the study's runs in an MLflow store, the decision left out."""
    from mlflow import MlflowClient

    from strop.tracking import embedded_uri

    client = MlflowClient(tracking_uri=uri or embedded_uri(results))
    experiment = client.get_experiment_by_name("smoke")
    tags = [run.data.tags["strop.run_id"] for run in client.search_runs([experiment.experiment_id])]
    return sorted(tag for tag in tags if not tag.startswith("study:"))


def test_a_study_ends_with_a_table_and_one_sentence(done):
    lines = done.first.stdout.splitlines()
    assert lines[-1].startswith("Ship ")
    assert "times as fast as the reference (95 % interval" in lines[-1] or "Ship the reference" in lines[-1]
    folder = re.search(r"the files are in (results/\w+/[0-9a-f]{12})", lines[-1])[1]
    Artifact(done.folder / folder).verify()
    assert any(line.startswith("A/A control: the reference against itself is") for line in lines)
    assert re.search(r"\[ *\d+/\d+\] +benchmark +\w+", done.first.stderr)
    assert "about" in done.first.stderr
    assert "Traceback" not in done.first.stderr


def test_results_are_as_the_interface_says(done):
    summary, variants = done.table("summary"), done.table("variants")
    assert {row["status"] for row in summary} == {"ok"}
    names = {"eager", "onnxruntime", "openvino", "ort_int8_static+onnxruntime", "ort_int8_static+openvino"}
    assert {row["variant"] for row in summary} == {row["variant"] for row in variants} == names
    assert [row["variant"] for row in summary if row["is_reference"]] == ["eager"]
    assert sum(row["recommended"] for row in summary) == 1
    for row in summary:
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        tails = [(row[f"latency_{q}_s"], row[f"latency_{q}_calls_needed"]) for q in ("p50", "p90", "p99", "p999")]
        assert all((value is None) == (needed > 0) for value, needed in tails)  # too few calls for a tail is said
        found = [value for value, _ in tails if value is not None]
        assert found == sorted(found)
        assert row["mlflow_run_id"]
        samples = records.read("samples", done.results / "benchmark" / row["run_id"] / "samples.parquet").to_pylist()
        assert len(samples) == 2 * row["calls"]
        assert {sample["run_id"] for sample in samples} == {row["run_id"]}
    assert {row["precision"] for row in summary} == {"f32", "int8"}
    for stage in ("dataset", "model", "export", "quantize", "engine", "evaluate", "benchmark"):
        for folder in (done.results / stage).iterdir():
            manifest = read_manifest(folder)
            assert (manifest.status, manifest.id) == ("ok", folder.name)
            Artifact(folder).verify()
    page = (done.results / "studies" / "smoke" / "report.html").read_text()
    assert "Ship " in page
    assert not re.search(r'(src|href)="?https?:', page)


def test_equal_work_is_done_once(done):
    counts = {
        stage: len(list((done.results / stage).iterdir())) for stage in ("dataset", "model", "export", "quantize")
    }
    assert counts == {"dataset": 1, "model": 1, "export": 1, "quantize": 1}


def test_every_run_is_in_mlflow_once(done):
    assert logged_runs(done.results) == sorted(row["run_id"] for row in done.table("summary"))


def test_when_all_is_done_there_is_nothing_to_do(done):
    again = done.snakemake()
    assert again.returncode == 0
    assert "everything is done; 0 jobs" in again.stderr
    assert again.stdout.splitlines()[-1] == done.first.stdout.splitlines()[-1]


def jobs_of(dry_run: subprocess.CompletedProcess[str]) -> dict[str, int]:
    found = re.search(r"would do \d+ jobs: ([^\n]*?)(   about|\n)", dry_run.stderr)
    return {rule: int(n) for n, rule in (part.split() for part in found[1].split(", "))} if found else {}


def test_a_setting_of_one_option_reruns_its_steps_and_what_depends_on_them(done):
    dry_run = done.snakemake("quantize.per_channel=false", "-n")
    assert dry_run.returncode == 0, dry_run.stderr
    assert jobs_of(dry_run) == {
        "quantize": 1, "engine": 2, "evaluate": 2, "benchmark": 2, "track": 2,
        "aggregate": 1, "report": 1, "track_decision": 1,
    }  # fmt: skip
    assert jobs_of(done.snakemake("evaluate.batch_size=8", "-n"))["evaluate"] == 5
    assert "benchmark" not in jobs_of(done.snakemake("evaluate.batch_size=8", "-n"))
    assert jobs_of(done.snakemake("quantize.model_type=none", "-n")) == {}  # nothing here reads it


def test_the_command_line_does_the_same_and_shows_the_answer(done):
    best = done.run("strop", "best", "study=smoke")
    assert best.stdout.splitlines()[-1] == done.first.stdout.splitlines()[-1]
    same = done.run("strop", "run", "study=smoke", "--cores", "2")
    assert "everything is done; 0 jobs" in same.stderr
    plan = done.run("strop", "plan", "study=smoke", "quantize=glob(*)")
    assert plan.returncode == 0, plan.stderr
    for words in ("ort_int8_static+onnxruntime", "Skipped", "if nothing were shared", "torchao's packed tensors"):
        assert words in plan.stdout
    step = next((done.results / "quantize").iterdir()).name
    wrong = done.run("strop", "repeat", f"quantize/{step[:-1]}")
    assert wrong.returncode == 2
    assert f"did you mean 'quantize/{step}'?" in wrong.stderr


def test_snakemakes_own_report_has_our_page_table_and_plot(done):
    made = done.run("snakemake", "--report", "report.html", "--config", "study=smoke")
    assert made.returncode == 0, made.stderr
    page = (done.folder / "report.html").read_text()
    for name in ("report.html", "summary.csv", "speedup_quality.svg"):
        assert name in page


def test_numbers_can_be_read_with_duckdb_and_pandas(done):
    import duckdb
    import pandas

    path = done.results / "studies" / "smoke" / "summary.parquet"
    fastest = duckdb.sql(f"SELECT variant FROM '{path}' ORDER BY speedup DESC LIMIT 1").fetchall()[0][0]
    assert fastest == pandas.read_parquet(path).sort_values("speedup").variant.iloc[-1]


@pytest.mark.parametrize("study", ["quickstart", "smoke"])
def test_shipped_studies_can_be_planned(done, study):
    dry_run = done.run("snakemake", "--cores", "2", "-n", "--config", f"study={study}")
    assert dry_run.returncode == 0, dry_run.stderr


def test_a_server_that_is_down_fails_nothing_and_sync_sends_all(done, tmp_path):
    project = copy_of(done, tmp_path)
    closed = f"http://127.0.0.1:{free_port()}"
    down = project.snakemake(MLFLOW_TRACKING_URI=closed)
    assert down.returncode == 0, down.stderr
    assert down.stdout.splitlines()[-1].startswith("Ship ")
    failed = project.run("strop", "sync", "study=smoke", MLFLOW_TRACKING_URI=closed)
    assert failed.returncode == 1
    assert "0 runs sent, 0 were there, 5 failed: no MLflow server at" in failed.stdout
    with mlflow_server(tmp_path / "server") as address:
        sent = project.run("strop", "sync", "study=smoke", MLFLOW_TRACKING_URI=address)
        assert "5 runs sent, 0 were there, 0 failed" in sent.stdout, sent.stderr
        wanted = sorted(row["run_id"] for row in project.table("summary"))
        assert logged_runs(project.results, address) == wanted
        again = project.run("strop", "sync", "study=smoke", MLFLOW_TRACKING_URI=address)
        assert "0 runs sent, 5 were there, 0 failed" in again.stdout
        assert logged_runs(project.results, address) == wanted


def test_kill_9_in_mid_study_loses_and_doubles_nothing(done, tmp_path):
    project = copy_of(done, tmp_path)
    for stage in ("engine", "evaluate", "benchmark", "track"):
        shutil.rmtree(project.results / stage)
    shutil.rmtree(project.results / "studies")
    (project.results / "mlflow.db").unlink()
    study = subprocess.Popen(
        project.command("snakemake", "--cores", "2", "--config", "study=smoke", f"overrides={PAIR}"),
        cwd=project.folder, env=project.environment(), stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    for line in study.stderr:
        if "measuring" in line:
            break
    time.sleep(1.5)
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    again = project.snakemake(PAIR)
    assert again.returncode == 0, again.stderr
    summary = project.table("summary")
    assert {row["variant"]: row["status"] for row in summary} == {"eager": "ok", "onnxruntime": "ok"}
    assert logged_runs(project.results) == sorted(row["run_id"] for row in summary)
    assert "everything is done; 0 jobs" in project.snakemake(PAIR).stderr


def test_a_failure_is_a_row_and_the_study_goes_on(done, tmp_path):
    project = copy_of(done, tmp_path)
    overrides = "quantize=none,ort_int8_static engine=onnxruntime quantize.op_types=[Conv]"
    study = project.snakemake(overrides)
    assert study.returncode == 0, study.stderr
    rows = {row["variant"]: row for row in project.table("summary")}
    failed = rows["ort_int8_static+onnxruntime"]
    assert failed["status"] == "no_effect"
    assert rows["onnxruntime"]["status"] == "ok"
    assert Path(project.folder / failed["log"]).is_file()
    assert failed["error"] in study.stdout
    assert failed["repeat"] in study.stdout
    repeated = project.run(*failed["repeat"].split())
    assert repeated.returncode == 1
    assert "no_effect" in repeated.stdout
    assert project.snakemake(overrides).returncode == 0
    assert project.snakemake(f"{overrides} on_failure=stop").returncode == 1
    stopped = project.snakemake(f"{overrides} quantize.reduce_range=false on_failure=stop")
    assert stopped.returncode == 1
    assert "(on_failure=stop)" in stopped.stderr


def test_nothing_measured_is_exit_code_1(done, tmp_path):
    project = copy_of(done, tmp_path)
    study = project.snakemake(f"{PAIR} dataset.test_size=100000 dataset.features=3")
    assert study.returncode == 1
    assert "Ship nothing" in study.stdout
    assert json.loads((project.results / "studies/smoke/tracked.json").read_text())["synced"]


def test_odd_folder_names_work(done, tmp_path):
    odd = tmp_path / "it's [a] #1 größe"
    odd.mkdir()
    project = copy_of(done, odd)
    assert "everything is done; 0 jobs" in project.snakemake().stderr
    again = project.snakemake(f"{PAIR} benchmark.seed=1")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1].startswith("Ship ")
