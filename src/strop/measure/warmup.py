"""Warm-up that ends by evidence: when the time of the same calls does not fall any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

FEWEST_WINDOWS = 5
LAST_WINDOWS = 8
TREND_P = 0.05
LEAST_DROP = 0.02  # relative; a trend below it would not change a ratio that is known to 2 %


def has_trend(windows_s: Sequence[float]) -> bool:
    """Return whether times of the same work, in order [s], still fall.

    They do if Kendall's rank correlation with their order is negative beyond chance (p < 5 %) and the later half is
    at least 2 % faster than the earlier. Source: M. Kendall, "A new measure of rank correlation", Biometrika 30 (1938).
    """
    from scipy.stats import kendalltau

    last = np.asarray(windows_s[-LAST_WINDOWS:])
    half = len(last) // 2
    drop = 1 - np.median(last[half:]) / np.median(last[:half])
    if drop < LEAST_DROP:
        return False
    return bool(kendalltau(np.arange(len(last)), last, alternative="less").pvalue < TREND_P)


def warm_up(window: Callable[[], float], most_s: float, clock: Callable[[], float]) -> tuple[bool, list[float]]:
    """Repeat the same calls until their time has no downward trend left.

    Args:
        window: makes the calls and returns their time [s].
        most_s: longest warm-up [s]; at least five windows are done all the same.
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
        if not has_trend(windows_s):
            return True, windows_s
        if clock() - began > most_s:
            return False, windows_s
