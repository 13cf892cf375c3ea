"""The coordinator: lets one arm work while the other sleeps, and stops when the ratio is known well enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from strop.compare import Outputs
from strop.measure.split import FEWEST_CALLS, Costs, block_calls, pairs_wanted, sessions_wanted
from strop.measure.warmup import FEWEST_WINDOWS, warm_up
from strop.stats.levels import Levels, levels
from strop.stats.paired import Ratio, paired_ratio

ARMS = ("reference", "variant")
BATCHES = 8  # distinct batches that one session is called with: each must be warmed up
PAIR_S = 1.0  # longest time of a pair's calls, if several batches are in it
FEWEST_PAIRS = 5  # of fewer, none can be left out
LAST_WINDOWS = 5  # of a warm-up, for the usual time of a call
WARMUP_SHARE = 0.25  # of the time limit: what one warm-up may take


@dataclass(frozen=True)
class Opening:
    """A session was loaded: time to load it, of its first call, and what of both its runtime spent compiling [s]."""

    load_s: float
    first_call_s: float
    compile_s: float | None = None


@dataclass(frozen=True)
class Block:
    """Timed calls.

    Attributes:
        start_s: on the machine's monotonic clock [s], float64, shape (calls,).
        latency_s: duration of each [s], float64, shape (calls,).
        outputs: of the last call, if they were to be kept.
        lead_in_s: time of calls before the timed ones [s].
        device_s: time on a CUDA device [s], float64, shape (calls,); None elsewhere.
    """

    start_s: np.ndarray
    latency_s: np.ndarray
    outputs: Outputs | None = None
    lead_in_s: float = 0.0
    device_s: np.ndarray | None = None


class Arm(Protocol):
    """One side of a comparison; it sleeps, and burns no CPU, whenever none of its methods runs."""

    def start(self) -> None:
        """Begin a new process, without waiting for it; an earlier one is ended first."""
        ...

    def renew(self) -> Opening:
        """Load the session anew."""
        ...

    def block(self, batches: Sequence[int], keep: bool = False) -> Block:
        """Call the session on these batches, in order, and keep the last one's outputs if asked to."""
        ...


class Observer:
    """Looks on between the timed calls: for progress, spot checks, decisions. This one does nothing."""

    def after_pair(self, batch: int, blocks: Mapping[str, Block]) -> None:
        """Blocks of both arms are done, which ended with a call on `batch`."""

    def after_instance(self, arms: Mapping[str, Arm], done: Measurement) -> None:
        """An instance is done; its sessions are still open."""

    def decided(self, done: Measurement) -> bool:
        """Return whether more samples would change no decision."""
        del done
        return False


@dataclass(frozen=True)
class Rules:
    """When to stop; the fields are the settings of `strop.settings.Benchmark`."""

    instances: int
    min_time_s: float
    max_time_s: float
    min_calls: int
    max_calls: int
    precision: float
    seed: int


@dataclass(frozen=True)
class Turn:
    """A block as it was timed: of which instance, which block of the comparison, which arm, on which batches."""

    instance: int
    number: int
    arm: str
    batches: list[int]
    block: Block


@dataclass
class Measurement:
    """What was measured. `ratios` holds the log ratios of each instance's pairs, `processes` the process of each."""

    turns: list[Turn] = field(default_factory=list)
    ratios: list[np.ndarray] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    openings: dict[str, list[Opening]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    steady: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(ARMS, True))
    stopped_by: str = ""
    ratio: Ratio = Ratio(math.nan, 0.0, math.inf)
    calls: int = 0
    timed_s: float = 0.0
    blocks_s: list[float] = field(default_factory=list)
    switches_s: list[float] = field(default_factory=list)

    @property
    def levels(self) -> Levels:
        """Where the scatter of the log ratio comes from."""
        return levels(self.ratios, self.processes)

    @property
    def call_s(self) -> float:
        """Mean time of a call of both arms [s]."""
        return self.timed_s / (2 * self.calls)

    def latencies(self, arm: str) -> list[np.ndarray]:
        """Return the latencies [s] of an arm, one vector an instance, in order of time."""
        found: list[list[np.ndarray]] = [[np.zeros(0)] for _ in self.ratios]
        for turn in self.turns:
            if turn.arm == arm:
                found[turn.instance].append(turn.block.latency_s)
        return [np.concatenate(series) for series in found]

    def samples(self) -> dict[str, np.ndarray]:
        """Return all timed calls as columns: instance, block, arm, batch, start_s and latency_s [s], shape (calls,).

        `device_s` is among them if it was measured.
        """
        sizes = [len(turn.batches) for turn in self.turns]
        blocks = [turn.block for turn in self.turns]
        columns = {
            "instance": np.repeat([turn.instance for turn in self.turns], sizes),
            "block": np.repeat([turn.number for turn in self.turns], sizes),
            "arm": np.repeat([turn.arm for turn in self.turns], sizes),
            "batch": np.concatenate([turn.batches for turn in self.turns]),
            "start_s": np.concatenate([block.start_s for block in blocks]),
            "latency_s": np.concatenate([block.latency_s for block in blocks]),
        }
        on_device = [block.device_s for block in blocks if block.device_s is not None]
        return columns | ({"device_s": np.concatenate(on_device)} if len(on_device) == len(blocks) else {})


