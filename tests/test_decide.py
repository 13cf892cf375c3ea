"""Which variant to ship: limits, ties, groups, and the sentence that says it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.columns import COLUMNS, groups, value_of, with_interval
from strop.decide import control, decide, losers, sentence, ties
from strop.errors import StropError

MIB = 2**20
LOAD = {"model": "m", "dataset": "d", "device": "cpu", "threads": 1, "scenario": "single_stream", "batch_size": 1}


def row(variant, speedup=None, half=0.05, **more):
    """Return a row of the summary as a measurement leaves it; the speedup's interval is `half` wide to each side."""
    numbers = {}
    if speedup is not None:
        numbers = {"speedup": speedup, "speedup_low": speedup - half, "speedup_high": speedup + half}
    known = {"variant": variant, "run_id": f"run-{variant}", "is_reference": False, "status": "ok", "error": None,
             "size_bytes": 100 * MIB, "quality": 0.9, "artifact": f"engine/{variant}"}  # fmt: skip
    return {**known, **LOAD, **numbers, **more}


def reference(speedup=1.0, half=0.01, **more):
    return row("eager", speedup, half, **{"is_reference": True, "size_bytes": 200 * MIB, "artifact": "model/m", **more})


def drop(low, middle, high, **more):
    return {"quality_drop": middle, "quality_drop_low": low, "quality_drop_high": high, "examples": 872, **more}


def by_name(rows):
    return {made["variant"]: made for made in rows}


def shipped(rows):
    return [made["variant"] for made in rows if made["recommended"]]


def test_a_limit_is_held_against_the_less_favourable_end():
    rows = [row("sure", 2.0, **drop(0.0, 0.004, 0.009)), row("unsure", 3.0, **drop(0.0, 0.004, 0.011))]
    decided = by_name(decide(rows, {"quality_drop": 0.01}, "speedup"))
    assert (decided["sure"]["feasible"], decided["unsure"]["feasible"]) == (True, False)
    rows = [row("narrow", 2.0, half=0.1), row("wide", 2.0, half=0.6)]
    decided = by_name(decide(rows, {"speedup": 1.5}, "speedup"))
    assert (decided["narrow"]["feasible"], decided["wide"]["feasible"]) == (True, False)


def test_a_limit_that_is_just_met_is_met():
    rows = [row("a", 2.0, half=0.5, size_bytes=64 * MIB, **drop(0.0, 0.005, 0.01))]
    limits = {"speedup": 1.5, "size_bytes": 64 * MIB, "quality_drop": 0.01}
    assert decide(rows, limits, "speedup")[0]["feasible"]


@pytest.mark.parametrize(
    ("numbers", "limits", "reason"),
    [
        (drop(0.0, 0.004, 0.0163), {"quality_drop": 0.01},
         "quality drop may be up to 1.63 points (limit 1.00; measured 0.40 on 872 examples)"),
        ({"speedup": 1.52, "speedup_low": 1.41, "speedup_high": 1.6}, {"speedup": 1.5},
         "speedup may be as low as 1.41 (limit 1.50; measured 1.52)"),
        ({"latency_p99_s": 0.0123}, {"latency_p99_s": 0.01}, "p99 latency is 12.30 ms (limit 10.00, 23% over)"),
        ({"size_bytes": 96 * MIB}, {"size_bytes": 64 * MIB}, "size is 96.00 MiB (limit 64.00, 50% over)"),
        ({"quality": 0.88}, {"quality": 0.9}, "quality is 88.00 % (limit 90.00, 2% under)"),
        ({"latency_p50_s": 0.010001}, {"latency_p50_s": 0.01}, "median latency is 10.001 ms (limit 10.000, 0% over)"),
        ({"latency_p99_s": None}, {"latency_p99_s": 0.01}, "p99 latency was not measured (limit 10.00 ms)"),
        ({"latency_p99_s": math.nan}, {"latency_p99_s": 0.01}, "p99 latency was not measured (limit 10.00 ms)"),
    ],
)  # fmt: skip
def test_what_a_row_lacks_is_said_in_units_of_people(numbers, limits, reason):
    decided = decide([row("a", **numbers)], limits, "size_bytes")[0]
    assert decided["infeasible_reason"] == reason
    assert not decided["feasible"]
    assert not decided["recommended"]


