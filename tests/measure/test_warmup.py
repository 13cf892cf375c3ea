"""Warm-up ends when times neither drift nor jump any more, and not by a count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.measure.warmup import FEWEST_WINDOWS, MOST_WINDOWS, has_step, has_trend, is_steady, warm_up

LIMIT_S = 200.0


def run(times):
    """Warm up on windows of these times [s], within 200 s."""
    clock = {"now": 0.0}
    left = iter(times)

    def window():
        clock["now"] += (taken := next(left))
        return taken

    return warm_up(window, LIMIT_S, lambda: clock["now"])


def noisy(shape, rng, noise=0.01, windows=400):
    """Times of windows [s]: a shape over their numbers, with noise of a relative standard deviation."""
    return np.asarray([shape(n) for n in range(windows)]) * np.exp(rng.normal(0, noise, windows))


def lengths(shape, noise=0.01, repeats=100):
    """Return the numbers of windows until sessions of this shape were steady, infinite for those that never were."""
    rng = np.random.default_rng(1)
    found = [run(noisy(shape, rng, noise)) for _ in range(repeats)]
    return np.asarray([len(windows) if steady else math.inf for steady, windows in found])


def test_level_times_end_at_once():
    steady, windows = run([1.0] * 100)
    assert steady
    assert len(windows) == FEWEST_WINDOWS


def bursts(chance, share):
    """Return a shape: a neighbour makes each window slower by a share of its time with this chance."""
    rng = np.random.default_rng(2)
    return lambda _: 1 + share * (rng.random() < chance)


@pytest.mark.parametrize("noise", [0.005, 0.03])
@pytest.mark.parametrize("shape", [lambda _: 1.0, bursts(0.3, 0.3), bursts(0.3, 2.0), bursts(0.1, 20.0)])
def test_noise_and_bursts_cost_a_steady_session_few_windows(shape, noise):
    found = lengths(shape, noise, 300)
    assert np.median(found) == 6
    assert np.quantile(found, 0.95) <= 12
    assert found.max() < 30


def test_bursts_that_come_and_go_keep_no_session_unsteady_for_ever():
    for phase in range(20):
        found = lengths(lambda n, phase=phase: 1.5 if (n + phase) // 10 % 2 else 1.0, repeats=3)
        assert found.max() < 30


def test_times_that_fall_go_on_until_they_are_level():
    found = lengths(lambda n: 1 + 4 * math.exp(-n / 6), repeats=20)
    assert found.min() > 24  # 4 exp(-24 / 6) = 7 %
    assert found.max() < 70


def test_a_compilation_at_the_third_call_is_waited_for_and_what_follows_is_looked_at():
    found = lengths(lambda n: 20.0 if n == 2 else 1.5 if n < 2 else 1.0)
    assert found.min() >= 7  # four windows at the new level
    assert np.median(found) <= 9


@pytest.mark.parametrize("before", [3, 4, 5])
@pytest.mark.parametrize("level", [1.5, 0.8])
def test_no_session_is_steady_before_a_step_among_its_first_windows_or_just_after_it(before, level):
    found = lengths(lambda n: level if n < before else 1.0)
    assert np.quantile(found, 0.05) >= before + min(before, 4)
    assert np.quantile(found, 0.95) <= 20


def test_a_step_after_six_level_windows_cannot_be_seen():
    assert np.median(lengths(lambda n: 1.5 if n < 10 else 1.0)) == FEWEST_WINDOWS


@pytest.mark.parametrize(("growth", "noise", "share"), [(0.01, 0.0, 1.0), (0.01, 0.005, 0.97), (0.03, 0.01, 0.97)])
def test_a_session_that_slows_down_is_not_steady(growth, noise, share):
    found = lengths(lambda n: (1 + growth) ** n, noise, 30)
    assert np.mean(np.isinf(found)) >= share


def test_so_is_one_that_never_stops_getting_faster():
    steady, windows = run([10 * 0.97**n for n in range(100)])
    assert not steady
    assert sum(windows) > LIMIT_S


@pytest.mark.parametrize(("period", "waited"), [(16, 0.7), (40, 0.85)])
def test_most_cycles_are_waited_for_but_those_at_their_turning_point(period, waited):
    rng = np.random.default_rng(3)
    found = []
    for _ in range(40):
        phase = period * rng.random()
        swing = noisy(lambda n, phase=phase: 1 + 0.15 * math.sin(2 * math.pi * (n + phase) / period), rng, 0.005)
        steady, windows = run(swing)
        found.append(len(windows) if steady else math.inf)
    assert np.mean(np.asarray(found) > FEWEST_WINDOWS) >= waited


def test_time_that_runs_out_in_the_first_windows_still_leaves_six():
    steady, windows = run([100.0 * 1.5**n for n in range(20)])
    assert not steady
    assert len(windows) == FEWEST_WINDOWS


@pytest.mark.parametrize(
    ("times", "trend"),
    [
        ([6, 5, 4, 3, 2, 1], True),
        ([1, 2, 3, 4, 5, 6], True),
        ([1.0, 1.001, 1.002, 1.003, 1.004, 1.005], False),  # beyond chance, and too little to matter
        ([1.0, 1.3, 1.0, 1.3, 1.0, 1.3], False),
        ([1.0, 1.01, 1.02, 9.0, 1.04, 1.05], True),  # whatever one window suffered
    ],
)
def test_a_trend_has_a_direction_and_a_size(times, trend):
    assert has_trend(times) is trend


@pytest.mark.parametrize(
    ("times", "step"),
    [
        ([1.3, 1.31, 1.3, 1.0, 1.01, 1.0], True),
        ([1.0, 1.01, 1.0, 1.01, 1.3, 1.31], True),  # too few for a rank test: they stand apart
        ([1.0, 1.01, 1.0, 1.01, 1.0, 1.3], True),  # one at the end may be the first of many
        ([1.0, 1.01, 1.0, 1.01, 1.3, 1.0], False),  # one before it is a burst
        ([1.3, 1.01, 1.0, 1.01, 1.0, 1.0], False),
        ([1.010, 1.011, 1.010, 1.000, 1.001, 1.0], False),  # 1 %
        ([1.3, 9.0, 1.3, 1.2, 1.0, 1.1, 1.0, 1.05], True),  # Pettitt's test, though a burst widens the scatter
    ],
)
def test_a_step_is_of_more_than_a_burst_and_of_two_percent(times, step):
    assert has_step(times) is step


def test_without_a_change_one_window_in_three_at_most_is_a_false_alarm():
    rng = np.random.default_rng(4)
    for windows in (FEWEST_WINDOWS, 12, MOST_WINDOWS):
        found = [is_steady(np.exp(rng.normal(0, 0.05, 3 * windows // 2)).tolist()) for _ in range(300)]
        assert np.mean(found) > 0.65


@given(st.lists(st.floats(0.5, 2), min_size=6, max_size=30), st.sampled_from([2.0**-20, 2.0**10]))
def test_the_unit_of_time_changes_nothing(times, unit):
    assert is_steady([unit * time for time in times]) == is_steady(times)


@given(st.lists(st.floats(0.5, 2), min_size=6, max_size=16))
def test_a_trend_is_one_in_both_directions(times):
    assert has_trend(times) == has_trend(times[::-1])
