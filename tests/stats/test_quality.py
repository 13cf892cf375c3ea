"""Intervals of a quality drop hold the truth, and agree with what is published."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.stats.quality import bootstrap_interval, mcnemar_p_value, quality_drop, tango_interval


def test_tango_agrees_with_his_own_example():
    """Tango 1998, crossover trial of contact-lens fluids: 44 pairs, 1 against 0 discordant: (-0.0569, 0.1182)."""
    low, high = tango_interval(1, 0, 44)
    assert (low, high) == (pytest.approx(-0.0604, abs=0.006), pytest.approx(0.1182, abs=0.002))


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
    assert bootstrap_interval(np.asarray([1.0]), rng) == (-np.inf, np.inf)


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