def test_all_limits_that_are_broken_are_named():
    made = row("a", 2.0, size_bytes=96 * MIB, latency_p50_s=0.02)
    limits = {"size_bytes": 64 * MIB, "speedup": 1.0, "latency_p50_s": 0.01}
    reason = decide([made], limits, "speedup")[0]["infeasible_reason"]
    assert reason == "size is 96.00 MiB (limit 64.00, 50% over); median latency is 20.00 ms (limit 10.00, 100% over)"


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        ("unstable", "blocks differ by 40 %", "unstable: blocks differ by 40 %"),
        ("unstable", None, "unstable: no steady state was found"),
        ("crashed", "killed by SIGSEGV", "crashed: killed by SIGSEGV"),
        ("blocked", "engine/1 was not run", "blocked: engine/1 was not run"),
        ("timeout", None, "timeout"),
    ],
)
def test_a_row_that_is_not_ok_is_not_shipped_and_says_why(status, error, reason):
    decided = decide([reference(), row("fast", 9.0, status=status, error=error)], {}, "speedup")
    assert by_name(decided)["fast"]["infeasible_reason"] == reason
    assert shipped(decided) == ["eager"]


def test_pareto_rows_are_those_that_no_feasible_row_beats():
    rows = [
        row("fast", 4.0, quality=0.80),
        row("good", 2.0, quality=0.90),
        row("worse", 1.9, quality=0.85),
        row("equal", 2.0, quality=0.90),
        row("best of all", 9.0, quality=0.99, size_bytes=999 * MIB),
    ]
    decided = decide(rows, {"size_bytes": 500 * MIB}, "speedup")
    assert [made["variant"] for made in decided if made["pareto"]] == ["fast", "good", "equal"]


def test_without_labels_agreement_stands_for_quality():
    rows = [row("same", 1.5, quality=None, fidelity=0.99), row("other", 1.4, quality=None, fidelity=0.90)]
    assert [made["pareto"] for made in decide(rows, {}, "speedup")] == [True, False]


def test_a_tie_is_resolved_by_size_in_two_digits():
    rows = [row("leader", 2.02, size_bytes=100 * MIB), row("small", 1.98, size_bytes=25 * MIB),
            row("smallest", 1.5, size_bytes=1 * MIB)]  # fmt: skip
    decided = decide(rows, {}, "speedup")
    assert shipped(decided) == ["small"]
    assert [made["variant"] for made in ties(decided, "speedup")] == ["leader", "small"]


def test_a_tie_of_like_sizes_is_resolved_by_quality():
    rows = [row("a", 2.02, size_bytes=100_100_000, quality=0.90), row("b", 2.0, size_bytes=100_400_000, quality=0.91)]
    assert shipped(decide(rows, {}, "speedup")) == ["b"]


def test_a_row_far_below_the_leader_is_no_tie_though_their_intervals_touch():
    rows = [row("leader", 3.7, half=0.35, size_bytes=22 * MIB), row("small", 3.0, half=0.6, size_bytes=1 * MIB)]
    decided = decide(rows, {}, "speedup")
    assert [made["variant"] for made in ties(decided, "speedup")] == ["leader"]


def test_a_noisy_control_does_not_make_the_reference_win():
    noisy = reference(1.97, 0.0, speedup_low=0.07, speedup_high=115.0, size_bytes=1)
    decided = decide([noisy, row("ort", 8.7, half=3.0)], {}, "speedup")
    assert shipped(decided) == ["ort"]
    assert "so wide that it vouches for little" in control(decided)[1]


