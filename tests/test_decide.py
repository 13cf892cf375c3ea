"""Which variant to ship: limits, ties, groups, and the sentence that says it."""

import math

import numpy as np
import pytest
from summary_rows import MIB, by_name, drop, group_one, reference, row, shipped

from strop.columns import groups, value_of, with_interval
from strop.decide import Evidence, control, decide, losers, noise_floor, sentence
from strop.errors import StropError
from strop.stats.tails import judge


def test_a_limit_is_held_against_the_less_favourable_end():
    rows = [row("sure", 2.0, **drop(0.0, 0.004, 0.009)), row("unsure", 3.0, **drop(0.0, 0.004, 0.011))]
    decided = by_name(decide(rows, {"quality_drop": 0.01}, "speedup"))
    assert (decided["sure"]["feasible"], decided["unsure"]["feasible"]) == (True, False)
    rows = [row("narrow", 2.0, half=0.1), row("wide", 2.0, half=0.6)]
    decided = by_name(decide(rows, {"speedup": 1.5}, "speedup"))
    assert (decided["narrow"]["feasible"], decided["wide"]["feasible"]) == (True, False)


def test_a_limit_is_passed_failed_or_undecided_by_the_whole_interval():
    drops = {"pass": drop(0.0, 0.004, 0.009), "undecided": drop(0.0, 0.004, 0.011), "fail": drop(0.011, 0.02, 0.03)}
    decided = by_name(
        decide([row(name, 2.0, **more) for name, more in drops.items()], {"quality_drop": 0.01}, "speedup")
    )
    assert {name: made["limits_verdict"] for name, made in decided.items()} == {name: name for name in drops}
    assert [made["feasible"] for made in decided.values()] == [True, False, False]
    unknown = row("a", 2.0, quality_drop=0.0, quality_drop_low=None, quality_drop_high=None)
    assert decide([unknown], {"quality_drop": 0.01}, "speedup")[0]["limits_verdict"] == "undecided"


def test_one_failed_limit_fails_and_one_undecided_limit_leaves_it_open():
    made = row("a", 2.0, 0.5, size_bytes=96 * MIB, **drop(0.0, 0.004, 0.009))
    for limits, verdict in (
        ({"quality_drop": 0.01, "speedup": 1.8}, "undecided"),
        ({"quality_drop": 0.01, "speedup": 1.8, "size_bytes": 64 * MIB}, "fail"),
        ({"quality_drop": 0.01}, "pass"),
        ({}, None),
    ):
        assert decide([made], limits, "speedup")[0]["limits_verdict"] == verdict
    assert decide([{**made, "status": "unstable"}], {"speedup": 1.0}, "speedup")[0]["limits_verdict"] is None


@pytest.mark.parametrize(
    ("over", "calls", "verdict", "reason"),
    [
        (0, 600, "pass", None),
        (0, 200, "undecided", "p99 latency is undecided at limit 20.00 ms, about 260 more calls are needed "
                              "(benchmark.min_calls=460)"),
        (60, 200, "fail", "p99 latency is over the limit of 20.00 ms: 60 of 200 calls took longer"),
        (2, 200, "undecided", "p99 latency is undecided at limit 20.00 ms, too near to it for any number of calls "
                              "to decide"),
    ],
)  # fmt: skip
def test_a_limit_on_a_tail_is_judged_on_the_calls(over, calls, verdict, reason):
    latency_s = np.random.default_rng(0).permutation(np.r_[np.full(calls - over, 0.010), np.full(over, 0.030)])
    evidence = {"run-a": Evidence({"latency_p99_s": judge([latency_s], 0.99, 0.020)})}
    made = row("a", 2.0, latency_p99_s=None, latency_p99_calls_needed=259)
    decided = decide([made], {"latency_p99_s": 0.020}, "speedup", evidence=evidence)[0]
    assert (decided["limits_verdict"], decided["infeasible_reason"]) == (verdict, reason)
    assert decided["recommended"] is (verdict == "pass")


