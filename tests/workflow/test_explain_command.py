"""`strop explain` as a user runs it, on a finished study."""

from __future__ import annotations

import json

import pytest
from project import copy_of

from strop import records
from strop.artifact import read_manifest

EXPLAIN = ("strop", "explain", "onnxruntime", "study=smoke")


@pytest.fixture(scope="module")
def project(done, tmp_path_factory):
    return copy_of(done, tmp_path_factory.mktemp("explain"))


def test_both_sides_are_profiled_once(project):
    said = project.run(*EXPLAIN)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("onnxruntime (single_stream x1): ")
    for part in ("fusions: FusedGemm 3", "matrix products", "outside of operators", "Likeliest reasons"):
        assert part in said.stdout
    assert said.stderr.splitlines() == ["strop: profiles onnxruntime", "strop: profiles reference (eager)"]
    made = [read_manifest(path) for path in (project.results / "profile").iterdir()]
    assert [manifest.status for manifest in made] == ["ok", "ok"]
    for manifest in made:
        rows = records.read("operators", project.results / manifest.key / "operators.parquet").to_pylist()
        assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    again = project.run(*EXPLAIN)
    assert (again.stdout, again.stderr) == (said.stdout, "")


def test_a_profile_that_fails_is_exit_code_1(project):
    said = project.run(*EXPLAIN, "profile.timeout_s=0.1", "profile.calls=7")
    assert said.returncode == 1
    assert "timeout: took longer than timeout_s=0.1; see " in said.stderr
    assert said.stdout == ""


def test_a_variant_that_failed_is_explained_by_that(project, tmp_path):
    mine = copy_of(project, tmp_path)
    plan = json.loads(mine.run("python", "-c", PLAN).stdout)
    path = mine.results / plan["chain"][-1] / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "status": "build_failed", "error": "no such operator", "log": "x.log"}))
    said = mine.run(*EXPLAIN)
    assert said.returncode == 0
    assert "ended as build_failed: no such operator\n  log: x.log" in said.stdout
    assert said.stderr == ""


PLAN = """
import json
from pathlib import Path
from strop.plan import open_plan
plan = open_plan(["study=smoke"], Path("conf"), Path("results"))
print(json.dumps(next(run for run in plan["runs"] if run["variant"] == "onnxruntime")))
"""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("onnxruntme", "study=smoke"), "onnxruntme: study smoke: no such variant; did you mean 'onnxruntime'"),
        (("eager", "study=smoke"), "eager: it is the reference"),
        (("onnxruntime", "study=smoke", "model.seed=4"), "onnxruntime: model/"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(project, words, line):
    said = project.run("strop", "explain", *words)
    assert (said.returncode, said.stdout) == (2, "")
    assert len(said.stderr.splitlines()) == 1
    assert said.stderr.startswith(f"strop: {line}")
