"""How often equals are called different: `python benchmarks/false_alarms.py [--comparisons 100]`.

The same artifact, MiniLM in float32 on ONNX Runtime, is compared with itself in strop's way, with the default settings,
while a neighbour on every CPU works in bursts. Each comparison starts everything anew. Rows are kept in
results/benchmarks/, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from common import Rows, built, bursts, compared, folder_of, progress

from strop.decide import noise_floor
from strop.measure.paired import Rules


def main() -> None:
    """Measure what is missing, and print the share of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=100, help="[1]")
    parser.add_argument("--max-time-s", type=float, default=10.0, help="longest time of one [s]")
    arguments = parser.parse_args()
    step = built(["quantize=none", "compile=none", "engine=onnxruntime"])["onnxruntime"]
    folder = folder_of(step, "source")
    rows, began = Rows("false_alarms"), time.monotonic()
    at_start = len(rows.rows)
    for number in range(at_start, arguments.comparisons):
        with bursts(number):
            rules = Rules(6, 2.0, arguments.max_time_s, 100, 10**6, 0.02, number)
            done, _ = compared(step, folder, folder, rules)
        rows.add(number=number, ratio=done.ratio.ratio, low=done.ratio.low, high=done.ratio.high,
                 instances=len(done.ratios), stopped_by=done.stopped_by)  # fmt: skip
        progress(number + 1, arguments.comparisons, began, at_start)
    print("\n".join(summary(rows.rows)))


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines: how many intervals miss 1.0, and how many a study would declare different.

    A study ranks nothing below the noise floor of its control; here each comparison's control is the one before it.
    """
    missed = [row for row in rows if not row["low"] <= 1.0 <= row["high"]]
    declared = [row for row, control in zip(rows[1:], rows, strict=False) if row in missed and _over(row, control)]
    logs = np.log([row["ratio"] for row in rows])
    halves = [np.log(row["high"] / row["low"]) / 2 for row in rows]
    return [
        f"{len(rows)} comparisons of a model with itself under bursts",
        f"intervals that miss 1.0: {len(missed)}",
        f"declared different, with the comparison before as the study's control: {len(declared)}",
        f"scatter (1 sd) {logs.std(ddof=1):.2%}, mean {logs.mean():+.2%}, median half-width {np.median(halves):.2%}",
        *(f"  number {row['number']}: {row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in missed),
    ]


def _over(row: dict[str, Any], control: dict[str, Any]) -> bool:
    floor = noise_floor(
        [{"is_reference": True, "speedup": control["ratio"], "speedup_low": control["low"],
          "speedup_high": control["high"]}]
    )  # fmt: skip
    return abs(float(np.log(row["ratio"]))) > floor


if __name__ == "__main__":
    main()
