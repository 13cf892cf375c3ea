"""Helpers of the rules: each returns a function of wildcards, or a list. They look things up in the plan."""

from pathlib import Path

from strop.ids import digest, source_digest
from strop.machine import versions
from strop.options import option
from strop.tracking import tracking_uri
from strop.workflow import begin, end

PLAN = begin(config, workflow.basedir, workflow.cores)
STEPS, STUDY = PLAN["steps"], PLAN["study"]["name"]
STAGES = (
    "dataset",
    "model",
    "prune",
    "export",
    "optimize",
    "quantize",
    "compile",
    "engine",
    "evaluate",
    "benchmark",
    "track",
)
ID_CONSTRAINTS = {"study": "[^/]+"} | {
    f"{stage}_id": "[0-9a-f]{12}" for stage in STAGES
}
RUNS = {Path(run["track"]).name: run for run in PLAN["runs"]}


def manifest(key):
    return f"<results>/{key}/manifest.json"


def step_of(stage):
    return lambda wildcards: STEPS[f"{stage}/{wildcards[f'{stage}_id']}"]


def upstream_of(stage):
    """Inputs of a step: its upstream manifests, named by role."""
    look_up = step_of(stage)

    def named(wildcards):
        return {
            role: manifest(key) for role, key in look_up(wildcards)["upstream"].items()
        }

    return named


def versions_of(stage):
    look_up = step_of(stage)
    return lambda wildcards: versions(tuple(look_up(wildcards)["requires"]))


def code_of(stage):
    """Digest of the code of a step's option: a change to another option's module reruns nothing of it."""
    look_up = step_of(stage)
    return lambda wildcards: source_digest(
        option(stage, look_up(wildcards)["option"]).module
    )


def threads_of(stage):
    look_up = step_of(stage)
    return lambda wildcards: int(look_up(wildcards)["device"]["threads"])


def memory_of(stage):
    look_up = step_of(stage)
    return lambda wildcards: int(look_up(wildcards)["memory_bytes"] / 1e6)


def minutes_of(stage):
    look_up = step_of(stage)
    return lambda wildcards: int(look_up(wildcards)["timeout_s"] // 60 + 1)


def run_of(wildcards):
    return RUNS[wildcards.track_id]


def plan_of_run(wildcards):
    """The part of the plan that one run's record needs: with all of it, a change elsewhere would log the run again."""
    run = run_of(wildcards)
    keys = [run["dataset_step"], *run["chain"], run["evaluate"], run["benchmark"]]
    return {
        "study": {"name": STUDY},
        "device": PLAN["device"],
        "tracking": PLAN["tracking"],
        "steps": {key: STEPS[key] for key in keys},
    }


def measured(wildcards):
    """Inputs of a run's record: what was measured of the run, and its reference's quality."""
    run = run_of(wildcards)
    return {
        "benchmark": manifest(run["benchmark"]),
        "evaluate": manifest(run["evaluate"]),
        "reference": manifest(run["reference_evaluate"]),
    }


def all_tracks():
    return [manifest(run["track"]) for run in PLAN["runs"]]
