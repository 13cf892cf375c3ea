"""The coordinator: lets one arm work while the other sleeps, and stops when the ratio is known well enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from strop.measure.warmup import warm_up
from strop.stats.paired import Ratio, paired_ratio

ARMS = ("reference", "variant")
SESSIONS_PER_PROCESS = 3
PAIRS = 8  # pairs of blocks that an instance aims at
FEWEST_PAIRS = 4
MOST_CALLS = 200  # calls of a block
WARMUP_SHARE = 0.25  # of the time limit: what one warm-up may take


@dataclass(frozen=True)
class Block:
    """Timed calls: start on the machine's monotonic clock and duration of each [s], float64, shape (calls,)."""

    start_s: np.ndarray
    latency_s: np.ndarray


class Arm(Protocol):
    """One side of a comparison; it sleeps, and burns no CPU, whenever none of its methods runs."""

    def start(self) -> None:
        """Begin a new process, without waiting for it; an earlier one is ended first."""
        ...

    def renew(self) -> dict[str, float]:
        """Load the session anew; return `load_s` and `first_call_s`."""
        ...

    def block(self, batches: Sequence[int]) -> Block:
        """Call the session on these batches, in order."""
        ...


@dataclass(frozen=True)
class Rules:
    """When to stop; the fields are the settings of `strop.settings.Benchmark`."""

    instances: int
    min_time_s: float
    max_time_s: float
    min_calls: int
    precision: float
    seed: int


@dataclass
class Measurement:
    """What was measured. `instances` holds the log ratios of an instance's pairs, `steady` whether warm-ups ended."""

    samples: list[dict[str, Any]] = field(default_factory=list)
    instances: list[np.ndarray] = field(default_factory=list)
    openings: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    steady: bool = True
    stopped_by: str = ""
    ratio: Ratio = Ratio(math.nan, 0.0, math.inf)
    calls: int = 0
    timed_s: float = 0.0


def measure(
    arms: Mapping[str, Arm],
    batches: int,
    rules: Rules,
    clock: Callable[[], float],
    after_instance: Callable[[Measurement], None] = lambda _: None,
) -> Measurement:
    """Compare two arms.

    Args:
        arms: `reference` and `variant`.
        batches: number of prepared batches that `Arm.block` may name, in order of size.
        rules: when to stop.
        clock: monotonic clock [s].
        after_instance: called after each instance, for progress and spot checks; outside of the timed calls.
    """
    rng = np.random.default_rng(rules.seed)
    first = rng.permutation(ARMS).tolist()
    done = Measurement()
    began = clock()
    spent_s = {True: 0.0, False: 0.0}  # by the last instance in a new process, and by the last in an old one
    while not done.stopped_by:
        instance_began = clock()
        new = _in_new_process(done)
        order = first[:: 1 if len(done.instances) % 2 == 0 else -1]
        _renew(arms, done, order)
        calls, wanted = _size(_warm(arms, batches, rules, done, clock, order), rules)
        pairs = _pairs(arms, batches, calls, done, rng)
        share_s = done.timed_s + rules.min_time_s / rules.instances
        ratios = list(itertools.islice(pairs, FEWEST_PAIRS))
        while (len(ratios) < wanted or done.timed_s < share_s) and clock() - began < rules.max_time_s:
            ratios.append(next(pairs))
        done.instances.append(np.asarray(ratios))
        done.ratio = paired_ratio(done.instances, np.random.default_rng(rules.seed))
        spent_s[new] = clock() - instance_began
        next_s = spent_s[_in_new_process(done)]
        done.stopped_by = _stop(done, rules, clock() - began + next_s / 2)
        after_instance(done)
    return done


def _in_new_process(done: Measurement) -> bool:
    """Return whether the instance to come is the first one of its processes."""
    return len(done.instances) % SESSIONS_PER_PROCESS == 0


