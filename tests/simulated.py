"""Machines that drift, burst and have moods, and arms that run on them: nothing sleeps, the clock moves by work."""

import itertools
import math

import numpy as np

from strop.measure.paired import ARMS, Block, Opening, measure
from strop.measure.split import lead_in_calls


class Machine:
    """A clock that only work moves, and a speed that changes with it."""

    def __init__(self, slowdown=lambda _: 1.0):
        self.now = 0.0
        self.slowdown = slowdown

    def clock(self):
        return self.now

    def spend(self, seconds):
        """Work that takes `seconds` on a calm machine; return what it took."""
        began = self.now
        self.now += seconds * self.slowdown(self.now)
        return self.now - began


class Arm:
    """Calls of a known duration, with noise, luck of each session and each process, and a warm-up."""

    def __init__(
        self, machine, name, call_s, rng, *, noise=0.0, luck=0.0, process_luck=0.0, tail=0.0, warm_up=0.0, journal=None
    ):
        self.machine, self.name, self.call_s, self.rng = machine, name, call_s, rng
        self.noise, self.luck, self.process_luck, self.tail, self.warm_up = noise, luck, process_luck, tail, warm_up
        self.journal = journal if journal is not None else []
        self.process, self.session, self.calls = 1.0, 1.0, 0

    def start(self):
        self.journal.append((self.name, "start"))
        self.process = math.exp(self.rng.normal(0, self.process_luck))
        self.machine.spend(0.3)

    def renew(self):
        self.journal.append((self.name, "renew"))
        self.session = self.process * math.exp(self.rng.normal(0, self.luck))
        self.calls = 0
        self.machine.spend(0.1)
        return Opening(0.1, self.call_s)

    def block(self, batches, keep=False):
        assert keep in (True, False)
        self.journal.append((self.name, list(batches)))
        count = len(batches)
        lead_in_s = self.machine.spend(self.session * self.call_s * lead_in_calls(self.session * self.call_s))
        cold = 1 + self.warm_up * np.exp(-(self.calls + np.arange(1, count + 1)) / 20)
        self.calls += count
        spent = self.call_s * self.session * cold * np.exp(self.rng.normal(0, self.noise, count))
        if self.tail:
            spent *= np.where(self.rng.random(count) < self.tail, self.rng.pareto(1.5, count) + 1, 1.0)
        starts, latencies = np.empty(count), np.empty(count)
        for at, seconds in enumerate(spent):
            starts[at] = self.machine.now
            latencies[at] = self.machine.spend(seconds)
        self.machine.spend(0.002)
        return Block(starts, latencies, None, lead_in_s)


def compared(machine, ratio, rules, seed=0, call_s=0.01, batches=16, arm=Arm, observer=None, **noise):
    """Measure a variant that is `ratio` times as fast; return the measurement and the journal of both arms."""
    rng, journal = np.random.default_rng(seed), []
    arms = {name: arm(machine, name, call_s, rng, journal=journal, **noise) for name in ARMS}
    arms["variant"].call_s = call_s / ratio
    return measure(arms, batches, rules, machine.clock, observer), journal


def drifting(end=3.0, over_s=20.0):
    """The machine slows down to `end` times the time over `over_s`."""
    return lambda now: 1 + (end - 1) * min(now / over_s, 1.0)


def bursts(seed, share=0.4, slow=2.5, mean_s=0.5):
    """Neighbours come and go, at random."""
    rng = np.random.default_rng(seed)
    lengths = rng.exponential(mean_s, 4000)
    ends, busy = np.cumsum(lengths), rng.random(4000) < share
    return lambda now: slow if busy[np.searchsorted(ends, now) % 4000] else 1.0


def moods(seed, slow=1.3, mean_s=4.0):
    """Two clock speeds, each kept for seconds."""
    ends = np.cumsum(np.random.default_rng(seed).exponential(mean_s, 1000))
    return lambda now: slow if np.searchsorted(ends, now) % 2 else 1.0


def leaders(journal, what):
    """Return who did `what` first in each couple of equal entries."""
    return [who for who, found in journal if found == what][::2]


def alternates(names):
    """Return whether no two neighbours are equal."""
    return all(a != b for a, b in itertools.pairwise(names))


def samples(done):
    """Return all timed calls as dicts."""
    columns = done.samples()
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
