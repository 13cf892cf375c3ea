"""Tails of latencies: which quantiles a sample can tell, and whether a limit on one holds, with stated confidence.

A sample is a sequence of instances (fresh sessions); each is a vector of latencies [s] in the order of the calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

CONFIDENCE = 0.99
ROUNDING = 1e-9  # share of the variance below which a sum of covariances is nothing but rounding [1]


@dataclass(frozen=True)
class Tail:
    """A quantile of latencies.

    Attributes:
        value_s: the quantile of all calls [s]; None where the calls are too few to bound it.
        calls_needed: calls still needed for a value [1]; 0 where there is one.
    """

    value_s: float | None
    calls_needed: int


@dataclass(frozen=True)
class Verdict:
    """Whether a quantile of latencies keeps a limit.

    Attributes:
        verdict: `pass` or `fail` with the confidence asked for, else `undecided`.
        over: calls over the limit [1]; calls: all calls [1].
        effective: how many independent calls they are worth [1].
        calls_still_needed: of `undecided`, an estimate of the calls still needed [1], if the share of calls over the
            limit and the worth of a call stay as they are. None where a verdict is there, and where the share is just
            what the quantile allows, as no number of calls would decide.
    """

    verdict: Literal["pass", "fail", "undecided"]
    over: int
    calls: int
    effective: float
    calls_still_needed: int | None


def calls_needed(quantile: float, over: int, confidence: float = CONFIDENCE) -> int:
    """Return the fewest calls at which a quantile keeps a limit with confidence though `over` calls were over it.

    It is the least n with P(X <= over) <= 1 - confidence for X binomial (n, 1 - quantile): were the quantile above
    the limit, so few calls over it would be rarer than that. Calls are taken for independent.
    Source: MLPerf Inference rules, appendix "Early Stopping Criterion" (tolerance 0); LoadGen's early_stopping.cc.

    Args:
        quantile: in (0, 1), 0.99 for p99.
        over: calls over the limit [1].
        confidence: in (0, 1).

    Raises:
        ValueError: an argument is out of its range.
    """
    _check(quantile, confidence)
    if over < 0:
        raise ValueError(f"calls over the limit must be 0 or more, got {over}")
    risk = _risk(confidence)
    return _first(lambda calls: _passes(over, calls, quantile, risk), over)


def effective_size(instances: Sequence[np.ndarray]) -> float:
    """Return how many independent calls a series is worth [1], for the error of its mean.

    The series' variance is divided by the variance of its mean. That one is the larger of two estimates: one by the
    autocovariances, summed as far as Geyer's initial monotone sequence goes, which sees neighbours that are alike;
    one by the scatter of whole instances, which sees their luck, too faint for single lags but the same in all of
    them (for m calls an instance and a share rho of the variance between instances: 1 + (m - 1) rho, the design
    effect of cluster samples). As chance makes few instances scatter too, six of independent calls are worth a sixth
    less than their calls on average, twenty a tenth; too small a size only asks for more calls.
    Sources: C. Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992) 473-483;
    L. Kish, "Survey Sampling" (1965).

    Args:
        instances: the series of each instance, float or bool, shape (calls,); those without calls are left out.

    Returns:
        At least 1, at most the number of calls; that number for a constant series, which shows no dependence.
        Instances that are constant each but differ are worth one call each.

    Raises:
        ValueError: there is no call.
    """
    return _size_and_freedom(_with_calls(instances))[0]


def judge(instances: Sequence[np.ndarray], quantile: float, limit_s: float, confidence: float = CONFIDENCE) -> Verdict:
    """Judge whether a quantile of the latencies is at most `limit_s`.

    The binomial rule of `calls_needed` accepts it, and its mirror image refuses it; both take as many calls, and
    calls over the limit, as the sample is worth (`effective_size`), rounded to the less favourable side. The worth
    is that of the series "over the limit or not"; where few calls are over it, that one tells little, so the series
    "over the sample's own quantile or not" is asked too, and the smaller worth counts. Where it is instances that
    differ, the worth is known from few of them only, and the risk of a wrong verdict is cut by t's quantile.
    In simulations at 99 % (latencies whose quantile is the limit) under 1 % of passes were wrong for independent calls,
    1 to 2 % where neighbours correlate by 0.9, 2 to 3 % of three to six instances with much luck of their own.

    Args:
        instances: latencies of each instance in the order of calls [s], float64, shape (calls,).
        quantile: in (0, 1), 0.99 for p99.
        limit_s: the limit [s]; a call of just that time keeps it.
        confidence: in (0, 1), of a pass and of a fail.

    Raises:
        ValueError: there is no call, or an argument is out of its range.
    """
    _check(quantile, confidence)
    series = _with_calls(instances)
    is_over = [latencies > limit_s for latencies in series]
    over, calls = sum(int(flags.sum()) for flags in is_over), sum(flags.size for flags in is_over)
    effective, freedom = min(_size_and_freedom(is_over), _beyond(series, quantile))
    worth, risk = effective / calls, _risk(confidence, freedom)
    if _passes(_up(over * worth), _down(effective), quantile, risk):
        return Verdict("pass", over, calls, effective, None)
    if _fails(_down(over * worth), _up(effective), quantile, risk):
        return Verdict("fail", over, calls, effective, None)
    if math.isclose(over / calls, 1 - quantile, rel_tol=1e-9):
        return Verdict("undecided", over, calls, effective, None)

    def decides(size: int) -> bool:
        """Return whether as many independent calls would, of more instances likewise."""
        risk = _risk(confidence, freedom * size / effective)
        if over / calls < 1 - quantile:
            return _passes(-(-size * over // calls), size, quantile, risk)
        return _fails(size * over // calls, size, quantile, risk)

    needed = _up(_first(decides, _up(effective)) / worth)
    return Verdict("undecided", over, calls, effective, max(1, needed - calls))


def quantile(instances: Sequence[np.ndarray], q: float, confidence: float = CONFIDENCE) -> Tail:
    """Return a quantile of all calls, where they are enough for the slowest of them to bound it with confidence.

    Args:
        instances: latencies of each instance in the order of calls [s], float64, shape (calls,).
        q: in (0, 1), 0.99 for p99.
        confidence: in (0, 1); at 0.99, p50 takes 7 independent calls, p90 44, p99 459, p99.9 4603.

    Raises:
        ValueError: there is no call, or an argument is out of its range.
    """
    needed = calls_needed(q, 0, confidence)
    series = _with_calls(instances)
    calls, effective = sum(latencies.size for latencies in series), _beyond(series, q)[0]
    if _down(effective) >= needed:
        return Tail(float(np.quantile(np.concatenate(series), q)), 0)
    return Tail(None, max(1, _up(needed * calls / effective) - calls))


def _check(quantile: float, confidence: float) -> None:
    """Raise a ValueError unless both lie between 0 and 1."""
    if not (0 < quantile < 1 and 0 < confidence < 1):
        raise ValueError(f"quantile and confidence must lie between 0 and 1, got {quantile} and {confidence}")


def _with_calls(instances: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the instances that hold calls."""
    series = [values for values in instances if values.size]
    if not series:
        raise ValueError("at least one call is needed")
    return series


