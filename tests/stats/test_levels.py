"""The scatter of each level is found again, and time is split over the levels as costs and scatter ask."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.stats.levels import Levels, best_count, levels


def drawn(rng, processes, sessions, pairs, process_sd, session_sd, pair_sd):
    found, places = [], []
    for process in range(processes):
        luck = rng.normal(0, process_sd)
        for _ in range(sessions):
            found.append(luck + rng.normal(0, session_sd) + rng.normal(0, pair_sd, pairs))
            places.append(process)
    return found, places


def test_each_levels_scatter_is_found_again():
    rng = np.random.default_rng(1)
    found = levels(*drawn(rng, 400, 4, 10, 0.01, 0.02, 0.03))
    assert found.process == pytest.approx(0.01, rel=0.2)
    assert found.session == pytest.approx(0.02, rel=0.1)
    assert found.pair == pytest.approx(0.03, rel=0.05)


def test_a_level_that_does_not_scatter_is_near_zero():
    rng = np.random.default_rng(2)
    found = levels(*drawn(rng, 400, 4, 10, 0.0, 0.02, 0.03))
    assert found.process < 0.005


def test_what_cannot_be_told_is_none():
    one = [np.asarray([0.1, 0.2])]
    assert levels(one, [0]) == Levels(None, None, pytest.approx(np.std([0.1, 0.2], ddof=1)))
    assert levels([np.asarray([0.1])], [0]) == Levels(None, None, None)
    apart = levels([np.asarray([0.1, 0.1]), np.asarray([0.3, 0.3])], [0, 1])
    assert apart.process is None
    assert apart.session == pytest.approx(np.std([0.1, 0.3], ddof=1))
    together = levels([np.asarray([0.1, 0.1]), np.asarray([0.3, 0.3])], [0, 0])
    assert together.process is None
    assert together.session == pytest.approx(np.std([0.1, 0.3], ddof=1))


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(1e-6, 1), st.floats(1e-6, 1))
@settings(max_examples=60)
def test_the_best_count_is_the_cheapest(cost, cost_above, variance, variance_above):
    """Scatter times time: (V + v / r) (C + c r) is least at the count."""

    def price(count):
        return (variance_above + variance / count) * (cost_above + cost * count)

    best = best_count(cost, cost_above, variance, variance_above)
    assert price(best) <= min(price(best * 0.9), price(best * 1.1))


def test_nothing_above_that_scatters_means_one_unit_for_all():
    assert best_count(1.0, 1.0, 1.0, 0.0) == float("inf")
