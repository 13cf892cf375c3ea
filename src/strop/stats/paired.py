"""The speedup of a variant, from blocks of calls that alternate with the reference's, over several instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.stats.bootstrap import tail

RESAMPLES = 2000
TRIMMED = 0.2  # of an instance's pairs at each end: a burst of another process hits one block and not its partner


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval [1]; `half_width` is the interval's relative half-width on the log scale."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Return half of log(high / low)."""
        return float(np.log(self.high / self.low) / 2)


def paired_ratio(instances: Sequence[np.ndarray], rng: np.random.Generator) -> Ratio:
    """Return the ratio of the reference's time to the variant's.

    Args:
        instances: for each instance the logarithm of (reference's time / variant's time) of each pair of blocks,
            float64, shape (pairs,), pairs >= 1.
        rng: draws the resamples.

    Returns:
        The geometric mean over instances of the trimmed geometric mean over an instance's pairs. The interval is a
        hierarchical bootstrap: instances are drawn with replacement, and pairs within them; so it knows that a
        session's own luck is one draw, however many calls were timed in it. One instance alone tells nothing of
        that: its interval is 0 to infinity.

    Raises:
        ValueError: there is no instance, or one without a pair.
    """
    if not instances or any(pairs.size == 0 for pairs in instances):
        raise ValueError("at least one instance with a pair of blocks is needed")
    centres = np.asarray([trimmed_mean(pairs[None, :])[0] for pairs in instances])
    ratio = float(np.exp(centres.mean()))
    n = len(instances)
    if n == 1:
        return Ratio(ratio, 0.0, float("inf"))
    within = np.stack(
        [trimmed_mean(pairs[rng.integers(0, pairs.size, (RESAMPLES, pairs.size))]) for pairs in instances]
    )
    drawn = rng.integers(0, n, (RESAMPLES, n))
    means = within[drawn, rng.integers(0, RESAMPLES, (RESAMPLES, n))].mean(axis=1)
    low, high = np.quantile(means, [tail(n), 1 - tail(n)])
    return Ratio(ratio, float(np.exp(min(low, centres.mean()))), float(np.exp(max(high, centres.mean()))))


def trimmed_mean(rows: np.ndarray) -> np.ndarray:
    """Return the mean of each row without its lowest and highest fifth, float64, shape (rows,)."""
    cut = int(TRIMMED * rows.shape[1])
    ordered = np.sort(rows, axis=1)
    mean: np.ndarray = ordered[:, cut : rows.shape[1] - cut].mean(axis=1)
    return mean
