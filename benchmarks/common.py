"""What several benchmarks need: artifacts of a real model, neighbours that come and go, rows that outlive a run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strop.artifact import MANIFEST, read_manifest
from strop.examples import Examples
from strop.measure.arm import WorkerArm
from strop.measure.batches import random_batches
from strop.measure.paired import Measurement, Rules, measure
from strop.plan import make_plan
from strop.process import die_with_parent
from strop.supervise import run_step

PROJECT = Path(__file__).parents[1]
RESULTS = PROJECT / "results"
BUSY_S, REST_S = 0.5, 0.75  # means of a neighbour's bursts and of the time between them


def built(words: list[str], results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Build what benchmarks of some variants of the quickstart need; what is there is kept.

    Args:
        words: Hydra overrides of `study=quickstart`.
        results: folder of all results.

    Returns:
        Variant -> its benchmark step of the plan.
    """
    plan = make_plan(["study=quickstart", "study.name=benchmarks", *words], PROJECT / "conf")
    if not plan["runs"]:
        raise SystemExit(f"{' '.join(words)} cannot work here: {plan['variants'][0]['reason']}")
    for key, step in plan["steps"].items():
        if step["stage"] in ("evaluate", "benchmark") or (results / key / MANIFEST).is_file():
            continue
        print(f"building {key} ({step['label']})", file=sys.stderr, flush=True)
        manifest = run_step({**step, "repeat": ""}, results=results, project=PROJECT)
        if manifest.status != "ok":
            raise SystemExit(f"{key} ended as {manifest.status}: {manifest.error}; its log is {manifest.log}")
    return {run["variant"]: plan["steps"][run["benchmark"]] for run in plan["runs"]}


def folder_of(step: dict[str, Any], role: str, results: Path = RESULTS) -> Path:
    """Return the folder of a benchmark step's upstream artifact, which must be ok."""
    folder = results / step["upstream"][role]
    manifest = read_manifest(folder)
    if manifest.status != "ok":
        raise SystemExit(f"{manifest.key} ended as {manifest.status}: {manifest.error}; its log is {manifest.log}")
    return folder


def make_arms(
    step: dict[str, Any], reference: Path, variant: Path, batch_size: int = 1, fork: bool = True, **device: Any
) -> tuple[dict[str, WorkerArm], int]:
    """Return both arms, on the test examples of the step's model, and the number of their batches."""
    path = folder_of(step, "model") / "examples" / "test.parquet"
    rows = random_batches(Examples.read(path), batch_size, seed=0)
    settings = {**step["device"], **device}
    arms = {
        name: WorkerArm(name, folder, path, rows, settings, fork)
        for name, folder in (("reference", reference), ("variant", variant))
    }
    return arms, len(rows)


def compared(
    step: dict[str, Any], reference: Path, variant: Path, rules: Rules, batch_size: int = 1
) -> tuple[Measurement, dict[str, dict[str, Any]]]:
    """Measure two artifacts in strop's way; return that, and what both sessions say of themselves."""
    arms, batches = make_arms(step, reference, variant, batch_size)
    with closed(arms):
        done = measure(arms, batches, rules, time.perf_counter)
        return done, {name: arm.facts() for name, arm in arms.items()}


@contextlib.contextmanager
def closed(arms: Mapping[str, WorkerArm]) -> Iterator[None]:
    """End the arms' processes, whatever happens."""
    try:
        yield
    finally:
        for arm in arms.values():
            arm.close()


@contextlib.contextmanager
def bursts(seed: int) -> Iterator[None]:
    """Have a neighbour on every CPU that works in bursts, at random."""
    cpus = sorted(os.sched_getaffinity(0))
    neighbours = [subprocess.Popen([sys.executable, __file__, str(cpu), str(seed), str(os.getpid())]) for cpu in cpus]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def burst_for_ever(cpu: int, seed: int) -> None:
    """Be a neighbour: busy for a while, at rest for a while."""
    os.sched_setaffinity(0, [cpu])
    rng = random.Random(f"{cpu} {seed}")
    while True:
        until = time.monotonic() + rng.expovariate(1 / BUSY_S)
        while time.monotonic() < until:
            sum(range(1000))
        time.sleep(rng.expovariate(1 / REST_S))


class Rows:
    """Rows in a file: a benchmark that was interrupted goes on where it was."""

    def __init__(self, name: str) -> None:
        self._path = RESULTS / "benchmarks" / f"{name}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, **row: Any) -> None:
        """Keep a row."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def having(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return the rows with these values."""
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


def progress(done: int, all_: int, began: float, at_start: int = 0) -> None:
    """Say on stderr how far it is, and how long it still takes."""
    left_s = (time.monotonic() - began) / max(1, done - at_start) * (all_ - done)
    print(f"\r{done} of {all_}, about {left_s / 60:.0f} min left ", end="", file=sys.stderr, flush=True)
    if done == all_:
        print(file=sys.stderr)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    burst_for_ever(int(sys.argv[1]), int(sys.argv[2]))
