"""Two variants of a study measured directly against each other, as each was against the reference."""

from __future__ import annotations

import contextlib
import math
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from strop import records
from strop.artifact import MANIFEST, Manifest, read_manifest
from strop.columns import COLUMNS, GROUP
from strop.compare import floor_between
from strop.decide import noise_floor
from strop.errors import StropError, nearest
from strop.ids import digest
from strop.plan.content import stamp
from strop.report.tables import load_of
from strop.supervise import log_of, run_step

LOOK_S = 1.0  # between two looks at the log: what is measured must not be disturbed
WAITED_S = 3.0  # without a log before it is said that others have the machine


@dataclass(frozen=True)
class Pair:
    """Two runs of a plan under one load, and the step that measures the first against the second.

    `others` are the study's other loads under which both run, in words.
    """

    first: dict[str, Any]
    second: dict[str, Any]
    step: dict[str, Any]
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, str]:
        """The variants' names."""
        return self.first["variant"], self.second["variant"]

    @property
    def load(self) -> str:
        """The load in words."""
        return load_of(self.first)


def make_pair(plan: dict[str, Any], words: Sequence[str], overrides: Sequence[str], results: Path) -> Pair:
    """Find two variants of a study, and make the step that compares them under the first load that both have.

    The step is that of the first variant's own benchmark, with the second one's artifact in place of the reference's.
    Its id is not that of any step of a plan, so that nothing of the study is overwritten.

    Args:
        plan: as `strop.plan` opens it.
        words: name or id of each variant.
        overrides: that the plan was opened with, for the commands that messages name.
        results: folder of all results.

    Raises:
        StropError: there is no such variant, it cannot be compared with the other, or it was not built.
    """
    first, second = ([run for run in plan["runs"] if run["variant_id"] == find_variant(plan, word)] for word in words)
    if first == second:
        raise StropError(f"{words[0]} and {words[1]} are the same variant; the reference's row is the control")
    loads = [(a, b) for a in first for b in second if _group(a) == _group(b) and a["chain"][0] == b["chain"][0]]
    if not loads:
        raise StropError(
            f"{words[0]} and {words[1]} cannot be compared: they are not of one model under one load"
            f" ({_loads(first)}; {_loads(second)})"
        )
    a, b = loads[0]
    for run in (a, b):
        _check_built(run, overrides, results)
    others = dict.fromkeys(load_of(run) for run, _ in loads if load_of(run) != load_of(a))
    return Pair(a, b, _step(plan, a, b, overrides), tuple(others))


def find_variant(plan: dict[str, Any], word: str) -> str:
    """Return the id of the planned variant that `word` names, by name or id.

    Raises:
        StropError: there is none, or it was skipped.
    """
    planned = {v["variant"]: v["variant_id"] for v in plan["variants"] if v["status"] == "planned"}
    if word in planned.values():
        return word
    if word not in planned:
        skipped = next((v for v in plan["variants"] if word in (v["variant"], v["variant_id"])), None)
        why = f"was skipped: {skipped['reason']}" if skipped else f"no such variant; {nearest(word, planned)}"
        raise StropError(f"{word}: study {plan['study']['name']}: {why}")
    return str(planned[word])


def _group(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in GROUP)


def _loads(runs: list[dict[str, Any]]) -> str:
    return " and ".join(dict.fromkeys(f"{run['model']} {load_of(run)}" for run in runs))


def _check_built(run: dict[str, Any], overrides: Sequence[str], results: Path) -> None:
    """Raise a StropError unless all steps of the run's chain are there and ok."""
    for key in run["chain"]:
        if not (results / key / MANIFEST).is_file():
            kept = [word for word in overrides if not word.startswith("benchmark")]
            command = shlex.join(["strop", "run", *kept])
            raise StropError(f"{run['variant']}: {key} was not built on this device; run it first: {command}")
        manifest = read_manifest(results / key)
        if manifest.status != "ok":
            root = manifest.details.get("root", {"step": key, "status": manifest.status, "error": manifest.error})
            raise StropError(
                f"{run['variant']} cannot be measured: {root['step']} ended as {root['status']}: {root['error']}"
            )


