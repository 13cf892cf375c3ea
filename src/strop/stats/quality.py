"""Paired comparison of quality: the same examples, scored once by the reference and once by the variant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strop.stats.bootstrap import CONFIDENCE, tail

RESAMPLES = 4000


@dataclass(frozen=True)
class QualityDrop:
    """How much worse a variant's scores are than the reference's.

    Attributes:
        drop: mean of the reference's scores minus mean of the variant's, in the score's unit; below 0: a gain.
        low, high: ends of its 95 % interval.
        examples: pairs of scores.
        lost: examples that the reference scores higher; gained: examples that the variant scores higher.
        p_value: exact McNemar p of `lost` against `gained` [1]; 1 if there are neither.
    """

    drop: float
    low: float
    high: float
    examples: int
    lost: int
    gained: int
    p_value: float


def quality_drop(reference: np.ndarray, variant: np.ndarray, rng: np.random.Generator) -> QualityDrop:
    """Compare scores of the same examples in the same order.

    Args:
        reference: its scores, float, shape (examples,), all finite; a higher score is better.
        variant: its scores, likewise.
        rng: draws the bootstrap's samples, for scores other than 0 and 1.

    Returns:
        The drop with Tango's interval for scores of 0 and 1, else with a bootstrap interval.

    Raises:
        ValueError: the shapes differ, or there is no example.
    """
    if reference.shape != variant.shape or reference.ndim != 1 or reference.size == 0:
        raise ValueError(f"scores must be two vectors of one length >= 1, got {reference.shape} and {variant.shape}")
    difference = reference.astype(np.float64) - variant.astype(np.float64)
    lost, gained = int(np.sum(difference > 0)), int(np.sum(difference < 0))
    drop = float(reference.mean(dtype=np.float64) - variant.mean(dtype=np.float64))
    binary = bool(np.isin(reference, (0, 1)).all() and np.isin(variant, (0, 1)).all())
    if binary:
        drop = (lost - gained) / difference.size
        low, high = tango_interval(lost, gained, difference.size)
    else:
        low, high = bootstrap_interval(difference, rng)
    return QualityDrop(
        drop, min(low, drop), max(high, drop), difference.size, lost, gained, mcnemar_p_value(lost, gained)
    )


def tango_interval(lost: int, gained: int, examples: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the score interval of a difference of paired proportions, (lost - gained) / examples [1].

    It inverts the score test, so it keeps a width where no pair is discordant: z^2 / (examples + z^2) on each side.
    Source: T. Tango, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17 (1998) 891-908.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + confidence / 2))

    def limit(lost: int, gained: int) -> float:
        """Return the upper limit, where the score statistic falls to -z."""
        drop, top = (lost - gained) / examples, 1.0 - 1e-12
        if drop >= top or _score(top, lost, gained, examples) > -z:
            return 1.0
        return float(brentq(lambda delta: _score(delta, lost, gained, examples) + z, drop, top, xtol=1e-12))

    return -limit(gained, lost), limit(lost, gained)


def _score(delta: float, lost: int, gained: int, examples: int) -> float:
    """Return Tango's statistic for a true difference `delta`: standard normal if it is that."""
    a = 2 * examples
    b = (2 * examples - lost + gained) * delta - lost - gained
    c = -gained * delta * (1 - delta)
    q = (np.sqrt(b * b - 4 * a * c) - b) / (2 * a)  # share of gained pairs: most likely one under `delta`
    variance = examples * (2 * q + delta * (1 - delta))
    gap = lost - gained - examples * delta
    return float(gap / np.sqrt(variance)) if variance > 0 else float(np.sign(gap) * np.inf if gap else 0.0)


def bootstrap_interval(
    difference: np.ndarray, rng: np.random.Generator, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of paired differences, float64, shape (examples,).

    The differences are sorted first, so that the order of the examples changes nothing. One example alone tells
    nothing of the spread: the interval is infinite.
    """
    n = difference.size
    if n == 1:
        return -np.inf, np.inf
    ordered = np.sort(difference)
    at_once = max(1, 2_000_000 // n)  # resamples drawn together: bounds the memory at some tens of MB
    sizes = [min(at_once, RESAMPLES - done) for done in range(0, RESAMPLES, at_once)]
    means = np.concatenate([ordered[rng.integers(0, n, (size, n))].mean(axis=1) for size in sizes])
    end = tail(n, confidence)
    low, high = np.quantile(means, [end, 1 - end])
    return float(low), float(high)


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Return the exact two-sided p of McNemar's test: is `lost` against `gained` more than a fair coin's luck?

    Source: Q. McNemar, Psychometrika 12 (1947) 153-157; exact binomial form.
    """
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained, 0.5).pvalue) if lost + gained else 1.0
