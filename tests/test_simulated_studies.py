"""Whole studies on simulated noisy machines, from calls to the decision: the right one is shipped, ties are ties."""

import dataclasses

import numpy as np
import pytest
from simulated import Machine, bursts, compared, drifting, moods
from summary_rows import by_name, row

from strop.decide import decide
from strop.measure.paired import Rules
from strop.settings import Benchmark

STUDIES = 100
MACHINES = (lambda _: Machine(), lambda seed: Machine(bursts(seed)), lambda seed: Machine(moods(seed)))
NOISE = {"noise": 0.03, "luck": 0.014, "process_luck": 0.005}


def rules(seed, **changes):
    """The default settings of a benchmark, with changes."""
    values = dataclasses.asdict(Benchmark()) | changes
    return Rules(**{name: values[name] for name in Rules.__annotations__ if name != "seed"}, seed=seed)


def study(seed, ratios, sizes, **changes):
    """Measure variants on a machine of their own kind, the reference against itself first; return the decided rows."""
    rows = []
    for at, (name, speedup) in enumerate({"reference": 1.0, **ratios}.items()):
        machine = MACHINES[seed % len(MACHINES)](seed * 10 + at)
        done, _ = compared(machine, speedup, rules(seed * 10 + at, **changes), seed * 10 + at, **NOISE)
        ratio = done.ratio
        rows.append(
            row(name, ratio.ratio, speedup_low=ratio.low, speedup_high=ratio.high, is_reference=name == "reference",
                size_bytes=sizes.get(name, 10**8))
        )  # fmt: skip
    return by_name(decide(rows, {}, "speedup"))


@pytest.fixture(scope="module")
def three_per_cent():
    """The winner is larger: where noise made it a tie, the smaller one would be shipped."""
    return [
        study(seed, {"winner": 2.06, "second": 2.0}, {"winner": 4 * 10**7, "second": 2 * 10**7}, precision=0.01,
              max_time_s=300)
        for seed in range(STUDIES)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def a_fifth_of_a_per_cent():
    return [
        study(seed, {"one": 2.004, "other": 2.0}, {"one": 4 * 10**7, "other": 2 * 10**7}, precision=0.01,
              max_time_s=300)
        for seed in range(STUDIES)
    ]  # fmt: skip


def test_a_winner_by_three_per_cent_is_recommended_in_95_of_100_studies(three_per_cent):
    assert sum(rows["winner"]["recommended"] for rows in three_per_cent) >= 95


def test_a_fifth_of_a_per_cent_is_called_a_tie_in_90_of_100_studies(a_fifth_of_a_per_cent):
    tied = [rows["one"]["tie_group"] == rows["other"]["tie_group"] == 1 for rows in a_fifth_of_a_per_cent]
    assert sum(tied) >= 90
    smaller = [rows["other"]["recommended"] for rows, tie in zip(a_fifth_of_a_per_cent, tied, strict=True) if tie]
    assert all(smaller)


def test_at_the_default_precision_the_faster_of_equals_in_size_is_recommended_in_95_of_100_studies():
    rows = [study(seed, {"winner": 2.06, "second": 2.0}, {}) for seed in range(STUDIES)]
    assert sum(found["winner"]["recommended"] for found in rows) >= 95


def test_drift_over_a_whole_study_recommends_no_wrong_one():
    found = []
    for seed in range(20):
        machine = Machine(drifting(2.0, 200.0))
        speedups = []
        for ratio in (2.06, 2.0):
            done, _ = compared(machine, ratio, rules(seed, precision=0.01, max_time_s=300), seed, **NOISE)
            speedups.append(done.ratio.ratio)
        found.append(speedups[0] > speedups[1])
    assert np.mean(found) >= 0.9
