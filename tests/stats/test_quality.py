"""Intervals of a quality drop hold the truth, and agree with what is published."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, multinomial, t

from strop.stats import quality
from strop.stats.quality import (
    bootstrap_interval,
    carriers_of,
    examples_needed,
    mcnemar_p_value,
    quality_drop,
    tango_interval,
)


def test_tango_agrees_with_his_own_examples():
    """Tango 1998, section 6: 9 against 3 of 32 pairs; and 0 against 1 of 44, of which he gives the lower 90 % limit."""
    assert tango_interval(9, 3, 32) == (pytest.approx(-0.027, abs=0.0005), pytest.approx(0.390, abs=0.0005))
    assert tango_interval(0, 1, 44, confidence=0.9)[0] == pytest.approx(-0.096, abs=0.0005)


def test_mcnemar_is_the_exact_binomial():
    assert mcnemar_p_value(0, 0) == 1.0
    assert mcnemar_p_value(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_p_value(3, 3) == 1.0


@pytest.mark.parametrize("truth", [0.0, 0.01, 0.05])
def test_the_interval_holds_the_truth(truth):
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(300):
        outcome = rng.choice(3, 1000, p=[0.03 + truth, 0.03, 0.94 - truth])
        reference, variant = (outcome != 1).astype(float), (outcome != 0).astype(float)
        found = quality_drop(reference, variant, rng)
        held += found.low <= truth <= found.high
    assert held / 300 >= 0.92


def test_equal_answers_still_leave_a_width():
    same = np.ones(200)
    found = quality_drop(same, same, np.random.default_rng(0))
    assert found.drop == 0
    assert 0 < found.high == pytest.approx(3.84 / (200 + 3.84), rel=0.01)


def test_scores_other_than_0_and_1_are_resampled():
    rng = np.random.default_rng(1)
    reference = rng.random(400)
    found = quality_drop(reference, reference - 0.1 + rng.normal(0, 0.05, 400), rng)
    assert found.low < 0.1 < found.high
    assert bootstrap_interval(np.asarray([1.0]), 1.0, rng) == (-np.inf, np.inf)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(60, 500))
@settings(max_examples=60)
def test_gain_and_loss_mirror(lost, gained, examples):
    low, high = tango_interval(lost, gained, examples)
    assert low <= (lost - gained) / examples <= high
    mirrored = tango_interval(gained, lost, examples)
    assert mirrored == (pytest.approx(-high, abs=1e-9), pytest.approx(-low, abs=1e-9))


@pytest.mark.parametrize("shapes", [(3, 4), (0, 0)])
def test_unequal_or_empty_scores_are_an_error(shapes):
    with pytest.raises(ValueError, match="two vectors of one length"):
        quality_drop(np.ones(shapes[0]), np.ones(shapes[1]), np.random.default_rng(0))


def scores(lost, gained, examples):
    """Scores of 0 and 1 with so many examples lost and gained."""
    reference, variant = np.ones(examples), np.ones(examples)
    variant[:lost] = 0
    reference[lost : lost + gained] = 0
    return reference, variant


@pytest.mark.parametrize(("lost", "gained", "examples"), [(1, 0, 44), (9, 3, 100), (0, 0, 30), (40, 20, 160)])
def test_at_tangos_ends_the_score_test_of_the_most_likely_proportions_just_rejects(lost, gained, examples):
    for drop, score in zip(tango_interval(lost, gained, examples), (1.96, -1.96), strict=True):

        def surprise(share, drop=drop):
            shares = np.clip([share + drop, share, 1 - 2 * share - drop], 1e-300, 1)
            return -np.dot([lost, gained, examples - lost - gained], np.log(shares))

        share = minimize_scalar(
            surprise, bounds=(max(0.0, -drop), (1 - drop) / 2), method="bounded", options={"xatol": 1e-10}
        ).x
        variance = examples * (2 * share + drop - drop**2)
        assert (lost - gained - examples * drop) / np.sqrt(variance) == pytest.approx(score, abs=0.001)


@pytest.mark.parametrize("shares", [(0.05, 0.05), (0.1, 0.02), (0.01, 0.01), (0.02, 0.0), (0.3, 0.2)])
def test_tangos_coverage_is_exactly_near_95_percent_or_above_even_of_40_examples(shares):
    examples, truth, held = 40, shares[0] - shares[1], 0.0
    chance = multinomial(examples, [*shares, 1 - sum(shares)])
    for lost in range(examples + 1):
        for gained in range(examples + 1 - lost):
            probability = chance.pmf([lost, gained, examples - lost - gained])
            if probability > 1e-6:
                low, high = tango_interval(lost, gained, examples)
                held += probability * (low <= truth <= high)
    assert held >= 0.935


@pytest.mark.parametrize("skewed", [False, True])
def test_the_bootstraps_interval_holds_the_truth(skewed):
    rng = np.random.default_rng(4)
    draws = rng.exponential(1, (300, 60)) if skewed else rng.normal(1, 2, (300, 60))
    intervals = [bootstrap_interval(difference, np.ptp(difference), rng) for difference in draws]
    assert 0.91 <= np.mean([low <= 1 <= high for low, high in intervals]) <= 0.985


@given(st.integers(0, 30), st.integers(0, 30), st.integers(60, 500), st.floats(-0.2, 0.2))
@settings(max_examples=150)
def test_so_many_examples_of_right_or_wrong_decide_and_a_few_percent_less_do_not(lost, gained, examples, limit):
    drop = quality_drop(*scores(lost, gained, examples), np.random.default_rng(0))
    assume(abs(limit - drop.drop) > 1e-4)
    needed = examples_needed(drop, limit)
    assert (needed is not None) == (drop.low <= limit < drop.high)
    if needed is not None:
        for share, decided in ((0.97, False), (1.03, True)):
            times = share * needed / examples
            low, high = tango_interval(lost * times, gained * times, examples * times)
            assert (not low <= limit < high) == decided or abs(times - 1) < 0.05


def test_equal_answers_on_100_examples_leave_a_limit_of_one_point_open_until_380():
    drop = quality_drop(*scores(0, 0, 100), np.random.default_rng(0))
    assert drop.high == pytest.approx(0.037, abs=0.0005)
    assert examples_needed(drop, 0.01) == pytest.approx(380, abs=1)  # z^2 / (n + z^2) = 0.01
    assert examples_needed(drop, 0.05) is None
    assert examples_needed(drop, 0.0) is None


@pytest.mark.parametrize("limit", [0.1, 0.04])
def test_so_many_examples_of_other_scores_decide_and_clearly_fewer_do_not(limit):
    rng = np.random.default_rng(8)
    reference = rng.random(50)
    difference = rng.normal(0, 0.2, 50)
    variant = reference - 0.07 - (difference - difference.mean())
    needed = examples_needed(quality_drop(reference, variant, rng), limit)
    for times, decided in ((0.8, False), (1.2, True)):
        more = np.resize(np.arange(50), round(times * needed / 50) * 50)
        found = quality_drop(reference[more], variant[more], rng)
        assert (not found.low <= limit < found.high) == decided


def test_one_example_of_another_score_tells_no_number():
    drop = quality_drop(np.asarray([0.4]), np.asarray([0.3]), np.random.default_rng(0))
    assert (drop.low, drop.high) == (-np.inf, np.inf)
    assert examples_needed(drop, 0.2) is None


def lost(examples, differing, size):
    """Differences of which some are of one size, and the others 0."""
    difference = np.zeros(examples)
    difference[:differing] = size
    return difference


@pytest.mark.parametrize("size", [1.0, 0.3])
@pytest.mark.parametrize("examples", [50, 100, 200, 400])
def test_where_few_examples_lose_the_interval_still_holds_the_truth(examples, size):
    """Exactly, over all counts of examples that differ: 63 % and less for a plain bootstrap, if 1 of 100 differs."""
    for share in (0.01, 0.03, 0.1):
        held = 0.0
        for differing in range(examples + 1):
            chance = binom.pmf(differing, examples, share)
            if chance > 1e-5:
                difference = lost(examples, differing, size)
                low, high = bootstrap_interval(difference, 1.0, np.random.default_rng(0))
                held += chance * (min(low, difference.mean()) <= share * size <= max(high, difference.mean()))
        assert held >= 0.93


@pytest.mark.parametrize("noise", [0.0, 0.001])
@pytest.mark.parametrize(("share", "examples"), [(0.01, 100), (0.03, 50), (0.03, 400), (0.1, 200)])
def test_so_it_does_where_few_differ_by_unlike_sizes_in_both_directions(share, examples, noise, monkeypatch):
    monkeypatch.setattr(quality, "RESAMPLES", 1000)
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        sizes = rng.beta(0.7, 1.4, examples) * rng.choice([1, -1], examples, p=[0.8, 0.2])
        difference = sizes * (rng.random(examples) < share) + rng.normal(0, noise, examples)
        low, high = bootstrap_interval(difference, 1.0, rng)
        held += low <= share * 0.6 / 3 <= high
    assert held / 300 >= 0.93


@pytest.mark.parametrize(("drop", "spread"), [(0.03, 0.2), (0.03, 0.05), (0.3, 0.05), (0.3, 0.02)])
def test_where_all_differ_the_interval_is_hardly_wider_than_students(drop, spread):
    rng = np.random.default_rng(6)
    ratios = []
    for _ in range(20):
        difference = rng.normal(drop, spread, 200)
        low, high = bootstrap_interval(difference, 1.0, rng)
        ratios.append((high - low) / (2 * t.ppf(0.975, 199) * difference.std(ddof=1) / np.sqrt(200)))
    assert 0.98 <= np.mean(ratios) <= 1.04


@pytest.mark.parametrize("noise", [0.0, 1e-9])
@pytest.mark.parametrize("examples", [5, 200])
def test_equal_scores_leave_tangos_width_even_if_they_are_not_quite_equal(examples, noise):
    rng = np.random.default_rng(7)
    reference = np.linspace(0.2, 0.8, examples)
    found = quality_drop(reference, reference + rng.normal(0, noise, examples), rng)
    floor = tango_interval(0, 0, examples)[1]
    assert found.high == pytest.approx(floor, rel=0.55 if examples < 10 else 0.06)
    assert found.high >= floor
    assert found.low == pytest.approx(-found.high, rel=0.05)


def test_the_range_is_one_of_shares_and_else_that_of_the_scores():
    def width(reference):
        found = quality_drop(reference, reference, np.random.default_rng(0))
        return found.high - found.low

    scores_of = np.linspace(0.2, 0.8, 100)
    assert width(50 * scores_of) == pytest.approx(30 * width(scores_of), rel=0.01)
    assert width(np.full(100, 7.0)) == np.inf  # no example tells how far scores may be apart


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_carriers_are_no_more_than_the_examples_that_differ_from_the_median(values):
    difference = np.asarray(values)
    differing = int(np.sum(np.abs(difference - np.median(difference)) > 0.01))
    found = carriers_of(difference, 1.0)
    assert min(1, differing) * (1 - 1e-9) <= found <= differing * (1 + 1e-9)
    assert carriers_of(4 * difference, 4.0) == pytest.approx(found)


def test_carriers_of_one_size_are_counted_and_one_large_difference_outweighs_many_small_ones():
    assert carriers_of(lost(100, 7, -0.3), 1.0) == pytest.approx(7)
    assert carriers_of(np.r_[1.0, np.full(99, 0.02)], 1.0) < 1.1


@pytest.mark.parametrize(("differing", "limit"), [(0, 0.005), (0, 0.002), (3, 0.02), (3, 0.008), (10, 0.05)])
def test_so_many_examples_decide_where_few_differ_and_clearly_fewer_do_not(differing, limit):
    rng = np.random.default_rng(9)
    difference = lost(100, differing, 0.4)

    def compared(times):
        more = np.tile(difference, times)
        return quality_drop(np.full(more.size, 0.9), 0.9 - more, rng)

    needed = examples_needed(compared(1), limit)
    for share, decided in ((0.75, False), (1.3, True)):
        found = compared(round(share * needed / 100))
        assert (not found.low <= limit < found.high) == decided