def measure(
    arms: Mapping[str, Arm], batches: int, rules: Rules, clock: Callable[[], float], observer: Observer | None = None
) -> Measurement:
    """Compare two arms.

    Args:
        arms: `reference` and `variant`.
        batches: number of prepared batches that blocks may call, in order of size.
        rules: when to stop.
        clock: monotonic clock [s].
        observer: is told of each pair and each instance; None: nobody looks on.
    """
    return _Comparison(arms, batches, rules, clock, observer or Observer()).run()


class _Comparison:
    def __init__(
        self, arms: Mapping[str, Arm], batches: int, rules: Rules, clock: Callable[[], float], observer: Observer
    ) -> None:
        self._arms, self._batches, self._rules, self._clock, self._observer = arms, batches, rules, clock, observer
        self._rng = np.random.default_rng(rules.seed)
        self._order: list[str] = []
        self._in_process = 0
        self._costs = Costs()
        self._done = Measurement()

    def run(self) -> Measurement:
        """Measure until there is a reason to stop."""
        done = self._done
        began = self._clock()
        while not done.stopped_by:
            instance_began = self._clock()
            self._open()
            chosen = draw(self._batches, self._batches_wanted(), self._rng)
            call_s = self._warm(chosen)
            self._costs.session_s.append(self._clock() - instance_began - self._costs.last_process_s)
            done.ratios.append(self._time(chosen, call_s, began))
            done.ratio = paired_ratio(done.ratios, done.processes)
            self._observer.after_instance(self._arms, done)
            now = self._clock()
            next_s = now - instance_began - self._costs.last_process_s
            next_s += float(np.median(self._costs.process_s)) if self._needs_process() else 0.0
            done.stopped_by = self._stop(now - began + next_s / 2)
        return done

    def _batches_wanted(self) -> int:
        """Return how many batches a session is called with: fewer of long calls, so that a pair is over soon."""
        most = BATCHES if not self._done.calls else max(FEWEST_CALLS, int(PAIR_S / (2 * self._done.call_s)))
        return min(BATCHES, self._batches, most)

    def _open(self) -> None:
        """Load both sessions anew, now and then in new processes, which start side by side.

        Who is loaded first may be slower for it, whatever it is. So the order is random for one instance, and the
        other way round for the next one.
        """
        done = self._done
        self._order = self._order[::-1] if len(done.ratios) % 2 else self._rng.permutation(ARMS).tolist()
        new = self._needs_process()
        began = self._clock()
        if new:
            for name in self._order:
                self._arms[name].start()
        self._in_process = 1 if new else self._in_process + 1
        done.processes.append(done.processes[-1] + new if done.processes else 0)
        for name in self._order:
            done.openings[name].append(self._arms[name].renew())
        self._costs.opened(self._clock() - began, new)

    def _needs_process(self) -> bool:
        """Return whether the next session belongs in new processes."""
        return not self._done.processes or self._in_process >= sessions_wanted(self._costs, self._rules.instances)

    def _warm(self, chosen: Sequence[int]) -> float:
        """Warm both sessions up, and return how long a call takes then, as the mean of both arms [s]."""
        usual_s = []
        for name in self._order:
            arm = self._arms[name]
            every = arm.block(chosen)  # each shape once: a compiler may work at any of them
            first_s = float(np.median(every.latency_s))
            window = list(chosen[: max(1, min(len(chosen), int(0.02 / max(first_s, 1e-9))))])

            first = arm.block(window * FEWEST_WINDOWS)  # so many at once: one lead-in serves them all
            known = iter(first.latency_s.reshape(FEWEST_WINDOWS, -1).sum(axis=1).tolist())

            def once(arm: Arm = arm, calls: Sequence[int] = window, known: Iterator[float] = known) -> float:
                return next(known, None) or float(arm.block(calls).latency_s.sum())

            steady, windows_s = warm_up(once, WARMUP_SHARE * self._rules.max_time_s, self._clock)
            self._done.steady[name] &= steady
            usual_s.append(float(np.median(windows_s[-LAST_WINDOWS:])) / len(window))
        return float(np.mean(usual_s))

    def _time(self, chosen: Sequence[int], call_s: float, began: float) -> np.ndarray:
        """Time pairs, and return the logarithm of each pair's ratio."""
        done, rules = self._done, self._rules
        calls = block_calls(call_s, self._costs)
        of_pair = max(len(chosen), calls)
        needed = math.ceil(max(rules.min_calls, rules.min_time_s / (2 * call_s)) / rules.instances / of_pair)
        share_s = rules.max_time_s / rules.instances
        wanted = max(FEWEST_PAIRS, needed, pairs_wanted(self._costs, done.ratios, done.processes, share_s))
        ratios: list[float] = []
        while len(ratios) < FEWEST_PAIRS or (len(ratios) < wanted and self._clock() - began < rules.max_time_s):
            ratios.append(self._pair(chosen, calls))
        return np.asarray(ratios)

    def _pair(self, chosen: Sequence[int], calls: int) -> float:
        """Call both arms on all chosen batches, block by block in random order, and return the log ratio of the times.

        A speedup depends on the batch: pairs of all of them do not scatter by that, and their ratio is one of totals.
        """
        began, spent_s = self._clock(), dict.fromkeys(ARMS, 0.0)
        rounds = math.ceil(calls / len(chosen))
        batches = self._rng.permutation(np.repeat(chosen, rounds))
        for part in map(np.ndarray.tolist, np.array_split(batches, max(1, round(len(batches) / calls)))):
            blocks = {name: self._block(name, part) for name in self._rng.permutation(ARMS).tolist()}
            self._observer.after_pair(part[-1], blocks)
            self._keep(blocks, part)
            for name, block in blocks.items():
                spent_s[name] += float(block.latency_s.sum())
        self._costs.pair_s.append(self._clock() - began)
        return math.log(spent_s["reference"] / spent_s["variant"])

    def _block(self, name: str, batches: list[int]) -> Block:
        began = self._clock()
        block = self._arms[name].block(batches, keep=True)
        timed_s = float(block.latency_s.sum())
        self._done.blocks_s.append(timed_s)
        self._done.switches_s.append(self._clock() - began - timed_s - block.lead_in_s)
        self._costs.switch_s = self._done.switches_s
        return block

    def _keep(self, blocks: dict[str, Block], batches: list[int]) -> None:
        done = self._done
        number = len(done.turns) // 2
        for name, block in blocks.items():
            kept = replace(block, outputs=None)  # they may be large, and were looked at
            done.turns.append(Turn(len(done.ratios), number, name, batches, kept))
            done.timed_s += float(block.latency_s.sum())
        done.calls += len(batches)

    def _stop(self, expected_s: float) -> str:
        """Return why sampling ends after this instance, or an empty text.

        Args:
            expected_s: time since the start, if half of another instance were done [s]: the limit is kept on average.
        """
        done, rules = self._done, self._rules
        enough = len(done.ratios) >= rules.instances and done.calls >= rules.min_calls
        if enough and done.timed_s >= rules.min_time_s:
            if done.ratio.half_width <= rules.precision:
                return "precision"
            if self._observer.decided(done):
                return "decision"
        if len(done.ratios) > 1 and done.calls >= rules.max_calls:
            return "calls"
        return "time" if expected_s > rules.max_time_s and len(done.ratios) > 1 else ""


def draw(batches: int, count: int, rng: np.random.Generator) -> list[int]:
    """Return the batches of a session: one at random from each of `count` equal parts of them, in order of size.

    Batches are in order of size. A speedup depends on size, so any few of them would differ by more than the machine's
    noise; every batch is as likely as any other.
    """
    places = (np.arange(count) + rng.random(count)) * batches / count
    drawn: list[int] = places.astype(np.int64).tolist()
    return drawn
