"""More threads than CPUs leave the median as it is and ruin the tail: the row says so, and the ratio knows the tail."""

import numpy as np

from strop.measure.conditions import Watch, noise
from strop.measure.numbers import of_comparison, of_latency
from strop.measure.paired import Block, Opening, Rules, measure

CALM = {"foreign_cores": 0.0, "steal_share": 0.0}


def test_more_threads_than_cpus_are_noisy_and_as_many_are_not(row):
    assert noise(CALM, 0.01, 0.02, 2, 2) is None
    assert noise(CALM, 0.01, 0.02, 3, 2) == "3 threads on 2 CPUs"
    row("threads", "device.threads=16 on 2 CPUs", "noisy", noise(CALM, 0.01, 0.02, 16, 2))
    assert "16 threads on 2 CPUs" in noise(Watch().conditions([], []), 0.01, 0.02, 16, 2)


class Arm:
    """Calls of 1 ms, of which every `every`-th takes `tail_s`."""

    def __init__(self, clock, every, tail_s):
        self.clock, self.every, self.tail_s, self.calls = clock, every, tail_s, 0

    def start(self):
        pass

    def renew(self):
        self.clock[0] += 0.01
        return Opening(0.01, 0.001)

    def block(self, batches, keep=False):
        del keep
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
    done = measure(arms, 4, Rules(4, 2.0, 60.0, 400, 10**6, 0.05, 0), lambda: clock[0])
    numbers = of_latency(done, 1)
    assert numbers["latency_p50_s"] == numbers["reference_latency_p50_s"] == 0.001
    assert numbers["latency_p99_s"] > 0.05
    assert numbers["latency_mean_s"] > 0.003
    assert of_comparison(done)["speedup_high"] < 0.5
