"""Where the scatter comes from, and what it costs: `python benchmarks/levels.py [--bursts]`.

A session of MiniLM on ONNX Runtime is measured against itself in a nested design: processes, sessions in each, pairs of
blocks in each. The scatter of the log ratio at each level and the time that a unit of it costs give the split of a time
budget after Kalibera and Jones (ISMM 2013). What might calm the scatter at its source is switched on or off, one thing
at a time. A second table shows the scatter of pairs by the length of their blocks.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import built, bursts, closed, folder_of, make_arms

from strop.artifact import MANIFEST, Artifact, list_files, write_manifest
from strop.measure.arm import WorkerArm
from strop.measure.paired import ARMS, WARMUP_SHARE
from strop.measure.split import FIRST_PAIRS
from strop.measure.warmup import warm_up
from strop.runtimes.onnxruntime import model_path
from strop.stats.levels import best_count, levels

CALLS = 24  # of a block
LENGTHS = (2, 5, 10, 20, 40, 80)
CALMED = {
    "as a study measures (huge pages)": {},
    "small pages": {"huge_pages": False},
    "bound to one CPU": {"affinity": [0]},
    "reloaded in one process": {"reload": True},
    "reloaded, small pages": {"reload": True, "huge_pages": False},
    "one heap for all threads": {"tunables": "glibc.malloc.arena_max=1"},
    "weights mapped from the file": {"mapped": True},
}


@dataclasses.dataclass
class Design:
    """What was found: log ratios of each session, its process, and what units of each level cost [s]."""

    ratios: list[np.ndarray] = dataclasses.field(default_factory=list)
    processes: list[int] = dataclasses.field(default_factory=list)
    process_s: list[float] = dataclasses.field(default_factory=list)
    session_s: list[float] = dataclasses.field(default_factory=list)
    pair_s: list[float] = dataclasses.field(default_factory=list)


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bursts", action="store_true", help="with a neighbour on every CPU that works in bursts")
    parser.add_argument("--processes", type=int, default=6, help="of each arm [1]")
    parser.add_argument("--sessions", type=int, default=4, help="of each process [1]")
    arguments = parser.parse_args()
    step = built(["quantize=none", "compile=none", "engine=onnxruntime"])["onnxruntime"]
    folder = folder_of(step, "source")
    found = {name: Design() for name in CALMED}
    with bursts(0) if arguments.bursts else contextlib.nullcontext():
        for process in range(arguments.processes):  # all ways in turns: the machine changes over minutes
            for name, way in CALMED.items():
                nested(step, folder, way, process, arguments.sessions, found[name])
        print("\n".join(level_table(found)), end="\n\n")
        print("\n".join(length_table(step, folder)))


@contextlib.contextmanager
def prepared(step: dict[str, Any], folder: Path, way: dict[str, Any]) -> Iterator[tuple[dict[str, WorkerArm], int]]:
    """Yield both arms of a way."""
    device = {name: way[name] for name in ("huge_pages", "affinity") if name in way}
    before = os.environ.get("GLIBC_TUNABLES")
    if "tunables" in way:
        os.environ["GLIBC_TUNABLES"] = way["tunables"]
    used = mapped(folder) if way.get("mapped") else folder
    arms, batches = make_arms(step, used, used, fork="reload" not in way, **device)
    try:
        with closed(arms):
            yield arms, batches
    finally:
        os.environ.pop("GLIBC_TUNABLES", None)
        os.environ |= {} if before is None else {"GLIBC_TUNABLES": before}


def mapped(folder: Path) -> Path:
    """Return an artifact like that in `folder`, with its weights in a file of their own, which is mapped, not read."""
    import onnx

    artifact = Artifact(folder)
    made = folder.with_name(f"{folder.name}-mapped")
    if not (made / MANIFEST).is_file():
        made.mkdir(parents=True, exist_ok=True)
        model = onnx.load(str(model_path(artifact)))
        onnx.save_model(model, str(made / "model.onnx"), save_as_external_data=True, location="model.onnx.data")
        write_manifest(dataclasses.replace(artifact.manifest, files=list_files(made)), made)
    return made


def nested(step: dict[str, Any], folder: Path, way: dict[str, Any], process: int, sessions: int, found: Design) -> None:
    """Measure the sessions of one process of each arm."""
    rng = np.random.default_rng(process)
    with prepared(step, folder, way) as (arms, batches):
        began = time.perf_counter()
        for name in rng.permutation(ARMS):
            arms[name].start()
        chosen = list(range(2, batches, batches // 8))[:8]
        for session in range(sessions):
            if session == 1:
                began = time.perf_counter()
            open_and_warm(arms, chosen, rng)
            (found.process_s if session == 0 else found.session_s).append(time.perf_counter() - began)
            found.ratios.append(pairs(arms, chosen * (CALLS // 8), FIRST_PAIRS, rng, found.pair_s))
            found.processes.append(process)
            began = time.perf_counter()


def open_and_warm(arms: dict[str, WorkerArm], chosen: list[int], rng: np.random.Generator) -> None:
    """Load both sessions anew, in random order, and warm them up as a study does."""
    order = rng.permutation(ARMS).tolist()
    for name in order:
        arms[name].renew()
    for name in order:
        arm = arms[name]
        arm.block(chosen)
        warm_up(lambda arm=arm: float(arm.block(chosen).latency_s.sum()), 20 * WARMUP_SHARE, time.perf_counter)


def pairs(
    arms: dict[str, WorkerArm], called: list[int], count: int, rng: np.random.Generator, cost_s: list[float]
) -> np.ndarray:
    """Return the log ratios of pairs of blocks, float64, shape (count,)."""
    logs = []
    for _ in range(count):
        began = time.perf_counter()
        batches = rng.permutation(called).tolist()
        spent = {name: float(arms[name].block(batches).latency_s.sum()) for name in rng.permutation(ARMS).tolist()}
        logs.append(math.log(spent["reference"] / spent["variant"]))
        cost_s.append(time.perf_counter() - began)
    return np.asarray(logs)


def level_table(found: dict[str, Design]) -> list[str]:
    """Return the lines: scatter and cost of each level, and the split that they ask for."""
    lines = [
        f"{'way':34}{'sd process':>11}{'sd session':>11}{'sd pair':>9}{'process s':>11}{'session s':>10}{'pair s':>8}"
        f"{'pairs/session':>15}{'sessions/process':>18}"
    ]
    for name, made in found.items():
        seen = levels(made.ratios, made.processes)
        process_s, session_s, pair_s = (
            float(np.median(spent)) for spent in (made.process_s, made.session_s, made.pair_s)
        )
        deviations = [deviation or 0.0 for deviation in (seen.process, seen.session, seen.pair)]
        best_pairs = best_count(pair_s, session_s, deviations[2] ** 2, deviations[1] ** 2)
        whole_s = session_s + pair_s * min(best_pairs, 32)
        best_sessions = best_count(whole_s, max(process_s - session_s, 0.0), deviations[1] ** 2, deviations[0] ** 2)
        lines.append(
            f"{name:34}{deviations[0]:11.2%}{deviations[1]:11.2%}{deviations[2]:9.2%}{process_s - session_s:11.2f}"
            f"{session_s:10.2f}{pair_s:8.2f}{best_pairs:15.1f}{best_sessions:18.1f}"
        )
    return lines


def length_table(step: dict[str, Any], folder: Path) -> list[str]:
    """Return the lines: scatter of pairs by the calls of a block, alone and as what a second of measuring gives."""
    lines = [f"{'calls of a block':>17}{'sd pair':>9}{'pair s':>8}{'sd of a second':>16}"]
    rng = np.random.default_rng(0)
    found: dict[int, tuple[list[float], list[float]]] = {length: ([], []) for length in LENGTHS}
    with prepared(step, folder, {}) as (arms, batches):
        for arm in arms.values():
            arm.start()
        for _ in range(4):
            open_and_warm(arms, list(range(batches)), rng)
            for length in rng.permutation(LENGTHS).tolist():
                cost_s: list[float] = []
                called = [batches // 2] * length  # one input: its size is not what this table is about
                logs = pairs(arms, called, max(4, 120 // length), rng, cost_s)
                found[length][0].append(float(logs.var(ddof=1)))
                found[length][1].extend(cost_s)
    for length, (variances, cost_s) in found.items():
        deviation, pair_s = math.sqrt(np.mean(variances)), float(np.mean(cost_s))
        lines.append(f"{length:17}{deviation:9.2%}{pair_s:8.2f}{deviation * math.sqrt(pair_s):16.2%}")
    return lines


if __name__ == "__main__":
    main()
