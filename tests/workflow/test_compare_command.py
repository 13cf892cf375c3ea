"""`strop compare` as a user runs it, on a finished study."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import psutil
import pytest
from project import copy_of

from strop import records
from strop.artifact import read_manifest
from strop.process import locked

PAIR = ("ort_int8_static+onnxruntime", "onnxruntime")
COMPARE = ("strop", "compare", *PAIR, "study=smoke")
VERDICT = (
    r"(?:(?:ort_int8_static\+)?onnxruntime is faster|ort_int8_static\+onnxruntime and onnxruntime cannot be told "
    r"apart: the difference (?:is below [\d.]+ %|of [\d.]+ % is below the study's A/A noise floor of [\d.]+ %))\."
)


@pytest.fixture(scope="module")
def project(done, tmp_path_factory):
    return copy_of(done, tmp_path_factory.mktemp("compare"))


def benchmarks(project):
    return {folder.name for folder in (project.results / "benchmark").iterdir()}


def test_two_variants_are_measured_and_the_study_stays_as_it_is(project):
    before = benchmarks(project)
    summary = (project.results / "studies" / "smoke" / "summary.parquet").read_bytes()
    said = project.run(*COMPARE, "scenario=single_stream", "benchmark.max_time_s=5")
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == list(PAIR)
    ratio = re.search(r"is ([\d.]+) times as fast as onnxruntime \(95 % interval ([\d.]+) to ([\d.]+)\)", lines[2])
    value, low, high = map(float, ratio.groups())
    assert low < value < high
    assert re.fullmatch(VERDICT, lines[-1]), lines[-1]
    assert "limit 5 s" in said.stderr
    (made,) = benchmarks(project) - before
    manifest = read_manifest(project.results / "benchmark" / made)
    assert (manifest.status, round(manifest.details["speedup"], 3)) == ("ok", value)
    samples = records.read("samples", project.results / "benchmark" / made / "samples.parquet").to_pylist()
    assert {sample["arm"] for sample in samples} == {"reference", "variant"}
    assert len(samples) == 2 * manifest.details["calls"]
    assert (project.results / "studies" / "smoke" / "summary.parquet").read_bytes() == summary
    assert "everything is done; 0 jobs" in project.snakemake().stderr


def test_asking_again_measures_again_and_waits_for_who_has_the_machine(project):
    project.run(*COMPARE)
    (machine,) = (project.results / ".locks").glob("machine-*")
    started = time.time()
    with locked(machine, shared=True):  # as a step of a running study does
        asked = subprocess.Popen(
            project.command(*COMPARE), cwd=project.folder, env=project.environment(), stderr=subprocess.PIPE, text=True
        )
        assert "waits until the other steps" in next(iter(asked.stderr))
    rest = asked.communicate(timeout=120)[1]
    assert asked.returncode == 0, rest
    newest = max((project.results / "benchmark").glob("*/manifest.json"), key=os.path.getmtime)
    assert newest.stat().st_mtime > started
    assert read_manifest(newest).status == "ok"


def test_a_measurement_that_fails_is_exit_code_1_with_status_and_error(project):
    said = project.run(*COMPARE, "benchmark.seed=5", "benchmark.timeout_s=0.3")
    assert said.returncode == 1
    assert re.search(r"strop: benchmark/\w{12}: timeout: took longer than timeout_s=0\.3; see \S+\.log", said.stderr)
    assert said.stdout == ""
    newest = max((project.results / "benchmark").glob("*/manifest.json"), key=os.path.getmtime)
    assert read_manifest(newest).repeat == f"{' '.join(COMPARE)} benchmark.seed=5 benchmark.timeout_s=0.3"


def test_ctrl_c_ends_everything(project):
    asked = subprocess.Popen(
        project.command(*COMPARE, "benchmark.max_time_s=60", "benchmark.min_time_s=20", "benchmark.instances=100"),
        cwd=project.folder, env=project.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in asked.stderr:
        if "instance" in line:
            break
    started = psutil.Process(asked.pid).children(recursive=True)
    assert len(started) >= 3  # the step and its two workers
    os.kill(asked.pid, signal.SIGINT)
    assert asked.wait(timeout=30) == 130
    assert "Traceback" not in asked.stderr.read()
    gone, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
    assert len(gone) == len(started)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("onnxruntme", "openvino", "study=smoke"),
            "onnxruntme: study smoke: no such variant; did you mean 'onnxruntime'",
        ),
        (
            ("onnxruntime", "openvino", "study=smoke", "scenario=ofline"),
            "benchmark=ofline: conf/benchmark/ has no option",
        ),
        (("onnxruntime", "study=smoke"), "study=smoke: name the two variants first: strop compare A B study=smoke"),
        (("onnxruntime", "openvino", "study=smoke", "model.seed=4"), "onnxruntime: model/"),
        (("onnxruntime",), "the following arguments are required: B; see strop --help"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(project, words, line):
    said = project.run("strop", "compare", *words)
    assert (said.returncode, said.stdout) == (2, "")
    assert len(said.stderr.splitlines()) == 1
    assert said.stderr.startswith(f"strop: {line}")