def draw(batches: int, calls: int, rng: np.random.Generator) -> list[int]:
    """Return the batches of a block: one at random from each of `calls` equal parts of them, in random order.

    Batches are in order of size. A speedup depends on size, so blocks of any sizes would differ by more than the
    machine's noise; every batch is as likely as any other.
    """
    places = (np.arange(calls) + rng.random(calls)) * batches / calls
    drawn: list[int] = rng.permutation(places.astype(np.int64) % batches).tolist()
    return drawn


def _renew(arms: Mapping[str, Arm], done: Measurement, order: list[str]) -> None:
    """Load both sessions anew, every few times in new processes, which start side by side.

    Who is loaded first may be slower for it, whatever it is: so the order is random for the first instance, and the
    other way round for each next one.
    """
    if _in_new_process(done):
        for name in order:
            arms[name].start()
    for name in order:
        done.openings[name].append(arms[name].renew())


def _warm(
    arms: Mapping[str, Arm],
    batches: int,
    rules: Rules,
    done: Measurement,
    clock: Callable[[], float],
    order: list[str],
) -> float:
    """Warm both sessions up, and return how long a call of each takes then, together [s]."""
    pair_s = 0.0
    for name in order:
        every = arms[name].block(range(batches))  # each shape once: a compiler may work at any of them
        usual_s = float(np.median(every.latency_s))
        window = range(min(batches, max(1, min(8, int(0.02 / max(usual_s, 1e-9))))))

        def once(arm: Arm = arms[name], calls: range = window) -> float:
            return float(arm.block(calls).latency_s.sum())

        steady, windows_s = warm_up(once, WARMUP_SHARE * rules.max_time_s, clock)
        done.steady &= steady
        pair_s += windows_s[-1] / len(window)
    return pair_s


def _size(pair_s: float, rules: Rules) -> tuple[int, int]:
    """Return calls a block and pairs an instance, where a call of each arm takes `pair_s` together [s]."""
    share_s = rules.min_time_s / rules.instances
    calls = min(MOST_CALLS, max(1, round(share_s / PAIRS / pair_s)))
    needed = math.ceil(max(rules.min_calls / rules.instances, share_s / pair_s) / calls)
    return calls, max(FEWEST_PAIRS, PAIRS if calls > 1 else 0, needed)


def _pairs(
    arms: Mapping[str, Arm], batches: int, calls: int, done: Measurement, rng: np.random.Generator
) -> Iterator[float]:
    """Time pairs of blocks of `calls` calls, in random order within a pair, and yield the logarithm of each ratio."""
    instance = len(done.instances)
    for number in itertools.count():
        drawn = draw(batches, calls, rng)
        blocks = {name: arms[name].block(drawn) for name in rng.permutation(ARMS).tolist()}
        _keep(blocks, instance, number, drawn, done)
        yield math.log(float(blocks["reference"].latency_s.sum() / blocks["variant"].latency_s.sum()))


def _keep(blocks: dict[str, Block], instance: int, number: int, batches: list[int], done: Measurement) -> None:
    for name, block in blocks.items():
        for at, batch in enumerate(batches):
            done.samples.append(
                {
                    "instance": instance,
                    "block": number,
                    "arm": name,
                    "batch": batch,
                    "start_s": float(block.start_s[at]),
                    "latency_s": float(block.latency_s[at]),
                }
            )
        done.timed_s += float(block.latency_s.sum())
    done.calls += len(batches)


def _stop(done: Measurement, rules: Rules, expected_s: float) -> str:
    """Return why sampling ends after this instance, or an empty text.

    Args:
        done: so far.
        rules: when to stop.
        expected_s: time since the start, if half of another instance were done [s]: so the limit is kept on average.
    """
    enough = (
        len(done.instances) >= rules.instances and done.calls >= rules.min_calls and done.timed_s >= rules.min_time_s
    )
    if enough and done.ratio.half_width <= rules.precision:
        return "precision"
    return "time" if expected_s > rules.max_time_s and len(done.instances) > 1 else ""