def test_when_the_reference_wins_the_faster_one_that_broke_a_limit_is_named():
    limits = {"quality_drop": 0.01}
    fast = row("int8", 3.0, **drop(-0.02, 0.0, 0.04))
    decided = decide(
        [reference(quality_drop=0.0, quality_drop_low=0.0, quality_drop_high=0.0), fast], limits, "speedup"
    )
    assert "(int8 would, but its quality drop may be up to 4.00 points (limit 1.00" in sentence(decided, "speedup")


def test_between_equals_the_reference_is_shipped():
    rows = [row("a", 1.0, size_bytes=100), reference(1.0, 0.05, size_bytes=100)]
    assert shipped(decide(rows, {}, "speedup")) == ["eager"]


def test_of_alike_rows_the_same_one_is_shipped_in_any_order():
    rows = [row(name, 2.0) for name in "abc"]
    assert shipped(decide(rows, {}, "speedup")) == shipped(decide(rows[::-1], {}, "speedup"))
    wide, narrow, small = row("wide", 2.0, 0.9), row("narrow", 2.0, 0.01), row("small", 1.5, 0.1, size_bytes=1)
    first, second = ([*pair, small] for pair in ((wide, narrow), (narrow, wide)))
    assert shipped(decide(first, {}, "speedup")) == shipped(decide(second, {}, "speedup"))


def test_groups_are_ranked_apart():
    rows = [row("a", 2.0), row("b", 3.0), row("a", 5.0, batch_size=8), row("b", 4.0, batch_size=8)]
    decided = decide(rows, {}, "speedup")
    assert [(made["variant"], made["batch_size"]) for made in decided if made["recommended"]] == [("b", 1), ("a", 8)]


def test_groups_are_named_by_what_tells_them_apart():
    assert list(groups([row("a"), row("b")])) == [""]
    rows = [row("a", threads=1), row("b", threads=4), row("c", threads=4, batch_size=8)]
    split = groups(rows)
    assert list(split) == ["1 thread, batch 1", "4 threads, batch 1", "4 threads, batch 8"]
    assert [[made["variant"] for made in group] for group in split.values()] == [["a"], ["b"], ["c"]]
    assert groups([]) == {}


def test_less_is_better_for_some_objectives():
    rows = [row("small", 1.5, size_bytes=10 * MIB), row("fast", 3.0, size_bytes=90 * MIB)]
    decided = decide(rows, {}, "size_bytes")
    assert shipped(decided) == ["small"]
    assert losers(decided, "size_bytes") == {"fast": "size 90.00 against 10.00 of small"}


def test_quality_drops_are_told_apart_by_their_own_interval():
    near, far = drop(0.0005, 0.004, 0.02), drop(0.006, 0.01, 0.02)
    exact = row("exact", 1.0, **drop(0.0, 0.001, 0.005))
    decided = decide([exact, row("near", 3.0, size_bytes=2, **near), row("far", 3.0, size_bytes=1, **far)], {},
                     "quality_drop")  # fmt: skip
    assert shipped(decided) == ["near"]


def test_the_interval_of_the_speedup_tells_latencies_apart():
    rows = [row("a", 2.0, latency_p50_s=0.010), row("b", 1.97, latency_p50_s=0.0102, size_bytes=1 * MIB)]
    assert shipped(decide(rows, {}, "latency_p50_s")) == ["b"]  # tied with a, and smaller
    apart = [rows[0], row("b", 1.5, latency_p50_s=0.0102, size_bytes=1 * MIB)]
    assert shipped(decide(apart, {}, "latency_p50_s")) == ["a"]


def test_rows_without_the_objective_are_not_shipped():
    rows = [row("a", 2.0, latency_p99_s=0.01), row("b", 9.0, latency_p99_s=None)]
    decided = decide(rows, {}, "latency_p99_s")
    assert shipped(decided) == ["a"]
    assert losers(decided, "latency_p99_s") == {"b": "p99 latency was not measured"}


