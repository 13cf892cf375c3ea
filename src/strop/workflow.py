"""What the Snakefile and its scripts call: begin a study, do a job, end with the decision."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.artifact import Manifest
from strop.errors import StropError, nearest, one_line
from strop.plan import open_plan
from strop.supervise import PARENT_VARIABLE, run_step

ON_FAILURE_VARIABLE = "STROP_ON_FAILURE"
CONFIG_KEYS = ("study", "overrides", "results")
_study: dict[str, Any] = {}


def begin(config: dict[str, Any], project: str, cores: int | None) -> dict[str, Any]:
    """Open the plan of the study that Snakemake's config asks for; a mistake in it ends the process with code 2.

    Args:
        config: `study`, `overrides` (Hydra overrides as one string, quoted as in a shell), `results`.
        project: the Snakefile's folder.
        cores: that Snakemake may use, for the time left.
    """
    results = Path(str(config.get("results", "results")))
    try:
        plan = open_plan(_overrides(config), Path(project) / "conf", results)
    except (StropError, OSError) as error:
        print(f"strop: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    # Jobs inherit these. A job whose study was killed stops by itself instead of measuring for nobody.
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    os.environ[ON_FAILURE_VARIABLE] = plan["on_failure"]
    _study.update(plan=plan, results=results, cores=cores or 1)
    return plan


def current() -> tuple[dict[str, Any], Path] | None:
    """Return the plan that `begin` opened in this process and its results folder, or None."""
    return (_study["plan"], _study["results"]) if _study else None


def cores() -> int:
    """Return the cores that Snakemake may use."""
    return int(_study.get("cores", 1))


def _overrides(config: dict[str, Any]) -> list[str]:
    for key in config:
        if key not in CONFIG_KEYS:
            raise StropError(
                f'--config {key}=...: {nearest(key, CONFIG_KEYS)} A setting goes into overrides="{key}=..."'
            )
    if not isinstance(config.get("overrides") or "", str):
        raise StropError("--config overrides=...: Snakemake reads a colon and a space as YAML; write {width:64}")
    try:
        words = shlex.split(config.get("overrides") or "")
    except ValueError as error:
        raise StropError(f"overrides={config['overrides']}: {error}") from None
    return [f"study={config['study']}", *words] if "study" in config else words


def end() -> int:
    """Print the study's table, failures and decision, and return its exit code.

    It is 0 however many variants failed, unless none was measured, or the study was to stop at the first failure.
    """
    from rich.console import Console

    from strop import records
    from strop.report.tables import print_study

    plan, results = _study["plan"], _study["results"]
    summary = results / "studies" / plan["study"]["name"] / "summary.parquet"
    if not summary.is_file():
        return 1
    print_study(plan, results, Console())
    statuses = records.read("summary", summary)["status"].to_pylist()
    wanted = all if plan["on_failure"] == "stop" else any
    return 0 if wanted(status == "ok" for status in statuses) else 1


def do_step(step: dict[str, Any], output: str, log: str, project: Path) -> None:
    """Do one step for a Snakemake job; a failure is a finding, unless the study is to stop at the first one.

    Args:
        step: a value of the plan's `steps`.
        output: path of the manifest, `<results>/<stage>/<id>/manifest.json`.
        log: where this job's own output goes.
        project: the Snakefile's folder.
    """
    with job_log(log):
        manifest = run_step(step, results=Path(output).parents[2], project=project)
        print(_ending(manifest), file=sys.stderr)
    if manifest.status != "ok" and os.environ.get(ON_FAILURE_VARIABLE) == "stop":
        sys.exit(f"strop: {manifest.key}: {manifest.status}: {manifest.error} (on_failure=stop)")


def _ending(manifest: Manifest) -> str:
    return f"{manifest.key} {manifest.option}: {manifest.status} in {manifest.seconds:.1f} s {manifest.error or ''}"


@contextlib.contextmanager
def job_log(path: str) -> Iterator[None]:
    """Send what is printed to stderr within the block to a log file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", encoding="utf-8", buffering=1) as file, contextlib.redirect_stderr(file):
        yield
