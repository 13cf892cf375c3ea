"""How far a ratio scatters when all is done again: `python benchmarks/repeatability.py [--repeats 20]`.

One real pair, MiniLM in float32 against dynamic int8, both on ONNX Runtime, is compared in three ways: two medians
timed one after the other, blocks that alternate in a fixed order between two sessions, and strop's way; on a machine
left alone, and with a neighbour on every CPU that works in bursts. Each repeat starts everything anew; ways and
conditions come in random order. Rows are kept in results/benchmarks/, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Rows, built, bursts, closed, compared, folder_of, make_arms, progress

from strop.measure.arm import WorkerArm
from strop.measure.paired import Rules
from strop.stats.bootstrap import CONFIDENCE

WAYS = ("one after the other", "fixed alternation", "strop")
CONDITIONS = ("quiet", "bursts")
WARM_CALLS = 50
CALLS = 300  # of each, one after the other
BLOCKS, BLOCK_CALLS = 30, 5  # of the fixed alternation: what a careful engineer writes in an hour
Interval = tuple[float, float, float]  # log ratio and both ends


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20, help="of each way in each condition [1]")
    parser.add_argument("--max-time-s", type=float, default=25.0, help="longest time of one of strop's [s]")
    arguments = parser.parse_args()
    steps = built(["quantize=none,ort_int8_dynamic", "compile=none", "engine=onnxruntime"])
    fp32, int8 = (steps[name] for name in ("onnxruntime", "ort_int8_dynamic+onnxruntime"))
    folders = folder_of(fp32, "source"), folder_of(int8, "source")
    rows, rng = Rows("repeatability"), np.random.default_rng()
    wanted = [
        (way, condition, repeat) for repeat in range(arguments.repeats) for way in WAYS for condition in CONDITIONS
    ]
    missing = [key for key in wanted if not rows.having(**dict(zip(("way", "condition", "repeat"), key, strict=True)))]
    missing.sort(key=lambda key: (key[2], rng.random()))
    began = time.monotonic()
    for at, (way, condition, repeat) in enumerate(missing, 1):
        started = time.monotonic()
        with bursts(repeat) if condition == "bursts" else contextlib.nullcontext():
            ratio, low, high = HOW[way](fp32, *folders, repeat, arguments.max_time_s)
        rows.add(way=way, condition=condition, repeat=repeat, ratio=ratio, low=low, high=high,
                 cost_s=time.monotonic() - started)  # fmt: skip
        progress(at, len(missing), began)
    print("\n".join(table(rows)))


def one_after_the_other(step: dict[str, Any], reference: Path, variant: Path, seed: int, max_time_s: float) -> Interval:
    """Two medians; the interval is a bootstrap's over calls."""
    del max_time_s
    arms, batches = make_arms(step, reference, variant)
    rng = np.random.default_rng(seed)
    series = []
    with closed(arms):
        for arm in arms.values():
            open_and_warm(arm, batches)
            series.append(arm.block([at % batches for at in range(CALLS)]).latency_s)
            arm.close()
    drawn = [np.median(rng.choice(calls, (2000, calls.size)), axis=1) for calls in series]
    ends = np.quantile(np.log(drawn[0] / drawn[1]), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return math.log(np.median(series[0]) / np.median(series[1])), float(ends[0]), float(ends[1])


def open_and_warm(arm: WorkerArm, batches: int) -> None:
    """Start a process, load the session, and make some calls."""
    arm.start()
    arm.renew()
    arm.block([at % batches for at in range(WARM_CALLS)])


def fixed_alternation(step: dict[str, Any], reference: Path, variant: Path, seed: int, max_time_s: float) -> Interval:
    """Blocks of one session each in turns; the interval is a bootstrap's over pairs of blocks."""
    del max_time_s
    arms, batches = make_arms(step, reference, variant)
    rng = np.random.default_rng(seed)
    logs = []
    with closed(arms):
        for arm in arms.values():
            open_and_warm(arm, batches)
        for pair in range(BLOCKS):
            called = [(pair * BLOCK_CALLS + at) % batches for at in range(BLOCK_CALLS)]
            theirs, ours = (float(arm.block(called).latency_s.sum()) for arm in arms.values())
            logs.append(math.log(theirs / ours))
    means = rng.choice(logs, (2000, len(logs))).mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(np.mean(logs)), float(low), float(high)


def strops(step: dict[str, Any], reference: Path, variant: Path, seed: int, max_time_s: float) -> Interval:
    """The measurement of a study, with its default settings but the time limit."""
    done, _ = compared(step, reference, variant, Rules(6, 2.0, max_time_s, 100, 10**6, 0.02, seed))
    return tuple(math.log(value) for value in (done.ratio.ratio, done.ratio.low, done.ratio.high))


HOW: dict[str, Callable[..., Interval]] = dict(zip(WAYS, (one_after_the_other, fixed_alternation, strops), strict=True))


def table(rows: Rows) -> list[str]:
    """Return the lines of the table: of each way in each condition its scatter, and how often its interval is true.

    The pooled value is the mean of strop's log ratios in that condition. The ratio of a large model to a small one
    moves with the machine's memory, over minutes; what is left when a straight line through strop's values over time
    is taken out is shown beside it, with that line for the pooled value.
    """
    lines = [
        f"{'condition':10}{'way':22}{'repeats':>8}{'ratio':>8}{'scatter (1 sd)':>16}{'holds pooled':>14}"
        f"{'scatter, no drift':>19}{'holds line':>12}{'half-width':>12}{'cost s':>8}"
    ]
    for condition in CONDITIONS:
        of_strop = rows.having(way="strop", condition=condition)
        line = np.polyfit(*zip(*((row["repeat"], row["ratio"]) for row in of_strop), strict=True), 1)
        for way in WAYS:
            found = rows.having(way=way, condition=condition)
            logs, low, high, repeat, cost_s = (
                np.asarray([row[name] for row in found]) for name in ("ratio", "low", "high", "repeat", "cost_s")
            )
            pooled, drift = np.mean([row["ratio"] for row in of_strop]), np.polyval(line, repeat)
            lines.append(
                f"{condition:10}{way:22}{len(found):8}{math.exp(logs.mean()):8.3f}{logs.std(ddof=1):16.2%}"
                f"{np.mean((low <= pooled) & (pooled <= high)):14.0%}{(logs - drift).std(ddof=1):19.2%}"
                f"{np.mean((low <= drift) & (drift <= high)):12.0%}{np.median(high - low) / 2:12.2%}"
                f"{np.median(cost_s):8.1f}"
            )
    return lines


if __name__ == "__main__":
    main()
