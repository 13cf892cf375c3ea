"""Log the study's runs in MLflow while it goes on, and the decision when it ends. Tracking never fails a study."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop import machine, records
from strop.artifact import MANIFEST, Manifest, read_manifest, write_atomically, write_manifest
from strop.errors import StropError
from strop.options import TRANSFORMS
from strop.stages.aggregate import run_row
from strop.tracking import MARKS, Logged, Record, flatten, log_record, mark_runs, redact, tracking_uri

OPTIONS = ("model", "dataset", *TRANSFORMS)
TAGS = (
    *("variant", "variant_id", "scenario", "device", "status", "study", "error", "format", "runtime", "precision"),
    "is_reference",
)
WITH_NUMBERS = ("ok", "unstable")  # statuses of runs that were measured to the end
OFF = "tracking=none"


@dataclasses.dataclass(frozen=True)
class SyncResult:
    """Numbers of runs that were sent, that the store had, and that could not be sent, with the last reason."""

    sent: int
    present: int
    failed: int
    reason: str | None = None

    @property
    def reason_suffix(self) -> str:
        """The reason as the end of a sentence."""
        return f": {self.reason}" if self.reason else ""


def track_run(plan: dict[str, Any], run: dict[str, Any], results: Path) -> None:
    """Log one run and write the manifest of its `track` step, which says whether it worked."""
    started = time.monotonic()
    details = track(plan, run, results)
    if details["reason"]:
        print(f"{run['track']}: not logged: {details['reason']}", file=sys.stderr)
    _write_track(plan, run, results, details, time.monotonic() - started)


def track(plan: dict[str, Any], run: dict[str, Any], results: Path) -> dict[str, Any]:
    """Log one run: a variant under a scenario, failed or not.

    Args:
        plan: `study.name`, `tracking` and the `steps` of the run are read.
        run: one of the plan's `runs`.
        results: folder of all results.

    Returns:
        `mlflow_run_id` (None if it could not be logged), `synced`, `reason` (of that, one line) and `experiment`.

    Raises:
        StropError: a manifest or a table of the results is damaged.
    """
    record = _record(plan, run, results)
    try:
        logged, reason = _log(plan, record, results), None
    except StropError as error:
        logged, reason = None, str(error)
    return _details(plan, logged, reason)


def _details(plan: dict[str, Any], logged: Logged | None, reason: str | None) -> dict[str, Any]:
    return {
        "mlflow_run_id": logged.run_id if logged else None,
        "synced": logged is not None,
        "reason": reason,
        "experiment": plan["study"]["name"],
    }


def _log(plan: dict[str, Any], record: Record, results: Path) -> Logged:
    if plan["tracking"]["method"] == "none":
        raise StropError(OFF)
    return log_record(record, plan["study"]["name"], tracking_uri(plan["tracking"]["uri"]), results)


def _record(plan: dict[str, Any], run: dict[str, Any], results: Path) -> Record:
    row = run_row(run, results, plan["study"]["name"])
    return Record(
        key=run["run_id"],
        name=f"{run['variant']} · {run['scenario']}",
        status="FINISHED" if row["status"] in WITH_NUMBERS else "FAILED",
        tags={f"strop.{name}": str(row[name]) for name in TAGS if row.get(name) is not None},
        params=_params(plan, run),
        metrics=_metrics(row),
        artifacts=_artifacts(run, results),
    )


def _params(plan: dict[str, Any], run: dict[str, Any]) -> dict[str, str]:
    """Return the options, and the settings of all steps as `stage.setting`."""
    steps = [plan["steps"][key] for key in _keys(run)]
    return (
        {stage: str(run[stage]) for stage in OPTIONS}
        | {"benchmark": str(run["scenario"]), "device": str(run["device"])}
        | flatten({step["stage"]: step["settings"] for step in steps if step["settings"]})
        | flatten({"device": plan["steps"][run["benchmark"]]["device"]})
    )


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row; `noisy` is one too, so that it can be sorted by."""
    numbers = {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return numbers | ({"noisy": float(row["noisy"])} if row.get("noisy") is not None else {})


def _keys(run: dict[str, Any]) -> list[str]:
    return [run["dataset_step"], *run["chain"], run["evaluate"], run["benchmark"]]


def _artifacts(run: dict[str, Any], results: Path) -> tuple[tuple[str, Path], ...]:
    """Return the manifests of a run's steps and its samples, each in its stage's folder."""
    files = [results / key / MANIFEST for key in _keys(run)] + [results / run["benchmark"] / "samples.parquet"]
    return tuple((file.parent.parent.name, file) for file in files if file.is_file())


def track_decision(plan: dict[str, Any], results: Path) -> None:
    """Log the decision, and write `tracked.json` beside the summary, which says whether it worked."""
    try:
        logged, reason = mark_decision(plan, results), None
    except StropError as error:
        logged, reason = None, str(error)
        print(f"decision not logged: {reason}", file=sys.stderr)
    marker = results / "studies" / plan["study"]["name"] / "tracked.json"
    write_atomically(marker, json.dumps(_details(plan, logged, reason), indent=1) + "\n")


def mark_decision(plan: dict[str, Any], results: Path) -> Logged:
    """Mark the runs as feasible, pareto and recommended, and log report and tables in a run of the study itself.

    Raises:
        StropError: the store cannot be reached, tracking is off, or there is no summary.
    """
    study = plan["study"]["name"]
    folder = results / "studies" / study
    rows = records.read("summary", folder / "summary.parquet").to_pylist()
    files = [folder / name for name in ("report.html", "summary.parquet", "variants.parquet")]
    record = Record(
        key=f"study:{plan['digest']}",
        name=f"{study} · decision",
        status="FINISHED",
        tags={"strop.study": study},
        artifacts=tuple(("", file) for file in files if file.is_file()),
    )
    logged = _log(plan, record, results)
    marks = {row["run_id"]: {name: row[name] for name in MARKS if row[name] is not None} for row in rows}
    mark_runs(marks, study, tracking_uri(plan["tracking"]["uri"]), results)
    return logged


def sync(plan: dict[str, Any], results: Path) -> SyncResult:
    """Send the runs of a plan that the store lacks, whatever the markers say, and then the decision.

    Manifests of `track` steps and the summary's `mlflow_run_id` are brought up to date with their times kept: to
    Snakemake they are as before, so that the next study has nothing to do.

    Raises:
        StropError: tracking is off, nothing was measured, or a file of the results is damaged.
    """
    if plan["tracking"]["method"] == "none":
        raise StropError(f"{OFF}: there is nothing to send to; strop sync tracking=mlflow")
    measured = [run for run in plan["runs"] if _is_measured(run, results)]
    if not measured:
        raise StropError(f"{results}: study {plan['study']['name']} has no runs here; run it first: strop run")
    ids: dict[str, str] = {}
    sent = failed = 0
    reason = None
    for run in measured:
        logged, error = _sync_run(plan, run, results)
        reason = error or reason
        failed += logged is None
        if logged:
            ids[run["run_id"]] = logged.run_id
            sent += logged.added
    if ids and (results / "studies" / plan["study"]["name"] / "summary.parquet").is_file():
        reason = _sync_decision(plan, results, ids) or reason
    return SyncResult(sent, len(ids) - sent, failed, reason)


def _is_measured(run: dict[str, Any], results: Path) -> bool:
    return all((results / run[role] / MANIFEST).is_file() for role in ("evaluate", "benchmark"))


def _sync_run(plan: dict[str, Any], run: dict[str, Any], results: Path) -> tuple[Logged | None, str | None]:
    """Send one run; a manifest that told of an earlier success stays as it is if this fails."""
    try:
        logged = _log(plan, _record(plan, run, results), results)
    except StropError as error:
        return None, str(error)
    _write_track(plan, run, results, _details(plan, logged, None))
    return logged, None


def _sync_decision(plan: dict[str, Any], results: Path, ids: dict[str, str]) -> str | None:
    """Bring summary and marker up to date and send the decision; return the reason if that fails."""
    folder = results / "studies" / plan["study"]["name"]
    summary = folder / "summary.parquet"
    rows = records.read("summary", summary).to_pylist()
    new = [{**row, "mlflow_run_id": ids.get(row["run_id"], row["mlflow_run_id"])} for row in rows]
    if new != rows:
        modified_ns = _modified_ns(summary)
        records.write("summary", new, summary)
        _set_modified(summary, modified_ns)
    marker = folder / "tracked.json"
    modified_ns = _modified_ns(marker)
    track_decision(plan, results)
    _set_modified(marker, modified_ns)
    reason: str | None = json.loads(marker.read_text(encoding="utf-8"))["reason"]
    return reason


def _write_track(
    plan: dict[str, Any], run: dict[str, Any], results: Path, details: dict[str, Any], seconds: float | None = None
) -> None:
    """Write a track step's manifest; without `seconds` an earlier one is kept but for its details, with its time."""
    folder = results / run["track"]
    stage, _, identity = run["track"].partition("/")
    if seconds is None and (folder / MANIFEST).is_file():
        old = read_manifest(folder)
        if old.details != details:
            modified_ns = _modified_ns(folder / MANIFEST)
            write_manifest(dataclasses.replace(old, details=details), folder)
            _set_modified(folder / MANIFEST, modified_ns)
        return
    settings = {"uri": redact(plan["tracking"]["uri"] or "") or None}
    upstream = {role: run[role] for role in ("evaluate", "benchmark")}
    manifest = Manifest(identity, stage, plan["tracking"]["method"], settings, upstream, seconds=round(seconds or 0, 3),
                        details=details, versions=machine.versions(("strop", "mlflow")))  # fmt: skip
    write_manifest(manifest, folder)


def _modified_ns(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.is_file() else None


def _set_modified(path: Path, modified_ns: int | None) -> None:
    if modified_ns is not None:
        os.utime(path, ns=(modified_ns, modified_ns))
