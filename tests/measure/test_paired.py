"""The coordinator on a simulated clock: what it stops by, and that pairing survives a machine that drifts."""

import math

import numpy as np
import pytest
from simulated import Arm, Machine, bursts, compared, drifting, leaders, samples

from strop.measure.paired import ARMS, BATCHES, Block, Observer, Rules, draw
from strop.stats.paired import paired_ratio

RULES = Rules(instances=4, min_time_s=2.0, max_time_s=60.0, min_calls=40, max_calls=10**6, precision=0.05, seed=0)


def rules(**changes):
    return Rules(**{**RULES.__dict__, **changes})


def test_it_stops_when_the_interval_is_narrow_and_the_floors_are_met():
    done, _ = compared(Machine(), 2.0, RULES, noise=0.02)
    assert done.stopped_by == "precision"
    assert len(done.ratios) >= RULES.instances
    assert done.timed_s >= RULES.min_time_s
    assert done.calls >= RULES.min_calls
    assert done.ratio.half_width <= RULES.precision
    assert done.ratio.low <= 2.0 <= done.ratio.high


def test_it_stops_by_time_when_it_cannot_know_enough():
    machine = Machine()
    done, _ = compared(machine, 2.0, rules(max_time_s=20.0, precision=0.001), luck=0.3)
    assert done.stopped_by == "time"
    assert abs(machine.now - 20) < 3


def test_it_stops_at_the_most_calls():
    done, _ = compared(Machine(), 2.0, rules(precision=0.0001, max_calls=300), luck=0.3)
    assert done.stopped_by == "calls"
    assert 300 <= done.calls < 600


def test_it_stops_by_decision_once_the_floors_are_met():
    class Judge(Observer):
        def decided(self, done):
            return done.ratio.low > 1.5

    done, _ = compared(Machine(), 2.0, rules(precision=1e-6), observer=Judge(), noise=0.02, luck=0.01)
    assert done.stopped_by == "decision"
    assert len(done.ratios) >= RULES.instances
    assert done.timed_s >= RULES.min_time_s


def test_one_slow_instance_is_never_all():
    done, _ = compared(Machine(), 2.0, rules(min_time_s=1.0, max_time_s=0.01, min_calls=10))
    assert done.stopped_by == "time"
    assert len(done.ratios) == 2
    assert all(pairs.size >= 5 for pairs in done.ratios)
    assert done.ratio.high < math.inf


def test_each_instance_is_loaded_anew_and_processes_are_renewed():
    done, journal = compared(Machine(), 2.0, rules(instances=7, precision=0.0001), luck=0.2)
    for name in ARMS:
        mine = [what for who, what in journal if who == name and isinstance(what, str)]
        assert mine.count("renew") == len(done.ratios) >= 7
        assert mine.count("start") == done.processes[-1] + 1 >= 3
    assert done.processes == sorted(done.processes)
    assert all(opening.load_s == 0.1 for opening in done.openings["variant"])


def test_a_process_that_costs_much_has_more_sessions():
    class Slow(Arm):
        def start(self):
            super().start()
            self.machine.spend(8.0)

    quick, _ = compared(Machine(), 2.0, rules(instances=12, precision=0.0001), luck=0.1)
    slow, _ = compared(Machine(), 2.0, rules(instances=12, precision=0.0001), arm=Slow, luck=0.1)
    assert quick.processes[-1] + 1 > 0.6 * len(quick.ratios)
    assert slow.processes[-1] + 1 < 0.5 * len(slow.ratios)


def test_a_machine_that_scatters_more_gets_more_pairs_of_each_session():
    calm, _ = compared(Machine(), 2.0, rules(precision=0.0001), noise=0.01, luck=0.01)
    loud, _ = compared(Machine(), 2.0, rules(precision=0.0001), noise=1.0, luck=0.01)
    assert np.median([pairs.size for pairs in loud.ratios]) > 1.5 * np.median([pairs.size for pairs in calm.ratios])


def test_who_is_loaded_first_is_random_and_evened_out():
    first = set()
    for seed in range(12):
        _, journal = compared(Machine(), 2.0, rules(instances=6, precision=0.0001, max_time_s=20, seed=seed), luck=0.2)
        loaded = leaders(journal, "renew")
        first.add(loaded[0])
        couples = zip(loaded[::2], loaded[1::2], strict=False)
        assert all(a != b for a, b in couples)
    assert first == set(ARMS)


def test_a_slower_first_comer_leaves_the_control_at_one():
    """Whoever is loaded first is 6 % slower: with the same arm always first, the control would miss 1.0 by that."""

    class Jealous(Arm):
        first = None

        def renew(self):
            opening = super().renew()
            if Jealous.first is None:
                Jealous.first, self.session = self.name, self.session * 1.06
            else:
                Jealous.first = None
            return opening

    done, _ = compared(Machine(), 1.0, rules(instances=6, precision=0.2), arm=Jealous, noise=0.01)
    assert done.ratio.low <= 1.0 <= done.ratio.high
    assert done.ratio.ratio == pytest.approx(1.0, abs=0.01)