@pytest.mark.parametrize(
    ("limits", "objective", "message"),
    [
        ({"quality_dorp": 0.1}, "speedup", r"study.limits: 'quality_dorp' .*did you mean 'quality_drop'\?"),
        ({}, "sped_up", r"study.objective: 'sped_up' .*did you mean 'speedup'\?"),
        ({}, "zzz", r"'zzz' .*known: build_s, fidelity"),
        ({"variant": 1.0}, "speedup", "'variant' cannot be limited"),
    ],
)
def test_an_unknown_column_is_refused_with_the_nearest_word(limits, objective, message):
    with pytest.raises(StropError, match=message):
        decide([row("a", 2.0)], limits, objective)


def test_every_loser_is_told_what_killed_it():
    rows = [row("ship", 2.0, size_bytes=1 * MIB), row("tied", 2.02), row("slow", 1.2), row("dead", status="crashed")]
    assert losers(decide(rows, {}, "speedup"), "speedup") == {
        "tied": "tied with ship: speedup 2.02 [1.97, 2.07] against 2.00 [1.95, 2.05]",
        "slow": "speedup 1.20 [1.15, 1.25] against 2.00 [1.95, 2.05] of ship",
        "dead": "crashed",
    }


def test_a_control_that_holds_one_is_said():
    held, words = control([reference(1.002, 0.004), row("a", 2.0)])
    assert held is True
    assert words.endswith("is 1.002 [0.998, 1.006] times as fast, which holds 1.0.")


def test_a_control_that_misses_one_is_said_with_by_how_much():
    decided = decide([reference(1.03, 0.01), row("a", 2.0)], {}, "speedup")
    held, words = control(decided)
    assert held is False
    assert "1.030 [1.020, 1.040] times as fast, which misses 1.0; ratios of this study may be off by 3.0%" in words
    assert "careful, the A/A control misses 1.0" in sentence(decided, "speedup")


def test_a_control_below_one_misses_it_too():
    held, words = control([reference(0.97, 0.01)])
    assert held is False
    assert "may be off by 3.0%" in words


def test_a_control_that_is_missing_is_said():
    for rows in ([row("a", 2.0)], [reference(None)], []):
        held, words = control(rows)
        assert held is None
        assert "was not measured against itself" in words
    decided = decide([row("a", 2.0)], {}, "speedup")
    assert "careful" not in sentence(decided, "speedup")


def test_the_sentence_says_gain_cost_and_files():
    rows = [reference(**drop(0.0, 0.0, 0.0)), row("int8", 2.84, 0.06, metric="accuracy", **drop(-0.001, 0.004, 0.009))]
    said = sentence(decide(rows, {"quality_drop": 0.01}, "speedup"), "speedup", "out/results")
    assert said == (
        "Ship int8: 2.84 times as fast as the reference (95 % interval 2.78 to 2.90), "
        "at a cost of 0.40 points of accuracy (95 % interval -0.10 to 0.90, 872 examples); "
        "the files are in out/results/engine/int8."
    )


def test_a_gain_of_quality_is_no_cost():
    rows = [row("a", 2.0, metric="accuracy", **drop(-0.009, -0.004, 0.001))]
    said = sentence(decide(rows, {}, "speedup"), "speedup")
    assert "with a gain of 0.40 points of accuracy (95 % interval -0.10 to 0.90, 872 examples)" in said


def test_without_labels_the_sentence_says_how_often_answers_are_the_same():
    said = sentence(decide([row("a", 2.0, quality=None, fidelity=0.987)], {}, "speedup"), "speedup")
    assert "with the reference's answer on 98.7% of examples" in said
    said = sentence(decide([row("a", 2.0, quality=None)], {}, "speedup"), "speedup")
    assert "quality not compared" in said


def test_another_objective_comes_first_in_the_sentence():
    said = sentence(decide([row("a", 2.0, peak_memory_bytes=50 * MIB)], {}, "peak_memory_bytes"), "peak_memory_bytes")
    assert said.startswith("Ship a: peak memory 50.00 MiB, 2.00 times as fast as the reference")


