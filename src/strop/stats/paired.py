"""The speedup of a variant, from blocks of calls that alternate with the reference's, over several instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.stats.bootstrap import CONFIDENCE
from strop.stats.levels import between_and_inside

TRIMMED = 0.2  # of the values at each end: a burst of another process hits one block and not its partner
FEWEST_TRIMMED = 7  # instances; of fewer, what is left tells too little of the spread


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval [1]; `half_width` is the interval's relative half-width on the log scale."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Return half of log(high / low), infinite if one of them is unknown."""
        return float(np.log(self.high / self.low) / 2) if self.low > 0 else float("inf")


def paired_ratio(instances: Sequence[np.ndarray], processes: Sequence[int] | None = None) -> Ratio:
    """Return the ratio of the reference's time to the variant's.

    Args:
        instances: for each instance (a fresh session of both) the logarithm of (reference's time / variant's time) of
            each pair of blocks, float64, shape (pairs,), pairs >= 1.
        processes: for each instance the number of its process; None: each had its own.

    Returns:
        The geometric trimmed mean over instances of the trimmed mean over an instance's pairs. The interval is of the
        instances' values alone: however many pairs an instance has, and however they follow each other, its own luck is
        one draw. One instance tells nothing of that: its interval is 0 to infinity.

    The interval is Tukey's and McLaughlin's for a trimmed mean, with t's quantile, which is right for few instances and
    heavy tails: J. Tukey, D. McLaughlin, "Less vulnerable confidence and significance procedures for location based on
    a single sample", Sankhya A 25 (1963) 331-352. Instances of one process that resemble each other count for less, by
    the design effect of cluster sampling: L. Kish, "Survey Sampling" (1965), section 5.4. That the means of the highest
    level carry the variance of all those below is Kalibera's and Jones's (ISMM 2013), section 6.

    Raises:
        ValueError: there is no instance, or one without a pair.
    """
    from scipy.stats import t

    if not instances or any(pairs.size == 0 for pairs in instances):
        raise ValueError("at least one instance with a pair of blocks is needed")
    centres = np.asarray([trimmed_mean(pairs) for pairs in instances])
    n = len(centres)
    cut = int(TRIMMED * n) if n >= FEWEST_TRIMMED else 0
    centre = float(np.sort(centres)[cut : n - cut].mean())
    if n == 1:
        return Ratio(float(np.exp(centre)), 0.0, float("inf"))
    ordered = np.sort(centres)
    spread = np.clip(ordered, ordered[cut], ordered[n - 1 - cut]).std(ddof=1) / (1 - 2 * cut / n)
    alike = 1.0 if processes is None else design_effect(centres, processes)
    freedom = max(1.0, (n - 2 * cut) / alike - 1)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom) * spread * np.sqrt(alike / n))
    return Ratio(*(float(np.exp(centre + side * half)) for side in (0, -1, 1)))


def design_effect(values: np.ndarray, groups: Sequence[int]) -> float:
    """Return by how much the variance of a mean is larger than of as many values without groups [1], at least 1.

    Args:
        values: float64, shape (values,).
        groups: for each value the number of its group.
    """
    numbers = np.asarray(groups)
    between, inside = between_and_inside(values, numbers)
    if between is None or inside is None or between <= 0:
        return 1.0
    counts = np.unique(numbers, return_counts=True)[1]
    size = float((counts**2).sum()) / len(values)
    return 1 + (size - 1) * between / (between + inside)


def trimmed_mean(values: np.ndarray) -> float:
    """Return the mean of a vector without its lowest and highest fifth."""
    cut = int(TRIMMED * values.size)
    return float(np.sort(values)[cut : values.size - cut].mean())
