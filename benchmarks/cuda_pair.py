"""Two torch variants of MiniLM on a CUDA device, measured in turns. `python benchmarks/cuda_pair.py [--help]`.

The reference is the module in eager mode and float32. The variant is `compile=inductor` or `quantize=bf16`. A control,
the reference against itself, comes first: if its interval misses 1.0, do not trust the other. Built steps are kept in
the results folder. Without a CUDA device: one line, and exit code 2.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from common import built, compared, folder_of

from strop.head_to_head import verdict
from strop.measure.paired import Measurement, Rules
from strop.runtimes.probe import cuda_problem

SWEPT = {"quantize": "none", "compile": "none", "engine": "none"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", default="compile=inductor", choices=["compile=inductor", "quantize=bf16"])
    parser.add_argument(
        "settings", nargs="*", help="of the device, such as device.transfers=within device.cuda_graph=true"
    )
    parser.add_argument("--batch-size", type=int, default=1, help="examples in a call [1]")
    parser.add_argument(
        "--max-time-s", type=float, default=60.0, help="longest time of each of the two comparisons [s]"
    )
    arguments = parser.parse_args()
    if problem := cuda_problem():
        print(f"no CUDA device was found: {problem}", file=sys.stderr)
        return 2
    swept = SWEPT | dict([arguments.variant.split("=")])
    words = [f"{stage}={option}" for stage, option in swept.items()]
    step = list(built([*words, "device=cuda", *arguments.settings]).values())[-1]
    rules = Rules(6, 2.0, arguments.max_time_s, 100, 10**6, 0.02, 0)
    eager = folder_of(step, "reference")
    for name, folder in (("eager float32 again (control)", eager), (arguments.variant, folder_of(step, "source"))):
        show(name, *compared(step, eager, folder, rules, arguments.batch_size))
    return 0


def show(name: str, done: Measurement, facts: dict[str, dict[str, Any]]) -> None:
    """Print the ratio, its interval, the verdict, and how the calls ran."""
    ratio = done.ratio
    print(f"\n{name} against eager float32")
    print(f"  {ratio.ratio:.3f} times as fast (95 % interval {ratio.low:.3f} to {ratio.high:.3f})")
    print(f"  {done.calls} calls of each in {len(done.ratios)} fresh instances, ended by {done.stopped_by}")
    print(f"  {verdict((name, 'eager float32'), (ratio.ratio, ratio.low, ratio.high), 0.0)}")
    print("  " + ", ".join(f"{key}: {value}" for key, value in facts["variant"].items()))


if __name__ == "__main__":
    sys.exit(main())