def test_the_sentence_names_ties_and_the_reason_of_the_choice():
    rows = [row("big", 2.02), row("small", 2.0, size_bytes=1 * MIB)]
    said = sentence(decide(rows, {}, "speedup"), "speedup")
    assert "; tied in speed with big (2.02 [1.97, 2.07]), chosen as the smallest." in said
    alike = sentence(decide([row(name, 2.0) for name in "abcde"], {}, "speedup"), "speedup")
    assert "and 1 more" in alike
    assert "smallest" not in alike


def test_ties_are_named_in_the_objective_not_always_in_speed():
    rows = [row("a", 3.0, **drop(0.0, 0.01, 0.02)), row("b", 1.2, size_bytes=1 * MIB, **drop(0.0, 0.011, 0.02))]
    said = sentence(decide(rows, {}, "quality_drop"), "quality_drop")
    assert "tied in quality drop with a (1.00 [0.00, 2.00])" in said


def test_the_sentence_warns_of_a_noisy_winner():
    said = sentence(decide([row("a", 2.0, noisy=True, noisy_reason="clock fell")], {}, "speedup"), "speedup")
    assert "careful, the measurement was noisy (clock fell)" in said


def test_the_reference_is_shipped_if_nothing_beats_it():
    said = sentence(decide([reference(), row("a", 0.8)], {}, "speedup"), "speedup")
    assert said == (
        "Ship the reference (eager): nothing that meets the limits beats it; the files are in results/model/m."
    )


def test_without_a_feasible_row_the_best_one_and_its_fault_are_named():
    rows = [row("fast", 3.0, size_bytes=99 * MIB), row("slow", 2.0, size_bytes=98 * MIB)]
    said = sentence(decide(rows, {"size_bytes": 50 * MIB}, "speedup"), "speedup")
    assert said == (
        "Ship nothing: no variant meets the limits; the best, fast, fails: size is 99.00 MiB (limit 50.00, 98% over)."
    )


def test_if_all_rows_failed_the_sentence_points_at_the_failures():
    said = sentence(decide([row("a", status="crashed")], {}, "speedup"), "speedup")
    assert said == "Ship nothing: no variant was measured to its end, see the failures."


def test_an_objective_that_no_row_has_is_no_failure_of_the_rows():
    said = sentence(decide([row("a", 2.0), row("b", status="crashed")], {}, "latency_p99_s"), "latency_p99_s")
    assert said == "Ship nothing: no variant that meets the limits has a p99 latency."
    said = sentence(decide([row("a", 2.0)], {"speedup": 3.0}, "latency_p99_s"), "latency_p99_s")
    assert said.startswith("Ship nothing: no variant meets the limits; the best, a, fails: speedup may be as low as")


def test_numbers_that_are_not_finite_are_missing():
    assert [value_of({"speedup": v}, "speedup") for v in (math.nan, math.inf, None, 0, 2)] == [None, None, None, 0, 2]
    assert with_interval({"speedup": math.nan}, "speedup") == ""
    assert with_interval({"speedup": 2.0, "speedup_low": 1.5, "speedup_high": None}, "speedup") == "2.00"
    assert with_interval(row("a", 2.0, 0.25), "speedup", 3) == "2.000 [1.750, 2.250]"


LIMITS = {"speedup": 1.0, "quality_drop": 0.02, "size_bytes": 3 * MIB}


@st.composite
def many_rows(draw):
    """Return rows of few distinct numbers, so that ties are common."""

    def one(at):
        speedup, half = draw(st.sampled_from([0.8, 1.0, 1.5, 2.0, 2.1, None])), draw(st.sampled_from([0.01, 0.2, 0.6]))
        middle = draw(st.sampled_from([0.0, 0.01, 0.02]))
        return row(
            f"v{at}",
            speedup,
            half,
            status=draw(st.sampled_from(["ok", "ok", "ok", "unstable", "crashed"])),
            size_bytes=draw(st.sampled_from([MIB, MIB + 1, 2 * MIB, 4 * MIB, None])),
            quality=draw(st.sampled_from([0.8, 0.9, None])),
            latency_p50_s=None if speedup is None else 0.01 / speedup,
            batch_size=draw(st.sampled_from([1, 8])),
            is_reference=at == 0,
            **drop(middle - 0.01, middle, middle + 0.005),
        )

    return [one(at) for at in range(draw(st.integers(0, 7)))]