def test_a_test_set_that_is_too_small_says_how_many_examples_would_do():
    made = row("a", 2.0, **{**drop(0.0, 0.004, 0.011), "examples": 2000})
    decided = decide([made], {"quality_drop": 0.01}, "speedup", evidence={"run-a": Evidence(examples_needed=4612)})[0]
    assert decided["infeasible_reason"] == (
        "quality drop is undecided at limit 1.00 points, measured 0.40 [0.00, 1.10] on 2,000 examples; "
        "about 4,700 test examples would decide (dataset.test_size)"
    )


def test_the_reference_is_as_fast_as_itself_whatever_was_measured():
    decided = decide([reference(1.02, 0.05)], {"speedup": 1.0}, "speedup")
    assert (decided[0]["limits_verdict"], decided[0]["recommended"]) == ("pass", True)


def test_a_limit_that_is_just_met_is_met():
    rows = [row("a", 2.0, half=0.5, size_bytes=64 * MIB, **drop(0.0, 0.005, 0.01))]
    limits = {"speedup": 1.5, "size_bytes": 64 * MIB, "quality_drop": 0.01}
    assert decide(rows, limits, "speedup")[0]["feasible"]


@pytest.mark.parametrize(
    ("numbers", "limits", "reason"),
    [
        (drop(0.0, 0.004, 0.0163), {"quality_drop": 0.01},
         "quality drop is undecided at limit 1.00 points, measured 0.40 [0.00, 1.63] on 872 examples; "
         "more test examples may decide (dataset.test_size)"),
        (drop(0.0101, 0.02, 0.03), {"quality_drop": 0.01},
         "quality drop is at least 1.01 points (limit 1.00; measured 2.00 on 872 examples)"),
        ({"speedup": 1.52, "speedup_low": 1.41, "speedup_high": 1.6}, {"speedup": 1.5},
         "speedup is undecided at limit 1.50, measured 1.52 [1.41, 1.60]; "
         "a longer measurement would decide (benchmark.max_time_s)"),
        ({"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "stopped_by": "precision"}, {"speedup": 1.5},
         "speedup is undecided at limit 1.50, measured 1.50 [1.40, 1.60]; "
         "a longer measurement would decide (benchmark.precision)"),
        ({"speedup": 1.3, "speedup_low": 1.2, "speedup_high": 1.4}, {"speedup": 1.5},
         "speedup is at most 1.40 (limit 1.50; measured 1.30)"),
        ({"speedup": 1.3, "speedup_low": 1.2, "speedup_high": 1.4, "is_reference": True}, {"speedup": 1.5},
         "speedup is 1.00 by definition (limit 1.50)"),
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
    assert [made["tie_group"] for made in decided] == [1, 1, 2]


def test_a_tie_of_like_sizes_is_resolved_by_quality():
    rows = [row("a", 2.02, size_bytes=100_100_000, quality=0.90), row("b", 2.0, size_bytes=100_400_000, quality=0.91)]
    assert shipped(decide(rows, {}, "speedup")) == ["b"]


def test_rows_are_told_apart_by_the_interval_of_their_difference():
    half = math.hypot(0.02, 0.03)  # of log ratios with half-widths of 2 and 3 %
    for lead, numbers in ((half - 1e-6, [1, 1]), (half + 1e-6, [1, 2])):
        rows = [timed("a", math.exp(lead), 0.02), timed("b", 1.0, 0.03)]
        assert [made["tie_group"] for made in decide(rows, {}, "speedup")] == numbers


def timed(variant, speedup, half, **more):
    """Return a row whose interval of the log speedup is `half` wide to each side."""
    ends = {"speedup_low": speedup * math.exp(-half), "speedup_high": speedup * math.exp(half)}
    return row(variant, speedup, **{**ends, **more})


def test_a_tie_may_have_rows_that_overlap_with_no_interval_of_the_leader():
    """Intervals that touch tell rows apart where the interval of their difference does not hold zero."""
    rows = [timed("leader", 1.05, 0.03), timed("touching", 1.0, 0.03, size_bytes=1)]
    assert rows[1]["speedup_high"] > rows[0]["speedup_low"]
    assert shipped(decide(rows, {}, "speedup")) == ["leader"]


@pytest.mark.parametrize(("speedup", "half", "floor"), [(1.0, 0.05, 0.05), (1.06, 0.01, 0.06), (0.94, 0.01, 0.06)])
def test_no_effect_below_what_the_control_shows_is_ranked(speedup, half, floor):
    """A control that missed 1.0 by 6 % counts as 6 %, however narrow its interval."""
    exact = timed("eager", speedup, half, is_reference=True, size_bytes=300 * MIB)
    assert noise_floor([exact]) == pytest.approx(floor, abs=0.003)
    for lead, best in ((0.9, "small"), (1.1, "fast")):
        lead = lead * noise_floor([exact])
        rows = [exact, timed("fast", 2 * math.exp(lead), 0.001), timed("small", 2.0, 0.001, size_bytes=1 * MIB)]
        assert shipped(decide(rows, {}, "speedup")) == [best]


def test_the_reference_is_no_less_sure_for_being_the_control():
    """Its speedup is 1.0 by definition; the control's width counts once, as the floor."""
    control_of_same_width = timed("eager", 1.0, 0.05, is_reference=True)
    rows = [timed("a", math.exp(0.06), 0.05), control_of_same_width]
    assert [made["tie_group"] for made in decide(rows, {}, "speedup")] == [1, 2]


def test_a_tie_within_the_noise_floor_is_called_so():
    rows = [reference(1.0, 0.05), timed("fast", 2.04, 0.001), timed("small", 2.0, 0.001, size_bytes=1 * MIB)]
    lost = losers(decide(rows, {}, "speedup"), "speedup")
    assert lost["fast"] == (
        "tied with small: speedup 2.04 [2.04, 2.04] against 2.00 [2.00, 2.00], within the noise floor of 5.1%"
    )


def test_a_control_so_noisy_that_it_tells_nothing_apart_leaves_the_choice_to_the_tie_breaker():
    noisy = reference(1.97, 0.0, speedup_low=0.07, speedup_high=115.0, size_bytes=9)
    decided = decide([noisy, row("ort", 8.7, half=3.0, size_bytes=1)], {}, "speedup")
    assert group_one(decided) == ["eager", "ort"]
    assert shipped(decided) == ["ort"]
    assert "so wide that it vouches for little: differences up to 3953.2% are not ranked" in control(decided)[1]


def test_a_speedup_without_an_interval_can_be_told_apart_from_none():
    one = row("one instance", 5.0, speedup_low=0.0, speedup_high=None)
    assert group_one(decide([one, row("a", 2.0), row("b", 1.5)], {}, "speedup")) == ["one instance", "a", "b"]


def test_of_a_tie_nothing_is_shipped_that_is_slower_than_another_for_sure():
    rows = [timed("leader", 2.0, 0.5), timed("sure", 1.9, 0.01), timed("slow", 1.4, 0.01, size_bytes=1)]
    decided = decide(rows, {}, "speedup")
    assert group_one(decided) == ["leader", "sure", "slow"]
    assert shipped(decided) == ["leader"]


def test_a_median_that_contradicts_the_speedup_is_not_ranked_above_it():
    rows = [row("a", 2.0, latency_p50_s=0.0100, size_bytes=1), row("b", 2.5, latency_p50_s=0.0101)]
    decided = decide(rows, {}, "latency_p50_s")
    assert (group_one(decided), shipped(decided)) == (["a", "b"], ["b"])
    assert sentence(decided, "latency_p50_s").endswith("chosen as the faster one by more than noise.")


def test_the_second_best_lead_the_next_tie():
    rows = [row(name, value) for name, value in (("a", 3.0), ("b", 2.98), ("c", 2.0), ("d", 1.99), ("e", 1.0))]
    assert [made["tie_group"] for made in decide(rows, {}, "speedup")] == [1, 1, 2, 2, 3]
    decided = decide([*rows, row("f", 9.0, status="crashed"), row("g", None)], {}, "speedup")
    assert [made["tie_group"] for made in decided] == [1, 1, 2, 2, 3, None, 4]


def test_tails_are_no_surer_than_the_speedup_of_the_same_calls():
    near = [timed("a", 2.0, 0.02, latency_p99_s=0.0100), timed("b", 2.0, 0.02, latency_p99_s=0.0102, size_bytes=1)]
    assert shipped(decide(near, {}, "latency_p99_s")) == ["b"]
    far = [near[0], {**near[1], "latency_p99_s": 0.0104}]
    assert shipped(decide(far, {}, "latency_p99_s")) == ["a"]


@pytest.mark.parametrize(
    ("tie_breaker", "best", "words"),
    [
        ("size_bytes", "small", "chosen by size: 1.00 MiB against 50.00 MiB of lean"),
        ("peak_memory_bytes", "lean", "chosen by peak memory: 10.00 MiB against 20.00 MiB of good"),
        ("quality", "good", "chosen by quality: 99.00 % against 90.00 % of lean"),
        ("build_s", "good", "of about equal build time, chosen by quality: 99.00 % against 90.00 % of lean"),
    ],
)
def test_the_study_says_what_breaks_its_ties(tie_breaker, best, words):
    rows = [
        row("small", 2.00, size_bytes=1 * MIB, peak_memory_bytes=30 * MIB, build_s=5.04),
        row("lean", 2.01, size_bytes=50 * MIB, peak_memory_bytes=10 * MIB, build_s=5.01),
        row("good", 2.02, quality=0.99, size_bytes=60 * MIB, peak_memory_bytes=20 * MIB, build_s=4.99),
    ]
    decided = decide(rows, {}, "speedup", tie_breaker)
    assert shipped(decided) == [best]
    assert sentence(decided, "speedup", tie_breaker=tie_breaker).endswith(f", {words}.")


def test_a_tie_breaker_that_was_not_measured_comes_last():
    rows = [row("unknown", 2.02, size_bytes=None), row("big", 2.0)]
    decided = decide(rows, {}, "speedup")
    assert shipped(decided) == ["big"]
    assert "chosen by size: 100.00 MiB against not measured of unknown" in sentence(decided, "speedup")


def test_pareto_rows_are_not_thrown_out_by_noise():
    rows = [timed("fast", 2.02, 0.02, quality=0.9), timed("near", 2.00, 0.02, quality=0.9),
            timed("slow", 1.80, 0.02, quality=0.9)]  # fmt: skip
    assert [made["pareto"] for made in decide(rows, {}, "speedup")] == [True, True, False]
    rows = [row("a", 2.0, quality=0.901, **drop(-0.011, -0.001, 0.009)), row("b", 2.0, **drop(-0.01, 0.0, 0.01)),
            row("c", 2.0, quality=0.8, **drop(0.09, 0.1, 0.11))]  # fmt: skip
    assert [made["pareto"] for made in decide(rows, {}, "speedup")] == [True, True, False]


def test_when_the_reference_wins_the_faster_one_that_broke_a_limit_is_named():
    limits = {"quality_drop": 0.01}
    fast = row("int8", 3.0, **drop(-0.02, 0.0, 0.04))
    decided = decide(
        [reference(quality_drop=0.0, quality_drop_low=0.0, quality_drop_high=0.0), fast], limits, "speedup"
    )
    assert "(int8 would, but its quality drop is undecided at limit 1.00 points" in sentence(decided, "speedup")
    fails = row("int4", 3.0, **drop(0.02, 0.03, 0.04))
    decided = decide([reference(**drop(0.0, 0.0, 0.0)), fails], limits, "speedup")
    assert "(int4 would, but its quality drop is at least 2.00 points (limit 1.00" in sentence(decided, "speedup")


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
        ({}, "zzz", r"'zzz' .*known: build_s, compile_s"),
        ({"variant": 1.0}, "speedup", "'variant' cannot be limited"),
    ],
)
def test_an_unknown_column_is_refused_with_the_nearest_word(limits, objective, message):
    with pytest.raises(StropError, match=message):
        decide([row("a", 2.0)], limits, objective)


@pytest.mark.parametrize(
    ("objective", "tie_breaker", "message"),
    [
        ("speedup", "size_byte", r"study.tie_breaker: 'size_byte' .*did you mean 'size_bytes'\?"),
        ("speedup", "latency_p50_s", "'latency_p50_s' is of the same calls as the objective 'speedup'"),
        ("latency_p99_s", "latency_p99_s", "would decide its ties by noise"),
    ],
)
def test_a_tie_breaker_that_cannot_break_ties_is_refused(objective, tie_breaker, message):
    with pytest.raises(StropError, match=message):
        decide([], {}, objective, tie_breaker)


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
    assert words.endswith(
        "is 1.002 [0.998, 1.006] times as fast, which holds 1.0; differences up to 0.4% are not ranked."
    )


def test_a_control_that_misses_one_is_said_with_by_how_much():
    decided = decide([reference(1.03, 0.01), row("a", 2.0)], {}, "speedup")
    held, words = control(decided)
    assert held is False
    assert "1.030 [1.020, 1.040] times as fast, which misses 1.0; ratios of this study may be off by 3.0%" in words
    assert "differences up to 3.0% are not ranked" in words
    assert "careful, the A/A control misses 1.0" in sentence(decided, "speedup")


def test_a_control_below_one_misses_it_too():
    held, words = control([reference(0.97, 0.01)])
    assert held is False
    assert "may be off by 3.0%" in words


def test_a_control_that_is_missing_is_said():
    unbounded = reference(1.0, speedup_low=0.0, speedup_high=None)  # of one instance
    for rows in ([row("a", 2.0)], [reference(None)], [unbounded], []):
        held, words = control(rows)
        assert held is None
        assert noise_floor(rows) == 0.0
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
    assert "; tied in speed with big (2.02 [1.97, 2.07]), chosen by size: 1.00 MiB against 100.00 MiB of big." in said
    alike = sentence(decide([row(name, 2.0) for name in "abcde"], {}, "speedup"), "speedup")
    assert "and 1 more, of about equal size and equal quality, and nothing else tells them apart." in alike
    near = sentence(decide([row("a", 2.0), row("b", 2.01)], {}, "speedup"), "speedup")
    assert "of about equal size and equal quality, chosen by the value measured." in near
    rows = [row("a", 1.0), reference(1.0, 0.05, size_bytes=100 * MIB)]
    said = sentence(decide(rows, {}, "speedup"), "speedup")
    assert (
        "tied in speed with a (1.00 [0.95, 1.05]), of about equal size and equal quality, chosen as the reference."
        in said
    )


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


def test_if_no_limit_failed_the_answer_is_open():
    said = sentence(decide([row("fast", 3.0, **drop(0.0, 0.004, 0.02))], {"quality_drop": 0.01}, "speedup"), "speedup")
    assert said.startswith(
        "Ship nothing: no variant was shown to meet the limits; the best, fast, is open: quality drop is undecided"
    )


def test_if_all_rows_failed_the_sentence_points_at_the_failures():
    said = sentence(decide([row("a", status="crashed")], {}, "speedup"), "speedup")
    assert said == "Ship nothing: no variant was measured to its end, see the failures."


def test_an_objective_that_no_row_has_is_no_failure_of_the_rows():
    said = sentence(decide([row("a", 2.0), row("b", status="crashed")], {}, "latency_p99_s"), "latency_p99_s")
    assert said == "Ship nothing: no variant that meets the limits has a p99 latency."
    said = sentence(decide([row("a", 2.0)], {"speedup": 3.0}, "latency_p99_s"), "latency_p99_s")
    assert said.startswith("Ship nothing: no variant meets the limits; the best, a, fails: speedup is at most 2.05")


def test_numbers_that_are_not_finite_are_missing():
    assert [value_of({"speedup": v}, "speedup") for v in (math.nan, math.inf, None, 0, 2)] == [None, None, None, 0, 2]
    assert with_interval({"speedup": math.nan}, "speedup") == ""
    assert with_interval({"speedup": 2.0, "speedup_low": 1.5, "speedup_high": None}, "speedup") == "2.00"
    assert with_interval(row("a", 2.0, 0.25), "speedup", 3) == "2.000 [1.750, 2.250]"
