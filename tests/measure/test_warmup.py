"""Warm-up ends when times do not fall any more, and not by a count."""

import math

import numpy as np
import pytest

from strop.measure.warmup import FEWEST_WINDOWS, has_trend, warm_up


def run(times):
    clock = {"now": 0.0}
    left = iter(times)

    def window():
        clock["now"] += (taken := next(left))
        return taken

    return warm_up(window, 30.0, lambda: clock["now"])


def test_flat_times_end_at_once():
    steady, windows = run([1.0] * 100)
    assert steady
    assert len(windows) == FEWEST_WINDOWS


def test_falling_times_go_on_until_they_are_flat():
    steady, windows = run([0.1 * (1 + 4 * math.exp(-n / 6)) for n in range(200)])
    assert steady
    assert 12 < len(windows) < 60


def test_time_runs_out():
    steady, windows = run([10 * 0.9**n for n in range(100)])
    assert not steady
    assert sum(windows) > 30


def test_noise_is_no_trend():
    rng = np.random.default_rng(0)
    found = [has_trend(np.exp(rng.normal(0, 0.05, 8))) for _ in range(300)]
    assert np.mean(found) < 0.08


@pytest.mark.parametrize(
    ("times", "trend"), [([5, 4, 3, 2, 1], True), ([1, 2, 3, 4, 5], False), ([1.0, 0.999] * 4, False)]
)
def test_direction_and_size_count(times, trend):
    assert has_trend(times) is trend
