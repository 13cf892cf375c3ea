"""What holds for every set of rows: limits, ties, the front, and the one that is shipped."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import MIB, drop, row

from strop.columns import COLUMNS, groups, value_of
from strop.decide import Evidence, decide, noise_floor, sentence
from strop.stats.tails import judge

LIMITS = {"speedup": 1.0, "quality_drop": 0.02, "size_bytes": 3 * MIB}
LIKE_SPEEDUP = ("speedup", "latency_p50_s")


@st.composite
def many_rows(draw, one_width=False):
    """Return rows of few distinct numbers, so that ties are common; with `one_width` all intervals are alike."""
    width = draw(st.sampled_from([0.01, 0.2, 0.6]))

    def one(at):
        speedup = draw(st.sampled_from([0.8, 1.0, 1.5, 2.0, 2.1, None]))
        half = width if one_width else draw(st.sampled_from([0.01, 0.2, 0.6]))
        middle = draw(st.sampled_from([0.0, 0.01, 0.02]))
        return spread(
            row(
                f"v{at}",
                status=draw(st.sampled_from(["ok", "ok", "ok", "unstable", "crashed"])),
                size_bytes=draw(st.sampled_from([MIB, MIB + 1, 2 * MIB, 4 * MIB, None])),
                quality=draw(st.sampled_from([0.8, 0.9, None])),
                latency_p50_s=None if speedup is None else 0.01 / speedup,
                batch_size=draw(st.sampled_from([1, 8])),
                is_reference=at == 0 and not one_width,
            )
            | {"speedup": speedup},
            half,
            middle,
            0.005 if one_width else draw(st.sampled_from([0.0, 0.005, 0.02])),
        )

    return [one(at) for at in range(draw(st.integers(0, 7)))]


def spread(made, half, middle, half_drop):
    """Return a row with these half-widths of its log speedup and of its quality drop."""
    ends = {}
    if made["speedup"] is not None:
        low, high = (made["speedup"] * math.exp(end) for end in (-half, half))
        ends = {"speedup_low": low, "speedup_high": high}
    return {**made, **ends, **drop(middle - half_drop, middle, middle + half_drop)}


def wider(made, factor):
    """Return a row whose intervals are `factor` times as wide."""
    half = 0.0 if made["speedup"] is None else math.log(made["speedup_high"] / made["speedup"])
    middle = made["quality_drop"]
    return spread(made, half * factor, middle, (made["quality_drop_high"] - middle) * factor)


objectives = st.sampled_from(["speedup", "latency_p50_s", "size_bytes", "quality_drop", "quality"])
breakers = st.sampled_from(["size_bytes", "quality", "build_s"])
some_limits = st.sets(st.sampled_from(sorted(LIMITS))).map(lambda names: {name: LIMITS[name] for name in names})


def worth(made, objective):
    """Return value and half-width of a row, more is better; the reference's speedup is 1.0 by definition."""
    name = "speedup" if objective in LIKE_SPEEDUP else objective
    value, column = value_of(made, name), COLUMNS[name]
    if value is None:
        return -math.inf, 0.0
    if name == "speedup":
        half = math.log(made["speedup_high"] / made["speedup_low"]) / 2
        return (0.0, 0.0) if made["is_reference"] else (math.log(value), half)
    half = 0.0 if column.low is None else (made[column.high] - made[column.low]) / 2
    return (value if column.more else -value), half


def ahead(a, b, objective, floor):
    """Return whether a is better than b by more than noise."""
    (ours, our_half), (theirs, their_half) = worth(a, objective), worth(b, objective)
    least = max(math.hypot(our_half, their_half), floor if objective in LIKE_SPEEDUP else 0.0)
    return ours > theirs if math.isinf(theirs) or math.isinf(ours) else ours - theirs > least


