"""Warm-up that ends by evidence: when the time of the same calls neither drifts nor jumps any more.

A steady state is the absence of change, in both directions: sessions that slow down (a leak, a CPU that throttles) are
as little steady as those that still get faster. What ends in no steady state is an outcome of its own: E. Barrett,
C. F. Bolz-Tereick, R. Killick, S. Mount, L. Tratt, "Virtual machine warmup blows hot and cold", OOPSLA 2017. They
look for change points in 2,000 iterations, afterwards; here the question is asked after every window, and every window
costs a study time. So a change is suspected early: a false alarm costs a window, a missed change the measurement.

What this cannot see: a change that comes after the windows (a step at the tenth, where six were level); a change over
six windows that is smaller than about three standard deviations of one; and a cycle, where the windows lie around its
turning point or hold whole cycles. Whole cycles average out over the blocks that are timed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

FEWEST_WINDOWS = 6  # of fewer no order is so improbable that a rank test could tell
MOST_WINDOWS = 16  # that are looked at: a neighbour's bursts which come and go keep no session unsteady for ever
LOOKED_AT = 2 / 3  # of all windows so far: a slow change has time to show
SUSPECT_P = 0.2
LEAST_CHANGE = 0.02  # relative to the median; less would not change a ratio that is known to 2 %
ORDERS = 20_000  # random ones that Pettitt's statistic is held against


def has_trend(windows_s: Sequence[float]) -> bool:
    """Return whether times of the same work, in order [s], drift up or down.

    They do if the Mann-Kendall test finds a trend (exact, two-sided, p < 20 %) and the Theil-Sen line changes by at
    least 2 % of the median from the first window to the last. Both are of ranks and medians: some windows that a burst
    of another process hit change little. Sources: H. Mann, "Nonparametric tests against trend", Econometrica 13
    (1945) 245-259; M. Kendall, "A new measure of rank correlation", Biometrika 30 (1938) 81-93; P. Sen, "Estimates of
    the regression coefficient based on Kendall's tau", JASA 63 (1968) 1379-1389.
    """
    from scipy.stats import kendalltau, theilslopes

    times_s = np.asarray(windows_s, dtype=np.float64)
    slope_s = theilslopes(times_s).slope
    if abs(slope_s) * (times_s.size - 1) < LEAST_CHANGE * np.median(times_s):
        return False
    return bool(kendalltau(np.arange(times_s.size), times_s).pvalue < SUSPECT_P)


def has_step(windows_s: Sequence[float]) -> bool:
    """Return whether times of the same work, in order [s], jump from one level to another.

    They do if Pettitt's change-point test finds one (p < 20 %), or if the first windows, two or more, stand apart from
    the rest: by a gap wider than the scatter of either side. No rank test sees a step in the last two of six windows,
    however high. One window alone that stands apart is a burst, unless it is the last: the next one will tell. Both
    sides' medians must differ by at least 2 % of the median of all.

    Source: A. Pettitt, "A non-parametric approach to the change-point problem", Applied Statistics 28 (1979) 126-135.
    His formula for p is for long series; here it is the share of random orders with as large a statistic.
    """
    times_s = np.asarray(windows_s, dtype=np.float64)
    n = times_s.size
    statistic = _pettitt(times_s)
    at = int(statistic.argmax()) + 1
    chance = float(np.mean(_pettitt_by_chance(n) >= statistic.max() - 1e-9))
    places = [place for place in range(2, n) if _stand_apart(times_s[:place], times_s[place:])]
    if chance < SUSPECT_P:
        places.append(at)
    steps_s = [abs(float(np.median(times_s[:place]) - np.median(times_s[place:]))) for place in places]
    return bool(max(steps_s, default=0.0) >= LEAST_CHANGE * np.median(times_s))


def _pettitt(times_s: np.ndarray) -> np.ndarray:
    """Return Pettitt's |U| [1] for a change after each window but the last, shape (windows - 1,)."""
    from scipy.stats import rankdata

    n = times_s.shape[-1]
    sums = np.cumsum(rankdata(times_s, axis=-1), axis=-1)[..., :-1]
    return np.asarray(np.abs(2 * sums - np.arange(1, n) * (n + 1)))


@functools.cache
def _pettitt_by_chance(n: int) -> np.ndarray:
    """Return the largest |U| of each of many random orders of n windows, float64, shape (ORDERS,)."""
    return np.asarray(_pettitt(np.random.default_rng(0).random((ORDERS, n))).max(axis=-1))


def _stand_apart(first_s: np.ndarray, second_s: np.ndarray) -> bool:
    gap_s = max(first_s.min() - second_s.max(), second_s.min() - first_s.max())
    return bool(gap_s > max(np.ptp(first_s), np.ptp(second_s)))


def is_steady(windows_s: Sequence[float]) -> bool:
    """Return whether the last two thirds of all windows so far, six to 16 of them, show neither a trend nor a step.

    Args:
        windows_s: times of the same work, in order [s], six or more.
    """
    looked_at = min(max(FEWEST_WINDOWS, math.ceil(LOOKED_AT * len(windows_s))), MOST_WINDOWS)
    last_s = windows_s[-looked_at:]
    return not has_trend(last_s) and not has_step(last_s)


def warm_up(window: Callable[[], float], most_s: float, clock: Callable[[], float]) -> tuple[bool, list[float]]:
    """Repeat the same calls until their time is steady.

    Args:
        window: makes the calls and returns their time [s].
        most_s: longest warm-up [s]; at least six windows are done all the same.
        clock: monotonic clock [s].

    Returns:
        Whether it became steady, and the time of each window [s].
    """
    began = clock()
    windows_s: list[float] = []
    while True:
        windows_s.append(window())
        if len(windows_s) < FEWEST_WINDOWS:
            continue
        if is_steady(windows_s):
            return True, windows_s
        if clock() - began > most_s:
            return False, windows_s
