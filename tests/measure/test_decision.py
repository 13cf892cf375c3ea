"""When a comparison is decided: by its limits first, then by its rivals, and never by what is not known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.measure.decision import decided, tied, verdict
from strop.measure.paired import Block, Measurement, Turn
from strop.stats.paired import Ratio


def ratio(centre, half):
    return Ratio(centre, centre * math.exp(-half), centre * math.exp(half))


UNKNOWN = Ratio(1.5, 0.0, math.inf)


def done(speedup, latencies_s=(), instances=4):
    found = Measurement(ratio=speedup, ratios=[np.zeros(1)] * instances)
    for at, latency_s in enumerate(latencies_s):
        for arm in ("reference", "variant"):
            times_s = np.asarray([latency_s * (1 + (arm == "reference"))])
            found.turns.append(Turn(at % instances, at, arm, [0], Block(times_s, times_s)))
    return found


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        (ratio(2.0, 0.1), "pass"),
        (ratio(1.2, 0.1), "fail"),
        (ratio(1.5, 0.1), "undecided"),
        (ratio(1.4, 0.1), "undecided"),
        (Ratio(1.6, 1.5, 1.7), "pass"),
        (UNKNOWN, "undecided"),
    ],
)
def test_a_speedup_is_judged_by_its_interval(speedup, expected):
    assert verdict(done(speedup), "speedup", 1.5) == expected


@pytest.mark.parametrize(
    ("slow_calls", "calls", "expected"), [(0, 2000, "pass"), (200, 2000, "fail"), (0, 100, "undecided")]
)
def test_a_tail_is_judged_by_the_variants_own_calls(slow_calls, calls, expected):
    latencies_s = np.random.default_rng(0).permutation([0.02] * slow_calls + [0.007] * (calls - slow_calls))
    assert verdict(done(ratio(2.0, 0.1), latencies_s), "latency_p99_s", 0.01) == expected


speedups = st.builds(ratio, st.floats(0.1, 10), st.floats(0, 1))
wide = st.builds(Ratio, st.floats(0.1, 10), st.just(0.0), st.just(math.inf))
rivals = st.lists(speedups | wide, max_size=4)
limits = st.floats(0.05, 20)


@given(speedups, limits, rivals)
def test_a_failed_limit_decides_whoever_the_rivals_are(speedup, limit, others):
    failed = speedup.high < limit
    assert decided(done(speedup), {"speedup": limit}, others) >= failed


def test_a_failed_limit_decides_although_another_is_passed_and_a_third_is_unknown():
    calls = [0.02] * 500
    found = {"speedup": 1.5, "latency_p99_s": 0.01, "latency_p999_s": 0.1}
    assert decided(done(ratio(2.0, 0.1), calls), found, [])
    assert not decided(done(ratio(2.0, 0.1), calls), {**found, "latency_p99_s": 0.1}, [ratio(1.0, 0.1)])


@given(speedups | wide, rivals)
def test_without_limits_that_timed_calls_can_break_nothing_is_decided(speedup, others):
    assert not decided(done(speedup), {}, others)
    assert not decided(done(speedup), {"quality_drop": 0.0, "size_bytes": 1.0}, others)


@given(speedups | wide, limits)
def test_without_rivals_only_a_failure_decides(speedup, limit):
    assert decided(done(speedup), {"speedup": limit}, []) == (speedup.high < limit)


@given(limits, rivals)
def test_an_interval_that_is_not_known_decides_nothing(limit, others):
    assert not decided(done(UNKNOWN), {"speedup": limit}, others)


@given(speedups, st.lists(speedups, min_size=1, max_size=4), limits)
def test_one_rival_that_is_tied_is_enough_to_go_on(speedup, others, limit):
    if speedup.high >= limit:
        assert not decided(done(speedup), {"speedup": limit}, [*others, speedup])


def test_limits_that_are_passed_and_rivals_that_are_apart_decide():
    assert decided(done(ratio(2.0, 0.05)), {"speedup": 1.5}, [ratio(1.2, 0.05), ratio(3.0, 0.05)])
    assert not decided(done(ratio(2.0, 0.05)), {"speedup": 1.5}, [ratio(1.2, 0.05), ratio(1.95, 0.05)])
    assert not decided(done(ratio(2.0, 0.05)), {"speedup": 1.5}, [ratio(1.2, 0.05), UNKNOWN])
    too_few = done(ratio(2.0, 0.05), [0.007] * 100)
    assert not decided(too_few, {"speedup": 1.5, "latency_p99_s": 0.01}, [ratio(1.2, 0.05)])


@given(speedups | wide, speedups | wide)
def test_a_tie_is_symmetric_and_wider_intervals_never_end_one(a, b):
    assert tied(a, b) == tied(b, a)
    assert tied(a, a)
    if tied(a, b) and a.low > 0:
        assert tied(Ratio(a.ratio, a.low / 2, a.high * 2), b)


def test_a_tie_is_of_both_intervals_together():
    assert tied(ratio(1.0, 0.03), ratio(math.exp(0.049), 0.04))
    assert not tied(ratio(1.0, 0.03), ratio(math.exp(0.051), 0.04))