@given(many_rows(), some_limits, objectives, breakers)
def test_each_group_ships_one_feasible_row_of_its_first_tie_if_it_has_any(rows, limits, objective, breaker):
    for group in groups(decide(rows, limits, objective, breaker)).values():
        possible = [made for made in group if made["feasible"] and value_of(made, objective) is not None]
        chosen = [made for made in group if made["recommended"]]
        assert len(chosen) == (1 if possible else 0)
        assert all(made in possible and made["tie_group"] == 1 for made in chosen)
        said = sentence(group, objective, tie_breaker=breaker)
        assert said.startswith("Ship " if chosen else "Ship nothing: ")
        tied = sum(made["tie_group"] == 1 for made in group) > 1
        assert ("; tied in " in said) == bool(tied and chosen)


@given(many_rows(), some_limits, objectives)
def test_no_feasible_row_is_better_than_the_shipped_one_by_more_than_noise(rows, limits, objective):
    for group in groups(decide(rows, limits, objective)).values():
        floor = noise_floor(group)
        for best in (made for made in group if made["recommended"]):
            assert not any(ahead(made, best, objective, floor) for made in group if made["feasible"])


@given(many_rows(), some_limits, objectives)
def test_tie_groups_are_a_partition_of_the_feasible_rows_with_leaders_in_order(rows, limits, objective):
    for group in groups(decide(rows, limits, objective)).values():
        assert all((made["tie_group"] is None) != made["feasible"] for made in group)
        numbers = {made["tie_group"] for made in group if made["feasible"]}
        assert numbers == set(range(1, len(numbers) + 1))
        floor, sign = noise_floor(group), 1 if COLUMNS[objective].more else -1

        def value(made, sign=sign):
            found = 1.0 if objective == "speedup" and made["is_reference"] else made[objective]
            return -math.inf if value_of(made, objective) is None else sign * found

        led = [max((made for made in group if made["tie_group"] == at), key=value) for at in sorted(numbers)]
        values = [value(made) for made in led]
        assert values == sorted(values, reverse=True)
        for made in (made for made in group if made["feasible"]):
            own = led[made["tie_group"] - 1]
            if value(own) > value(made):  # of equal values any may lead
                assert not ahead(own, made, objective, floor)


@given(many_rows(), st.floats(1.0, 5.0), objectives)
def test_wider_intervals_take_no_row_out_of_the_first_tie(rows, factor, objective):
    before = decide(rows, {}, objective)
    after = decide([wider(made, factor) for made in rows], {}, objective)
    for narrow, wide in zip(before, after, strict=True):
        assert narrow["tie_group"] != 1 or wide["tie_group"] == 1


@given(many_rows(one_width=True), st.floats(1.0, 5.0), objectives)
def test_wider_intervals_make_no_more_ties(rows, factor, objective):
    """For intervals of one width. A leader with a far wider one than its followers may fall to the leader before it,
    and its followers, told apart without it, then lead groups of their own.
    """
    before = decide(rows, {}, objective)
    after = decide([wider(made, factor) for made in rows], {}, objective)
    for narrow, wide in zip(groups(before).values(), groups(after).values(), strict=True):
        assert len({made["tie_group"] for made in wide}) <= len({made["tie_group"] for made in narrow})


@given(many_rows(), some_limits, objectives)
def test_feasible_rows_meet_all_limits_and_others_say_why(rows, limits, objective):
    decided = decide(rows, limits, objective)
    assert [made["run_id"] for made in decided] == [made["run_id"] for made in rows]
    for made in decided:
        verdicts = {verdict(made, name, limit) for name, limit in limits.items()}
        worst = next((word for word in ("fail", "undecided", "pass") if word in verdicts), None)
        met = made["status"] == "ok" and verdicts <= {"pass"}
        assert made["limits_verdict"] == (worst if made["status"] == "ok" else None)
        assert made["feasible"] is met
        assert (made["infeasible_reason"] is None) is met
        assert made["infeasible_reason"] != ""


def verdict(made, name, limit):
    column, value = COLUMNS[name], value_of(made, name)
    if value is None:
        return "undecided"
    ends = [value, value] if column.low is None else [made[column.low], made[column.high]]
    ends = [1.0, 1.0] if name == "speedup" and made["is_reference"] else ends
    kept = [end >= limit if column.more else end <= limit for end in ends]
    return "pass" if all(kept) else "undecided" if any(kept) else "fail"


