"""How often equals are called different: `python benchmarks/false_alarms.py [--comparisons 100]`.

The same artifact, MiniLM in float32 on ONNX Runtime, is compared with itself in strop's way, with the default settings,
while a neighbour on every CPU works in bursts. Each comparison starts everything anew. Rows are kept in
results/benchmarks/, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import Rows, built, bursts, compared, folder_of, progress

from strop.measure.paired import Rules


def main() -> None:
    """Measure what is missing, and print the share of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=100, help="[1]")
    parser.add_argument("--max-time-s", type=float, default=20.0, help="longest time of one [s]")
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
    missed = [row for row in rows.rows if not row["low"] <= 1.0 <= row["high"]]
    logs = np.log([row["ratio"] for row in rows.rows])
    halves = [np.log(row["high"] / row["low"]) / 2 for row in rows.rows]
    print(f"{len(rows.rows)} comparisons of a model with itself under bursts, {len(missed)} declared different")
    print(f"scatter (1 sd) {logs.std(ddof=1):.2%}, mean {logs.mean():+.2%}, median half-width {np.median(halves):.2%}")
    for row in missed:
        print(f"  number {row['number']}: {row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]")


if __name__ == "__main__":
    main()
