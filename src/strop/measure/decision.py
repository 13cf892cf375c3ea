"""Is a comparison decided, so that more samples would change nothing? Limits first, then the rivals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from strop.columns import QUANTILES, TIMED_LIMITS
from strop.measure.paired import Measurement
from strop.stats.paired import Ratio
from strop.stats.tails import judge


def decided(done: Measurement, limits: Mapping[str, float], rivals: Sequence[Ratio]) -> bool:
    """Return whether the limits are passed or one is failed, with confidence, and no rival is tied with the variant.

    A variant that fails a limit is out, whoever leads. One that passes all is compared with every rival that was
    measured before, as the leader among them is known only when their quality is.

    Args:
        done: so far.
        limits: column -> least speedup, or longest latency [s]; those that are not of `strop.columns.TIMED_LIMITS` are
            passed over.
        rivals: speedups of the other variants against the same reference.
    """
    verdicts = [verdict(done, name, limit) for name, limit in limits.items() if name in TIMED_LIMITS]
    if "fail" in verdicts:
        return True
    passed = bool(verdicts) and all(found == "pass" for found in verdicts)
    return passed and bool(rivals) and not any(tied(done.ratio, rival) for rival in rivals)


def verdict(done: Measurement, name: str, limit: float) -> str:
    """Return `pass`, `fail` or `undecided` for one limit on the variant."""
    if name in QUANTILES:
        return judge(done.latencies("variant"), QUANTILES[name], limit).verdict
    if done.ratio.low >= limit:
        return "pass"
    return "fail" if done.ratio.high < limit else "undecided"


def tied(a: Ratio, b: Ratio) -> bool:
    """Return whether two speedups, measured independently, cannot be told apart at 95 % confidence."""
    if not math.isfinite(a.half_width) or not math.isfinite(b.half_width):
        return True
    return abs(float(np.log(a.ratio / b.ratio))) <= math.hypot(a.half_width, b.half_width)
