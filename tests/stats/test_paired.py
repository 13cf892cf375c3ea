"""The interval of a speedup knows the levels of its variance, and pairing removes what both arms share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.stats.paired import design_effect, paired_ratio, trimmed_mean


def simulated(rng, processes=6, sessions=1, pairs=10, *, process_sd=0.0, session_sd=0.02, pair_sd=0.03, tail=0.0):
    """Log ratios of instances with luck of their own, and the process of each."""
    found, places = [], []
    for process in range(processes):
        luck = rng.normal(0, process_sd)
        for _ in range(sessions):
            centre = luck + rng.normal(0, session_sd)
            centre += rng.standard_t(2) * 0.05 if rng.random() < tail else 0.0
            noise = rng.normal(0, pair_sd, pairs) if not tail else rng.standard_t(2, pairs) * pair_sd
            found.append(centre + noise)
            places.append(process)
    return found, places


@pytest.mark.parametrize(
    ("shape", "noise"),
    [
        ((3, 1), {}),
        ((6, 1), {}),
        ((6, 1), {"tail": 0.15}),
        ((12, 1), {"session_sd": 0.0}),
        ((12, 1), {"tail": 0.15}),
        ((4, 3), {"process_sd": 0.01}),
        ((3, 4), {"process_sd": 0.005}),
    ],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(shape, noise):
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(500):
        found = paired_ratio(*simulated(rng, *shape, **noise))
        held += found.low <= 1.0 <= found.high
    assert 0.92 <= held / 500 <= 0.985


def test_pairs_that_follow_each_other_are_no_news():
    """Neighbouring pairs are alike (0.8): an interval that takes them for independent would hold the truth rarely."""
    rng = np.random.default_rng(2)
    held = naive = 0
    for _ in range(300):
        instances = []
        for _ in range(6):
            series = np.zeros(20)
            for at in range(1, 20):
                series[at] = 0.8 * series[at - 1] + rng.normal(0, 0.03)
            instances.append(series)
        found = paired_ratio(instances)
        held += found.low <= 1.0 <= found.high
        each = paired_ratio(list(np.concatenate(instances)[:, None]))
        naive += each.low <= 1.0 <= each.high
    assert held / 300 >= 0.92
    assert naive / 300 < 0.8


def test_more_calls_of_the_same_sessions_do_not_buy_certainty():
    rng = np.random.default_rng(3)
    few = paired_ratio(*simulated(rng, pairs=10))
    many = paired_ratio(*simulated(rng, pairs=1000))
    assert many.half_width > 0.4 * few.half_width
    assert many.low <= 1.0 <= many.high


def test_a_burst_in_one_pair_or_one_instance_moves_little():
    calm, _ = simulated(np.random.default_rng(5), 10, session_sd=0.002, pair_sd=0.01)
    pair_hit = [pairs.copy() for pairs in calm]
    pair_hit[0][0] += np.log(10)
    instance_hit = [calm[0] + np.log(2), *calm[1:]]
    for hit in (pair_hit, instance_hit):
        assert paired_ratio(hit).ratio == pytest.approx(paired_ratio(calm).ratio, rel=0.01)


def test_one_instance_alone_tells_nothing_of_the_spread():
    found = paired_ratio([np.log([2.0, 2.0, 2.0])])
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), 0.0, float("inf"))
    assert found.half_width == float("inf")


@pytest.mark.parametrize("instances", [[], [np.zeros(0)], [np.zeros(3), np.zeros(0)]])
def test_nothing_measured_is_an_error(instances):
    with pytest.raises(ValueError, match="at least one instance"):
        paired_ratio(instances)


LOGS = st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=12), min_size=2, max_size=12)


@given(LOGS, st.floats(0.1, 10))
@settings(max_examples=60)
def test_scaling_scales_swapping_inverts_and_order_does_not_matter(instances, factor):
    arrays = [np.asarray(pairs) for pairs in instances]
    found = paired_ratio(arrays)
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)
    scaled = paired_ratio([pairs + np.log(factor) for pairs in arrays])
    assert scaled.ratio == pytest.approx(found.ratio * factor)
    swapped = paired_ratio([-pairs for pairs in arrays])
    assert swapped.ratio == pytest.approx(1 / found.ratio)
    assert swapped.half_width == pytest.approx(found.half_width)
    assert paired_ratio(arrays[::-1]).half_width == pytest.approx(found.half_width)


@given(LOGS, st.lists(st.integers(0, 4), min_size=12, max_size=12))
@settings(max_examples=60)
def test_shared_processes_never_narrow_an_interval(instances, processes):
    arrays = [np.asarray(pairs) for pairs in instances]
    own, shared = paired_ratio(arrays), paired_ratio(arrays, processes[: len(arrays)])
    assert shared.ratio == pytest.approx(own.ratio)
    assert shared.half_width >= own.half_width * (1 - 1e-9)


def test_instances_of_one_process_that_are_alike_count_as_one():
    alike = np.repeat([0.0, 0.1, 0.2, 0.3], 3)
    assert design_effect(alike, np.repeat(range(4), 3)) == pytest.approx(3)
    assert design_effect(alike, range(12)) == 1.0
    mixed = np.tile([0.0, 0.1, 0.2], 4)
    assert design_effect(mixed, np.repeat(range(4), 3)) == 1.0


def test_trimmed_mean_drops_a_fifth_at_each_end():
    assert trimmed_mean(np.asarray([100.0, 1.0, 2.0, 3.0, -50.0])) == pytest.approx(2.0)
    assert trimmed_mean(np.asarray([1.0, 2.0])) == pytest.approx(1.5)