@given(many_rows(), st.sampled_from(sorted(LIMITS)), st.floats(-0.5, 3.0), st.floats(0.0, 2.0))
def test_a_looser_limit_makes_no_feasible_row_infeasible(rows, name, scale, more):
    order = ["fail", "undecided", "pass"]
    tight = LIMITS[name] * scale
    loose = tight - more * LIMITS[name] if COLUMNS[name].more else tight + more * LIMITS[name]
    for before, after in zip(*(decide(rows, {name: limit}, "size_bytes") for limit in (tight, loose)), strict=True):
        assert after["feasible"] >= before["feasible"]
        if before["limits_verdict"]:
            assert order.index(after["limits_verdict"]) >= order.index(before["limits_verdict"])


@given(st.lists(st.sampled_from([0.01, 0.02, 0.03]), min_size=1, max_size=700), st.sampled_from([0.015, 0.025, 0.035]))
def test_a_limit_on_a_tail_is_passed_only_with_few_calls_over_it(latencies_s, limit_s):
    found = judge([np.asarray(latencies_s)], 0.99, limit_s)
    evidence = {"run-a": Evidence({"latency_p99_s": found})}
    made = decide([row("a", 2.0)], {"latency_p99_s": limit_s}, "speedup", evidence=evidence)[0]
    share = sum(one > limit_s for one in latencies_s) / len(latencies_s)
    assert made["limits_verdict"] == found.verdict
    assert made["feasible"] == (found.verdict == "pass")
    assert not made["feasible"] or (share < 0.01 and len(latencies_s) >= 459)
    assert made["limits_verdict"] != "fail" or share > 0.01


@given(many_rows(), some_limits, objectives)
def test_a_row_is_off_the_front_only_if_one_outdoes_it_beyond_noise(rows, limits, objective):
    sign = 1 if COLUMNS[objective].more else -1

    def at_least(a, b):
        def scores(made):
            found = [value_of(made, objective), value_of(made, "quality")]
            if objective == "speedup" and made["is_reference"] and found[0] is not None:
                found[0] = sign
            return [-math.inf if number is None else number * by for number, by in zip(found, (sign, 1), strict=True)]

        return all(x >= y for x, y in zip(scores(a), scores(b), strict=True))

    def surely_better_quality(a, b):
        if value_of(a, "quality") is None or value_of(b, "quality") is None:
            return value_of(a, "quality") is not None
        return ahead(a, b, "quality_drop", 0.0)

    for group in groups(decide(rows, limits, objective)).values():
        floor = noise_floor(group)
        feasible = [made for made in group if made["feasible"]]
        assert any(made["pareto"] for made in feasible) == bool(feasible)
        for made in group:
            outdone = any(
                at_least(other, made) and (ahead(other, made, objective, floor) or surely_better_quality(other, made))
                for other in feasible
            )
            assert made["pareto"] == (made["feasible"] and not outdone)


@given(many_rows().flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))), some_limits, objectives)
def test_the_order_of_rows_changes_nothing(both, limits, objective):
    def key(made):
        return made["run_id"]

    rows, shuffled = both
    expected, found = decide(rows, limits, objective), decide(shuffled, limits, objective)
    assert sorted(found, key=key) == sorted(expected, key=key)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_rows_led_by_a_wide_interval_part_when_it_joins_a_better_one(factor):
    """Why the number of ties may grow with wider intervals, if these are not alike."""
    logs = {"first": (1.0, 0.01), "wide": (0.0, 0.95), "third": (-0.1, 0.01), "fourth": (-0.9, 0.01)}
    rows = [spread(row(name, math.exp(at)), half * factor, 0.0, 0.0) for name, (at, half) in logs.items()]
    numbers = [made["tie_group"] for made in decide(rows, {}, "speedup")]
    assert numbers == ([1, 2, 2, 2] if factor == 1.0 else [1, 1, 2, 3])
