"""Progress of a running study: which step of which variant, how many of how many, and the time left."""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from strop.artifact import Manifest, read_manifest
from strop.errors import StropError
from strop.workflow import cores, current, end

NOTHING = "Nothing to be done"


class Progress:
    """Turns Snakemake's log records into lines for a person.

    Args:
        settings: Snakemake's output settings (`dryrun`, `verbose`).
        stream: where the lines go.
        clock: monotonic clock [s].
    """

    def __init__(
        self, settings: Any, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self.stream = stream or sys.stderr
        self.clock = clock
        self.total = 0
        self.done = 0
        self.jobs: dict[int, tuple[str, str, float]] = {}  # job -> key of its step, label, start [s]
        self.waiting: dict[str, int] = {}  # rule -> jobs that are not done

    def show(self, record: logging.LogRecord) -> None:
        """Show one record, if a person wants to know."""
        event = str(getattr(record, "event", None) or "")
        if event == "run_info":
            self._planned(record)
        elif event == "job_info":
            self._started(record)
        elif event == "job_finished":
            self._finished(record)
        elif record.levelno >= logging.WARNING or event in ("error", "job_error"):
            self._print(self._formatted(record))
        elif NOTHING in record.getMessage():
            self._print("strop: everything is done; 0 jobs")
            if current() and not self.settings.dryrun:
                end()

    def _print(self, text: str) -> None:
        if text and text != "None":
            print(text, file=self.stream, flush=True)

    def _formatted(self, record: logging.LogRecord) -> str:
        from snakemake.logging import DefaultFormatter

        return str(DefaultFormatter(self.settings.quiet, self.settings.show_failed_logs).format(record) or "")

    # Snakemake puts an event's facts on the record as attributes that LogRecord's type does not know: hence Any.
    def _planned(self, record: Any) -> None:
        stats = {r: int(n) for r, n in record.stats.items() if r not in ("total", "all")}
        self.waiting, self.total = stats, sum(stats.values())
        words = ", ".join(f"{n} {rule}" for rule, n in stats.items())
        would = "would do " if self.settings.dryrun else ""
        if not self.jobs:
            self._print(f"strop: {would}{self.total} jobs: {words}{self._time_left()}")

    def _started(self, record: Any) -> None:
        rule = str(record.rule_name)
        key, label = _step_of(rule, dict(record.wildcards or {}))
        self.jobs[int(record.jobid)] = (key, label, self.clock())
        if self.settings.dryrun:
            if rule != "all":
                self._print(f"  would do {rule:<14} {label:<44} {_reason(record)}".rstrip())
        elif rule == "benchmark":
            self._print(f"  measuring      {label}")

    def _finished(self, record: Any) -> None:
        key, label, started = self.jobs.pop(int(record.job_id), ("", "", self.clock()))
        rule = key.partition("/")[0]
        if rule == "all":  # it does nothing; neither total nor time left counts it
            return
        self.done += 1
        self.waiting[rule] = max(0, self.waiting.get(rule, 1) - 1)
        seconds = self.clock() - started
        line = f"[{self.done:>3}/{self.total}] {rule:<14} {label:<44} {seconds:6.1f} s{self._time_left()}"
        self._print(line + _failure(key))

    def _time_left(self) -> str:
        """Return how long the waiting jobs take, from the durations of such jobs before; empty if none is known."""
        if (now := current()) is None:
            return ""
        plan, results = now
        seconds, unknown = 0.0, 0
        for rule, count in self.waiting.items():
            known = _typical_seconds(rule, plan, results)
            seconds += count * (known or 0.0) / (1 if rule == "benchmark" else cores())
            unknown += count if known is None else 0
        if seconds == 0.0:
            return ""
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f"   about {left} left" + (f" and {unknown} jobs of unknown length" if unknown else "")


def _step_of(rule: str, wildcards: dict[str, str]) -> tuple[str, str]:
    """Return the key `<stage>/<id>` of a job, and a label: the option, and the variants that it is for."""
    identity = next(iter(wildcards.values()), "")
    key = f"{rule}/{identity}"
    now = current()
    if now is None:
        return key, identity
    plan = now[0]
    if rule in ("benchmark", "track"):
        return key, next((_load(run, plan) for run in plan["runs"] if run[rule] == key), identity)
    if key not in plan["steps"]:
        return key, identity
    users = [v["variant"] for v in plan["variants"] if key in v["chain"]]
    label = str(plan["steps"][key]["label"])
    shared = "" if users in ([], [label]) else f" for {users[0]}" if len(users) == 1 else f" for {len(users)} variants"
    return key, label + shared


def _load(run: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return the variant of a run, with its scenario where the study has several."""
    several = len({(other["scenario"], other["batch_size"]) for other in plan["runs"]}) > 1
    return f"{run['variant']} {run['scenario']} x{run['batch_size']}" if several else str(run["variant"])


def _reason(record: logging.LogRecord) -> str:
    """Return why a job runs again; nothing if it simply was not done yet."""
    reasons = str(getattr(record, "reason", "") or "").split("; ")
    known = ("Missing output files", "Input files updated by another job")
    return "; ".join(reason for reason in reasons if not reason.startswith(known))


def _manifest(key: str) -> Manifest | None:
    now = current()
    try:
        return read_manifest(now[1] / key) if now else None
    except (StropError, OSError):
        return None


def _failure(key: str) -> str:
    found = _manifest(key)
    if found is None or found.status == "ok":
        return ""
    if found.status == "blocked":
        return f"\n          blocked: waits for {found.details['root']['step']}"
    return f"\n          {found.status}: {found.error}"


def _typical_seconds(rule: str, plan: dict[str, Any], results: Path) -> float | None:
    """Return the median duration of a stage's steps in this folder [s]; without any, a benchmark's time limit."""
    folder = results / rule
    seconds = []
    for path in sorted(folder.glob("*/manifest.json"))[:200] if folder.is_dir() else []:
        try:
            seconds.append(read_manifest(path).seconds)
        except (StropError, OSError):
            continue
    if seconds:
        return statistics.median(seconds) + 0.5  # a job's own start
    limits = [s["settings"].get("max_time_s") for s in plan["steps"].values() if s["stage"] == rule]
    return float(max(limits)) if limits and None not in limits else None