def test_pairs_call_the_same_batches_in_random_order():
    done, _ = compared(Machine(), 2.0, rules(max_time_s=15, precision=0.0001), noise=0.02, luck=0.1)
    blocks = {}
    for sample in samples(done):
        key = (sample["instance"], sample["block"])
        blocks.setdefault(key, {name: [] for name in ARMS})[sample["arm"]].append(sample["batch"])
    assert all(block["reference"] == block["variant"] for block in blocks.values())
    starts = [sample["start_s"] for sample in samples(done)]
    assert len(starts) == len(set(starts)) == 2 * done.calls
    began = {(s["instance"], s["block"], s["arm"]): s["start_s"] for s in reversed(samples(done))}
    leads = [began[*key, "reference"] < began[*key, "variant"] for key in blocks]
    assert 0.3 < np.mean(leads) < 0.7
    assert len({sample["batch"] for sample in samples(done)}) > BATCHES


def test_each_pair_calls_every_batch_of_its_session_equally_often():
    for call_s in (0.0001, 0.01, 0.04):
        done, _ = compared(Machine(), 1.5, rules(min_time_s=0.5), call_s=call_s, noise=0.02)
        for instance, pairs in enumerate(done.ratios):
            mine = [s["batch"] for s in samples(done) if s["instance"] == instance and s["arm"] == "variant"]
            counts = np.unique(mine, return_counts=True)[1]
            assert len(set(counts.tolist())) == 1
            assert counts[0] % pairs.size == 0


def test_a_ratio_is_one_of_totals_whatever_the_length_of_a_block():
    """The variant gains on large batches only: a mean of single blocks' ratios would depend on how they are cut."""

    class Sized(Arm):
        def block(self, batches, keep=False):
            big = self.name == "reference"
            cost = {batch: self.call_s * (1 + batch / 4 if big else 1) for batch in batches}
            spent = np.asarray([self.machine.spend(cost[batch]) for batch in batches])
            self.machine.spend(0.002)
            return super().block([], keep).__class__(self.machine.now - np.cumsum(spent), spent)

    found = [
        compared(Machine(), 1.0, rules(precision=0.02), call_s=call_s, batches=BATCHES, arm=Sized)[0].ratio.ratio
        for call_s in (0.0005, 0.03)
    ]
    assert found == pytest.approx([1 + np.mean(np.arange(BATCHES)) / 4] * 2)


def test_pairing_survives_drift_where_medians_one_after_the_other_do_not():
    """The machine slows down to a third over the run: an unpaired ratio is wrong, the paired one is not."""
    done, _ = compared(Machine(drifting(3.0, 10.0)), 2.0, RULES, noise=0.02)
    assert done.ratio.low <= 2.0 <= done.ratio.high
    assert done.ratio.ratio == pytest.approx(2.0, rel=0.02)
    machine, rng = Machine(drifting(3.0, 10.0)), np.random.default_rng(0)
    medians = [
        np.median(Arm(machine, "x", call_s, rng, noise=0.02).block(range(600)).latency_s) for call_s in (0.01, 0.005)
    ]
    assert abs(medians[0] / medians[1] - 2.0) > 0.3


def test_bursts_that_come_and_go_leave_the_control_at_one():
    held = 0
    for seed in range(20):
        done, _ = compared(
            Machine(bursts(seed)), 1.0, rules(instances=6, max_time_s=20, precision=0.02, seed=seed), seed=seed,
            noise=0.02, luck=0.01,
        )  # fmt: skip
        held += done.ratio.low <= 1.0 <= done.ratio.high
    assert held >= 17


def test_cold_calls_are_not_timed():
    done, _ = compared(Machine(), 2.0, RULES, warm_up=5.0, noise=0.01)
    assert done.steady == {"reference": True, "variant": True}
    slowest = max(s["latency_s"] for s in samples(done) if s["arm"] == "variant")
    assert slowest < 0.005 * 1.6


def test_the_arm_that_never_gets_steady_is_named():
    class Restless(Arm):
        def block(self, batches, keep=False):
            parts = []
            for batch in batches:
                self.call_s *= 0.99 if self.name == "variant" else 1.0
                parts.append(super().block([batch], keep))
            return Block(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("start_s", "latency_s")))

    done, _ = compared(Machine(), 1.0, rules(instances=2, min_time_s=0.5, max_time_s=4.0, precision=0.5), arm=Restless)
    assert done.steady == {"reference": True, "variant": False}


def test_an_interval_over_pairs_would_claim_too_much():
    """Pairs alone, as if each came from a session of its own, give an interval that is far too narrow."""
    done, _ = compared(Machine(), 2.0, rules(instances=6, precision=1.0), luck=0.05, noise=0.01, seed=4)
    pooled = np.concatenate(done.ratios)
    assert paired_ratio(np.array_split(pooled, len(pooled))).half_width < 0.6 * done.ratio.half_width


def test_what_it_cost_is_kept():
    done, _ = compared(Machine(), 2.0, RULES, noise=0.02)
    assert np.median(done.switches_s) == pytest.approx(0.002, rel=0.01)
    assert np.median(done.blocks_s) >= 5 * np.median(done.switches_s)
    assert sum(done.blocks_s) == pytest.approx(done.timed_s)
    assert sum(series.size for series in done.latencies("variant")) == done.calls


@pytest.mark.parametrize(("batches", "count"), [(32, 3), (32, 32), (32, 8), (5, 5), (1, 1)])
def test_a_sessions_batches_are_spread_over_all_sizes_and_none_is_favoured(batches, count):
    rng = np.random.default_rng(0)
    drawn = np.asarray([draw(batches, count, rng) for _ in range(4000)])
    counts = np.bincount(drawn.ravel(), minlength=batches)
    assert counts.min() > 0.8 * drawn.size / batches
    assert (np.diff(drawn, axis=1) >= 0).all()
    assert np.std(drawn.mean(axis=1)) <= batches / (3 * count**1.5) + 0.5