def _step(plan: dict[str, Any], a: dict[str, Any], b: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    own, theirs = (plan["steps"][run["benchmark"]] for run in (a, b))
    floor = floor_between(own["context"]["min_cosine"], theirs["context"]["min_cosine"])
    return {
        **own,
        "id": digest({"head_to_head": [a["benchmark"], b["chain"][-1]]}),
        "upstream": {**own["upstream"], "reference": b["chain"][-1]},
        "label": f"{a['variant']} against {b['variant']}",
        "context": {"min_cosine": floor},
        "repeat": shlex.join(["strop", "compare", a["variant"], b["variant"], *overrides]),
    }


def floor_of(pair: Pair, study: str, results: Path) -> float:
    """Return the study's noise floor under the pair's load [log ratio]; 0 if it has no summary or no A/A control.

    Raises:
        StropError: the summary is damaged.
    """
    path = results / "studies" / study / "summary.parquet"
    rows = records.read("summary", path).to_pylist() if path.is_file() else []
    return noise_floor([row for row in rows if _group(row) == _group(pair.first)])


def measure(pair: Pair, results: Path, project: Path, stream: TextIO) -> Manifest:
    """Measure a pair, whether or not it was measured before, and show on `stream` how far it is.

    Args:
        pair: as `make_pair` makes it.
        results: folder of all results; manifest and samples go to `benchmark/<id>` in it.
        project: folder that paths in settings are relative to.
        stream: for progress.
    """
    progress = Progress(log_of(pair.step, results), float(pair.step["settings"]["max_time_s"]), stream)
    with _looking(progress):
        return run_step(pair.step, results=results, project=project)


@contextlib.contextmanager
def _looking(progress: Progress) -> Iterator[None]:
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            progress.show()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.end()


class Progress:
    """Shows the newest instance of a benchmark that is being done, as its log has it, and the time.

    Args:
        log: the step's log; what it holds now is of an earlier run.
        limit_s: time limit of the measurement [s].
        stream: where the line goes; on a terminal it is written over.
        clock: monotonic clock [s].
    """

    def __init__(self, log: Path, limit_s: float, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._limit_s, self._stream, self._clock = log, limit_s, stream, clock
        self._old = stamp(log)
        self._asked_s = clock()
        self._began_s: float | None = None
        self._waited = False
        self._shown = ""

    def show(self) -> None:
        """Look at the log, and show what is new; on a terminal the time, too."""
        if self._began_s is None:
            if stamp(self._log) == self._old:
                self._wait()
                return
            self._began_s = self._clock()
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        newest = next((line for line in reversed(lines) if line.startswith("instance ")), "starting")
        text = f"  {newest}   {self._clock() - self._began_s:.0f} s, limit {self._limit_s:g} s"
        if self._stream.isatty():
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
        elif newest != self._shown:
            print(text, file=self._stream, flush=True)
        self._shown = newest

    def _wait(self) -> None:
        """Say once that the machine is not free: a measurement begins when no other step is being done."""
        if not self._waited and self._clock() - self._asked_s > WAITED_S:
            print("strop: waits until the other steps in this results folder have ended", file=self._stream, flush=True)
            self._waited = True

    def end(self) -> None:
        """Leave the line that was written over."""
        if self._shown and self._stream.isatty():
            print(file=self._stream, flush=True)


def outcome(pair: Pair, manifest: Manifest, floor: float) -> list[str]:
    """Return what was found, in lines for a person; the verdict is the last one.

    Args:
        pair: what was compared.
        manifest: of its step, with status ok.
        floor: as `floor_of` returns it.
    """
    found, names = manifest.details, pair.names
    width = max(map(len, names))
    medians = (found["latency_p50_s"], found["reference_latency_p50_s"])
    lines = [
        f"{name:<{width}}  {_median(value, found['latency_p50_calls_needed'])}"
        for name, value in zip(names, medians, strict=True)
    ]
    lines.append(
        f"{names[0]} is {found['speedup']:.3f} times as fast as {names[1]} "
        f"(95 % interval {found['speedup_low']:.3f} to {found['speedup_high']:.3f})."
    )
    lines.append(
        f"{pair.load}: {found['calls']} calls of each in {found['instances']} fresh instances, "
        f"ended by {_ended(found['stopped_by'], pair.step['settings'])}."
    )
    if found["noisy"]:
        lines.append(f"Careful, the measurement was noisy: {found['noisy_reason']}.")
    if floor == 0.0:
        lines.append("The study has no A/A control under this load, so nothing vouches for the machine.")
    return [*lines, verdict(names, (found["speedup"], found["speedup_low"], found["speedup_high"]), floor)]


def _median(value: float | None, needed: int) -> str:
    """Return a median latency with its unit, or how many calls it lacks: calls that hang together count as fewer."""
    column = COLUMNS["latency_p50_s"]
    if value is None:
        return f"{column.words} not known: about {needed:,} more calls would tell it (benchmark.min_calls)"
    return f"{column.words} {column.show(value)}{column.unit}"


def _ended(stopped_by: str, settings: dict[str, Any]) -> str:
    setting = {"precision": "precision", "time": "max_time_s"}.get(stopped_by)
    return f"{stopped_by} (benchmark.{setting}={settings[setting]:g})" if setting else stopped_by


def verdict(names: tuple[str, str], ratio: tuple[float, float, float], floor: float) -> str:
    """Return which of two variants is faster, or that they cannot be told apart, as one sentence.

    Args:
        names: of both.
        ratio: time of the second over time of the first, and the ends of its 95 % interval [1].
        floor: what the study's A/A control cannot tell from no difference [log ratio]; nothing below it is ranked.
    """
    off, low, high = (math.log(end) for end in ratio)
    apart = f"{names[0]} and {names[1]} cannot be told apart: the difference"
    if low <= 0.0 <= high:
        return f"{apart} is below {_percent(max(-low, high))}."
    if abs(off) <= floor:
        return f"{apart} of {_percent(abs(off))} is below the study's A/A noise floor of {_percent(floor)}."
    return f"{names[0] if off > 0.0 else names[1]} is faster."


def _percent(log_ratio: float) -> str:
    """Return by how much the larger is more than the smaller, in percent."""
    share = math.expm1(log_ratio)
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
