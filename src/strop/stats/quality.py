"""Paired comparison of quality: the same examples, scored once by the reference and once by the variant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from strop.stats.bootstrap import CONFIDENCE, tail

RESAMPLES = 4000
VISIBLE = 0.01  # of the scores' range: a smaller difference of an example shows nothing of how much others may differ


@dataclass(frozen=True)
class QualityDrop:
    """How much worse a variant's scores are than the reference's.

    Attributes:
        drop: mean of the reference's scores minus mean of the variant's, in the score's unit; below 0: a gain.
        low, high: ends of its 95 % interval.
        examples: pairs of scores.
        lost: examples that the reference scores higher; gained: examples that the variant scores higher.
        p_value: exact McNemar p of `lost` against `gained` [1]; 1 if there are neither.
        binary: whether all scores are 0 or 1, so that the interval is Tango's and not the bootstrap's.
        carriers: effective number of examples that differ from the others [1]: see `carriers_of`.
    """

    drop: float
    low: float
    high: float
    examples: int
    lost: int
    gained: int
    p_value: float
    binary: bool
    carriers: float


def quality_drop(reference: np.ndarray, variant: np.ndarray, rng: np.random.Generator) -> QualityDrop:
    """Compare scores of the same examples in the same order.

    Args:
        reference: its scores, float, shape (examples,), all finite; a higher score is better.
        variant: its scores, likewise.
        rng: draws the bootstrap's samples, for scores other than 0 and 1.

    Returns:
        The drop with Tango's interval for scores of 0 and 1, else with a bootstrap interval. The range of other scores
        is taken as 1 if all lie from 0 to 1, else as that of the scores at hand.

    Raises:
        ValueError: the shapes differ, or there is no example.
    """
    if reference.shape != variant.shape or reference.ndim != 1 or reference.size == 0:
        raise ValueError(f"scores must be two vectors of one length >= 1, got {reference.shape} and {variant.shape}")
    difference = reference.astype(np.float64) - variant.astype(np.float64)
    lost, gained = int(np.sum(difference > 0)), int(np.sum(difference < 0))
    drop = float(reference.mean(dtype=np.float64) - variant.mean(dtype=np.float64))
    binary = bool(np.isin(reference, (0, 1)).all() and np.isin(variant, (0, 1)).all())
    span = _span(np.concatenate([reference, variant]).astype(np.float64))
    if binary:
        drop = (lost - gained) / difference.size
        low, high = tango_interval(lost, gained, difference.size)
    else:
        low, high = bootstrap_interval(difference, span, rng)
    return QualityDrop(
        drop=drop,
        low=min(low, drop),
        high=max(high, drop),
        examples=difference.size,
        lost=lost,
        gained=gained,
        p_value=mcnemar_p_value(lost, gained),
        binary=binary,
        carriers=carriers_of(difference, span),
    )


def _span(scores: np.ndarray) -> float:
    """Return the range of scores [their unit]; shares, which lie from 0 to 1, may take all of that."""
    low, high = float(scores.min()), float(scores.max())
    return 1.0 if low >= 0 and high <= 1 else high - low


def examples_needed(drop: QualityDrop, limit: float) -> int | None:
    """Return about how many examples in all would tell whether the drop keeps a limit, if it stays as observed.

    An interval of `low` <= `limit` < `high` does not tell. With t times as many examples like these, Tango's score
    statistic at the limit grows by sqrt(t). A bootstrap interval of n examples and c carriers is as wide as
    sqrt(c + 4) / (n + 4): its width shrinks by sqrt(t) if carriers are many, and by t if there are none and all of it
    is its floor. Counted is until the upper end is at the limit, or the lower one where the drop is above it.

    Args:
        drop: as observed.
        limit: highest drop that is acceptable, in the score's unit.

    Returns:
        Examples in all [1], those at hand included. None where they tell already, and where no number would or none can
        be named: the drop is the limit, or there is one example with a score other than 0 and 1.
    """
    from scipy.stats import norm

    if not drop.low <= limit < drop.high or limit == drop.drop:
        return None
    if drop.binary:
        wanted = float(norm.ppf(0.5 + CONFIDENCE / 2))
        times = (wanted / _score(limit, drop.lost, drop.gained, drop.examples)) ** 2
    else:
        width = drop.high - drop.drop if limit > drop.drop else drop.drop - drop.low
        times = _times(abs(width / (limit - drop.drop)), drop.carriers, drop.examples)
    return max(drop.examples + 1, math.ceil(times * drop.examples)) if math.isfinite(times) else None


def _times(shrink: float, carriers: float, examples: int) -> float:
    """Return how many times as many examples make a bootstrap interval narrower by a factor of `shrink` [1].

    It solves (t c + 4) / (t n + 4)^2 = (c + 4) / (n + 4)^2 / shrink^2 for t.
    """
    square = shrink**2
    linear = square * carriers * (examples + 4) / examples
    constant = 4 * square * (1 - carriers / examples)
    grown = (linear + math.sqrt(linear**2 + 4 * (carriers + 4) * constant)) / (2 * (carriers + 4))
    return (grown * (examples + 4) - 4) / examples


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


def carriers_of(difference: np.ndarray, span: float) -> float:
    """Return the effective number of examples that carry the scatter of a difference [1], 0 if none does visibly.

    It is Kish's effective size (sum of w)^2 / sum of w^2 for weights w = (difference - median)^2, over the examples
    that are farther from the median than a hundredth of `span`: if k of many lose equally it is k, and one large loss
    among many small ones counts as little more than one. Source: L. Kish, "Survey Sampling" (1965), section 11.7.

    Args:
        difference: float64, shape (examples,).
        span: range that the scores can take, in their unit.
    """
    weights = _visible(difference - np.median(difference), span) ** 2
    return float(weights.sum() ** 2 / (weights**2).sum()) if weights.size else 0.0


def _visible(deviation: np.ndarray, span: float) -> np.ndarray:
    visible: np.ndarray = deviation[np.abs(deviation) > VISIBLE * span]
    return visible


def bootstrap_interval(
    difference: np.ndarray, span: float, rng: np.random.Generator, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return a percentile bootstrap interval of the mean of paired differences, which keeps a width where few differ.

    Resamples know no difference that the sample has not, so where few examples differ their interval is too narrow (of
    100 examples with one in a hundred lost it holds the truth in 63 %), and where none does it has no width. So two
    pseudo examples are added at median + s and two at median - s, as A. Agresti and Y. Min add half a pair to each cell
    of paired proportions ("Simple improved confidence intervals for comparing matched proportions", Statistics in
    Medicine 24 (2005) 729-740). Their distance s is the root mean square of those of the c carriers (`carriers_of`),
    with `span` as a further one of weight 1 / (c + 1): if none differs, s is the whole range, and the width near that
    of Tango's interval; if many do, four more change little. For the failure of other intervals of means of mostly
    zeros see A. Kvanli, Y. Shen, L. Deng, Journal of Business & Economic Statistics 16 (1998) 362-368.

    The differences are sorted first, so that the order of the examples changes nothing.

    Args:
        difference: float64, shape (examples,), examples >= 1.
        span: range that the scores can take, in their unit.
        rng: draws the resamples.
        confidence: of the interval [1].

    Returns:
        Its ends, infinite where nothing tells the spread: of one example, or without a range.
    """
    if difference.size == 1 or span == 0:
        return -np.inf, np.inf
    ordered = np.sort(np.concatenate([difference, _pseudo_examples(difference, span)]))
    n = ordered.size
    at_once = max(1, 2_000_000 // n)  # resamples drawn together: bounds the memory at some tens of MB
    sizes = [min(at_once, RESAMPLES - done) for done in range(0, RESAMPLES, at_once)]
    means = np.concatenate([ordered[rng.integers(0, n, (size, n))].mean(axis=1) for size in sizes])
    end = tail(difference.size, confidence)
    low, high = np.quantile(means, [end, 1 - end])
    return float(low), float(high)


def _pseudo_examples(difference: np.ndarray, span: float) -> np.ndarray:
    median, carriers = np.median(difference), carriers_of(difference, span)
    squares = float((_visible(difference - median, span) ** 2).sum())
    size = math.sqrt((squares + span**2 / (carriers + 1)) / (carriers + 1 / (carriers + 1)))
    return np.asarray(median + size * np.asarray([-1, -1, 1, 1]))


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Return the exact two-sided p of McNemar's test: is `lost` against `gained` more than a fair coin's luck?

    Source: Q. McNemar, Psychometrika 12 (1947) 153-157; exact binomial form.
    """
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained, 0.5).pvalue) if lost + gained else 1.0
