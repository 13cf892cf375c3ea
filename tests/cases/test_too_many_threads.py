"""More threads than CPUs leave the median as it is and ruin the tail: the row says so, and the ratio knows the tail."""

import os

import numpy as np

from strop.measure.conditions import Watch, noise
from strop.measure.paired import Block, Rules, measure
from strop.stages.benchmark import _numbers

CALM = {"foreign_cores": 0.0, "steal_share": 0.0}


def test_more_threads_than_cpus_are_noisy_and_as_many_are_not():
    cpus = len(os.sched_getaffinity(0))
    assert noise(CALM, 0.01, 0.02, cpus) is None
    assert noise(CALM, 0.01, 0.02, cpus + 1) == f"{cpus + 1} threads on {cpus} CPUs"
    assert noise({**Watch().conditions(0.0), **CALM}, 0.01, 0.02, 8 * cpus) is not None


class Arm:
    """Calls of 1 ms, of which every `every`-th takes `tail_s`."""

    def __init__(self, clock, every, tail_s):
        self.clock, self.every, self.tail_s, self.calls = clock, every, tail_s, 0

    def start(self):
        pass

    def renew(self):
        self.clock[0] += 0.01
        return {"load_s": 0.01, "first_call_s": 0.001}

    def block(self, batches):
        starts, latencies = [], []
        for _ in batches:
            self.calls += 1
            starts.append(self.clock[0])
            latencies.append(self.tail_s if self.calls % self.every == 0 else 0.001)
            self.clock[0] += latencies[-1]
        return Block(np.asarray(starts), np.asarray(latencies))


def test_a_tail_counts_in_the_speedup_although_the_median_is_the_same():
    clock = [0.0]
    arms = {"reference": Arm(clock, 10**9, 0.0), "variant": Arm(clock, 20, 0.060)}
    done = measure(arms, 4, Rules(4, 2.0, 60.0, 400, 0.05, 0), lambda: clock[0])
    numbers = _numbers(done, 1)
    assert numbers["latency_p50_s"] == numbers["reference_latency_p50_s"] == 0.001
    assert numbers["latency_p99_s"] > 0.05
    assert numbers["latency_mean_s"] > 0.003
    assert numbers["speedup_high"] < 0.5