objectives = st.sampled_from(["speedup", "latency_p50_s", "size_bytes", "quality_drop", "quality"])
some_limits = st.sets(st.sampled_from(sorted(LIMITS))).map(lambda names: {name: LIMITS[name] for name in names})


@given(many_rows(), some_limits, objectives)
def test_each_group_ships_one_feasible_row_if_it_has_any(rows, limits, objective):
    for group in groups(decide(rows, limits, objective)).values():
        possible = [made for made in group if made["feasible"] and value_of(made, objective) is not None]
        chosen = [made for made in group if made["recommended"]]
        assert len(chosen) == (1 if possible else 0)
        assert all(made in possible for made in chosen)
        assert sentence(group, objective).startswith("Ship " if chosen else "Ship nothing: ")


@given(many_rows(), some_limits, objectives)
def test_no_feasible_row_is_better_than_the_shipped_one_beyond_its_interval(rows, limits, objective):
    more = COLUMNS[objective].more
    same_calls = objective in ("speedup", "latency_p50_s")
    low, high = ("speedup_low", "speedup_high") if same_calls else (COLUMNS[objective].low, COLUMNS[objective].high)

    def seen(made, name):  # the reference's speedup is 1.0 by definition; what was measured is the control's
        return 1.0 if made["is_reference"] and name.startswith("speedup") else made[name]

    for group in groups(decide(rows, limits, objective)).values():
        for best in (made for made in group if made["recommended"]):
            for other in (made for made in group if made["feasible"] and value_of(made, objective) is not None):
                gain = (seen(other, objective) - seen(best, objective)) * (1 if more else -1)
                if gain > 0:
                    assert low is not None, "without an interval nothing may be better"
                    up = same_calls or more
                    assert seen(other, low) <= seen(best, high) if up else seen(other, high) >= seen(best, low)


@given(many_rows(), some_limits, objectives)
def test_feasible_rows_meet_all_limits_and_others_say_why(rows, limits, objective):
    decided = decide(rows, limits, objective)
    assert [made["run_id"] for made in decided] == [made["run_id"] for made in rows]
    for made in decided:
        held = {name: value_of(made, COLUMNS[name].bound or name) for name in limits}
        met = made["status"] == "ok" and all(
            held[name] is not None and (held[name] >= limit if COLUMNS[name].more else held[name] <= limit)
            for name, limit in limits.items()
        )
        assert made["feasible"] is met
        assert (made["infeasible_reason"] is None) is met
        assert made["infeasible_reason"] != ""


@given(many_rows(), some_limits, objectives)
def test_what_is_not_pareto_is_beaten_by_a_row_that_is(rows, limits, objective):
    sign = 1 if COLUMNS[objective].more else -1

    def scores(made):
        numbers = [value_of(made, objective), value_of(made, "quality")]
        if objective == "speedup" and made["is_reference"] and numbers[0] is not None:
            numbers[0] = 1.0  # by definition; what was measured is the control's
        gain, quality = (-math.inf if number is None else number for number in numbers)
        return (-math.inf if numbers[0] is None else sign * gain), quality

    def beats(a, b):
        return scores(a) != scores(b) and all(x >= y for x, y in zip(scores(a), scores(b), strict=True))

    for group in groups(decide(rows, limits, objective)).values():
        front = [made for made in group if made["pareto"]]
        for made in group:
            beaten = any(beats(other, made) for other in front)
            assert made["pareto"] == (made["feasible"] and not beaten)


@given(many_rows().flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))), some_limits, objectives)
def test_the_order_of_rows_changes_nothing(both, limits, objective):
    def key(made):
        return made["run_id"]

    rows, shuffled = both
    expected, found = decide(rows, limits, objective), decide(shuffled, limits, objective)
    assert sorted(found, key=key) == sorted(expected, key=key)
