"""The speedup of a variant, from blocks of calls that alternate with the reference's, over several instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.stats.bootstrap import CONFIDENCE

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
        that: its interval is 0 to infinity. The instances' means scatter by their pairs' noise already; so that it
        does not count twice, what pairs add is shrunk by sqrt(instances).

    Source of the levels: A. Davison, D. Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8.

    Raises:
        ValueError: there is no instance, or one without a pair.
    """
    from scipy.stats import t

    if not instances or any(pairs.size == 0 for pairs in instances):
        raise ValueError("at least one instance with a pair of blocks is needed")
    centres = np.asarray([trimmed_mean(pairs[None, :])[0] for pairs in instances])
    ratio = float(np.exp(centres.mean()))
    n = len(instances)
    if n == 1:
        return Ratio(ratio, 0.0, float("inf"))
    noise = np.stack([_noise(pairs, rng) for pairs in instances]) / np.sqrt(n)
    drawn = rng.integers(0, n, (RESAMPLES, n))
    means = (centres[drawn] + noise[drawn, rng.integers(0, RESAMPLES, (RESAMPLES, n))]).mean(axis=1)
    # Of few instances the resamples' percentiles end too soon; their spread, with t's quantile, does not.
    half = float(means.std() * np.sqrt(n / (n - 1)) * t.ppf(0.5 + CONFIDENCE / 2, n - 1))
    return Ratio(ratio, ratio * float(np.exp(-half)), ratio * float(np.exp(half)))


def _noise(pairs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return resampled errors of the trimmed mean of an instance's pairs, float64, shape (RESAMPLES,).

    A resample may hold an outlier several times, which no trimming takes out: so winsorized values are drawn, and
    the error of their mean is put to the scale of the trimmed mean's. Source: J. Tukey, D. McLaughlin, "Less
    vulnerable confidence and significance procedures for location based on a single sample", Sankhya A 25 (1963).
    """
    cut = int(TRIMMED * pairs.size)
    ordered = np.sort(pairs)
    winsorized = np.clip(ordered, ordered[cut], ordered[pairs.size - 1 - cut])
    means = winsorized[rng.integers(0, pairs.size, (RESAMPLES, pairs.size))].mean(axis=1)
    errors: np.ndarray = (means - winsorized.mean()) / (1 - 2 * cut / pairs.size)
    return errors


def trimmed_mean(rows: np.ndarray) -> np.ndarray:
    """Return the mean of each row without its lowest and highest fifth, float64, shape (rows,)."""
    cut = int(TRIMMED * rows.shape[1])
    ordered = np.sort(rows, axis=1)
    mean: np.ndarray = ordered[:, cut : rows.shape[1] - cut].mean(axis=1)
    return mean