def _beyond(series: Sequence[np.ndarray], q: float) -> tuple[float, float]:
    """Return size and freedom of the series "over the sample's own quantile or not"."""
    edge = np.quantile(np.concatenate(series), q)
    return _size_and_freedom([latencies > edge for latencies in series])


def _size_and_freedom(series: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return what a series is worth in independent calls, and the degrees of freedom that this is known from [1].

    Those are infinite where neighbours tell it all. Of k instances, what these scatter beyond it has k - 1; the sum of
    both has more, by F. Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics
    Bulletin 2 (1946) 110-114.
    """
    pooled = np.concatenate(series)
    calls = pooled.size
    if np.all(pooled == pooled[0]):
        return float(calls), math.inf
    deviations = [values - pooled.mean() for values in series]
    by_lags, by_instances = _by_lags(deviations, calls), _by_instances(deviations, calls)
    of_mean = max(by_lags, by_instances)
    if of_mean <= 0:  # neighbours that offset each other
        return float(calls), math.inf
    luck = of_mean - max(by_lags, 0.0)
    freedom = (len(series) - 1) * (of_mean / luck) ** 2 if luck > 0 else math.inf
    # Around the sample's own mean the series' variance comes out too small by that of the mean: hence + 1.
    return min(float(calls), float(pooled.var()) / of_mean + 1), freedom


def _by_lags(deviations: Sequence[np.ndarray], calls: int) -> float:
    """Return the variance of the mean by Geyer's initial monotone sequence of autocovariances within instances."""
    longest = max(values.size for values in deviations)
    room = 1 << (2 * longest - 1).bit_length()  # twice the length, so that no lag wraps around
    power = np.sum([np.abs(np.fft.rfft(values, room)) ** 2 for values in deviations], axis=0)
    lags = longest + longest % 2
    pairs = (np.fft.irfft(power, room)[:lags] / calls).reshape(-1, 2).sum(axis=1)
    variance = float(np.mean(np.concatenate(deviations) ** 2))
    ends = np.flatnonzero(pairs <= ROUNDING * variance)
    used = int(ends[0]) if ends.size else pairs.size
    total = 2 * float(np.minimum.accumulate(pairs[:used]).sum()) - variance
    # Around the sample's own mean each product comes out too small by the variance sought: put right for all used.
    lag = np.arange(1, 2 * used)
    products = sum(int(np.maximum(values.size - lag, 0).sum()) for values in deviations)
    left = 1 - (calls + 2 * products) / calls**2
    return total / calls / max(left, 1 / calls)


def _by_instances(deviations: Sequence[np.ndarray], calls: int) -> float:
    """Return the variance of the mean by the sums of whole instances; 0 for one, which shows no luck."""
    count = len(deviations)
    if count == 1:
        return 0.0
    return sum(float(values.sum()) ** 2 for values in deviations) * count / (count - 1) / calls**2


def _passes(over: int, calls: int, quantile: float, risk: float) -> bool:
    """Return whether `over` of `calls` over the limit are too few for a quantile above it."""
    from scipy.special import betainc

    return calls > over and bool(betainc(calls - over, over + 1, quantile) <= risk)


def _fails(over: int, calls: int, quantile: float, risk: float) -> bool:
    """Return whether `over` of `calls` over the limit are too many for a quantile that keeps it."""
    from scipy.special import betainc

    return over > 0 and bool(betainc(over, calls - over + 1, 1 - quantile) <= risk)


def _risk(confidence: float, freedom: float = math.inf) -> float:
    """Return the probability of a wrong verdict to allow, where the calls' worth is known from so many degrees."""
    from scipy.special import ndtr, stdtrit

    risk = (1 - confidence) * (1 + 1e-12)  # room for the last digits of floats, where a probability equals it
    return risk if math.isinf(freedom) else float(ndtr(stdtrit(freedom, risk)))


def _first(decides: Callable[[int], bool], above: int) -> int:
    """Return a number above `above` that decides while the one before it does not (or is `above`)."""
    low, step = above, 1
    while not decides(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def _down(size: float) -> int:
    """Round down, but not past an integer that floats missed by their last digits."""
    return math.floor(size * (1 + 1e-12))


def _up(size: float) -> int:
    """Round up, likewise."""
    return math.ceil(size * (1 - 1e-12))
