"""The interval of a speedup knows the levels of its variance, and pairing removes what both arms share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.stats.paired import paired_ratio, trimmed_mean


def simulated(rng, ratio, instances=6, pairs=10, session_sd=0.02, block_sd=0.03):
    """Log ratios of instances with luck of their own."""
    centres = np.log(ratio) + rng.normal(0, session_sd, instances)
    return [centre + rng.normal(0, block_sd, pairs) for centre in centres]


@pytest.mark.parametrize(("instances", "pairs"), [(3, 10), (6, 10), (10, 4)])
def test_the_interval_holds_the_truth_as_often_as_it_says(instances, pairs):
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        found = paired_ratio(simulated(rng, 1.0, instances, pairs), rng)
        held += found.low <= 1.0 <= found.high
    assert held / 300 >= 0.93


def test_more_calls_of_the_same_sessions_do_not_buy_certainty():
    rng = np.random.default_rng(3)
    few = paired_ratio(simulated(rng, 2.0, pairs=10), rng)
    many = paired_ratio(simulated(rng, 2.0, pairs=1000), rng)
    assert many.half_width > 0.4 * few.half_width
    assert many.low <= 2.0 <= many.high


def test_a_burst_in_one_block_moves_nothing():
    rng = np.random.default_rng(5)
    calm = simulated(rng, 1.5, session_sd=0.0, block_sd=0.01)
    hit = [pairs.copy() for pairs in calm]
    hit[0][0] += np.log(10)
    assert paired_ratio(hit, np.random.default_rng(0)).ratio == pytest.approx(
        paired_ratio(calm, np.random.default_rng(0)).ratio, rel=0.005
    )


def test_one_instance_alone_tells_nothing_of_the_spread():
    found = paired_ratio([np.log([2.0, 2.0, 2.0])], np.random.default_rng(0))
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), 0.0, float("inf"))


@pytest.mark.parametrize("instances", [[], [np.zeros(0)], [np.zeros(3), np.zeros(0)]])
def test_nothing_measured_is_an_error(instances):
    with pytest.raises(ValueError, match="at least one instance"):
        paired_ratio(instances, np.random.default_rng(0))


@given(
    st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=12), min_size=2, max_size=6),
    st.floats(0.1, 10),
)
@settings(max_examples=40)
def test_scaling_scales_and_swapping_inverts(instances, factor):
    arrays = [np.asarray(pairs) for pairs in instances]
    found = paired_ratio(arrays, np.random.default_rng(1))
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)
    scaled = paired_ratio([pairs + np.log(factor) for pairs in arrays], np.random.default_rng(1))
    assert scaled.ratio == pytest.approx(found.ratio * factor)
    swapped = paired_ratio([-pairs for pairs in arrays], np.random.default_rng(1))
    assert swapped.ratio == pytest.approx(1 / found.ratio)


def test_trimmed_mean_drops_a_fifth_at_each_end():
    assert trimmed_mean(np.asarray([[100.0, 1.0, 2.0, 3.0, -50.0]])) == pytest.approx([2.0])
    assert trimmed_mean(np.asarray([[1.0, 2.0]])) == pytest.approx([1.5])
