"""What strop adds to a call, beside MLPerf LoadGen's Python binding: `python benchmarks/overhead.py [--quick]`.

Two ONNX sessions, of about 20 us and 5 ms a call, go through a bare loop, through strop and through LoadGen, in one
interleaved run: each round makes all processes anew, and in each turn of a round every harness makes the same number
of calls, in random order, one at work at a time. A difference is taken within a turn; then come the median over the
turns of a round, and the median over rounds with its interval.

Where a session's memory falls is worth 2 % and is no harness's doing. So the harnesses are compared twice: in one
process, on one and the same session, which shows what their loops add; and strop's worker as it really runs, in a
process and with a session of its own. What the latter comparison can resolve is shown by a control: the bare loop
again, in another process.

A session that has slept starts with cold caches. Bare loop, strop's loop and LoadGen therefore make some untimed calls
before the timed ones; strop's worker is taken as it is. The second table shows how its calls depend on the length of a
block, while another process makes as many calls between two blocks, as in a study.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harnesses import Harnesses, Host, make_artifact, rotation, worker_task

from strop.measure.arm import HUGE_PAGES, WorkerArm

ROWS = {
    "bare": "bare loop",
    "loop": "strop's loop, same session",
    "loadgen": "LoadGen, same session",
    "worker": "strop's worker, own process",
    "control": "bare loop, own process",
}

PLACES = (1, 2, 3, 5, 10)  # of a call in its block


@dataclass(frozen=True)
class Session:
    """A session to be made: its matrices, the time of a call that is wanted [s], what strop may add to it [s].

    `calls` are timed in a turn by each harness after `untimed` ones; `lengths` are those of strop's blocks [1].
    """

    name: str
    rows: int
    width: int
    wanted_s: float
    within_s: float
    calls: int
    untimed: int
    lengths: tuple[int, ...]


SESSIONS = (
    Session("20 us", 1, 128, 20e-6, 3e-6, 301, 50, (1, 3, 5, 10, 50, 200)),
    Session("5 ms", 128, 512, 5e-3, 50e-6, 9, 6, (1, 3, 5, 10, 50)),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds of fresh processes, turns a round, how many lengths of block, calls by each [1]."""

    rounds: int
    turns: int
    lengths: int
    calls_by_length: int


FULL = Effort(rounds=12, turns=9, lengths=6, calls_by_length=30)
QUICK = Effort(rounds=2, turns=1, lengths=2, calls_by_length=3)


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a few calls, to see that it works; the numbers mean nothing"
    )
    effort = QUICK if parser.parse_args().quick else FULL
    os.environ["GLIBC_TUNABLES"] = HUGE_PAGES  # for all processes alike, as strop's workers have it
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        artifacts = {session: sized(session, Path(folder)) for session in SESSIONS}
        rounds: dict[Session, list[Round]] = {session: [] for session in SESSIONS}
        for _ in range(effort.rounds):
            for session in SESSIONS:
                rounds[session].append(measure(session, artifacts[session], effort, rng))
    print("\n".join(overhead_table(rounds)), end="\n\n")
    print("\n".join(length_table(rounds)), end="\n\n")
    print("\n".join(requirements(rounds)))


def sized(session: Session, folder: Path) -> Path:
    """Make the session's artifact with as many layers as take the wanted time here, and return its folder."""
    trials_s = {}
    for layers in (4, 12):
        trial = folder / f"{session.width}-{layers}"
        make_artifact(trial, session.rows, session.width, layers)
        harnesses = Harnesses(trial)
        trials_s[layers] = min(harnesses.bare(session.calls, session.untimed) for _ in range(8))
    layer_s = (trials_s[12] - trials_s[4]) / 8
    layers = max(1, round(12 + (session.wanted_s - trials_s[12]) / max(layer_s, 1e-9)))
    artifact = folder / f"{session.width}"
    make_artifact(artifact, session.rows, session.width, layers)
    return artifact


@dataclass
class Round:
    """Medians of one round [s]: of each harness one a turn, and the latencies of strop's blocks by their length.

    A length's array has shape (blocks, length).
    """

    medians_s: dict[str, list[float]]
    blocks_s: dict[int, np.ndarray]

    def difference_s(self, harness: str) -> float:
        """Return the median over turns of what a harness shows more than the bare loop [s]."""
        return float(np.median(np.subtract(self.medians_s[harness], self.medians_s["bare"])))


def measure(session: Session, artifact: Path, effort: Effort, rng: np.random.Generator) -> Round:
    """Do one round in fresh processes."""
    arm = WorkerArm("worker", **worker_task(artifact))
    done = Round({harness: [] for harness in ROWS}, {})
    with Host(artifact) as first, Host(artifact) as second:
        arm.start()
        arm.renew()

        def median_s(harness: str) -> float:
            if harness == "worker":
                return float(np.median(arm.block(rotation(session.calls)).latency_s))
            host, what = (second, "bare") if harness == "control" else (first, harness)
            return host.ask(what, session.calls, session.untimed)

        for turn in range(1 + effort.turns):
            for harness in rng.permutation(list(ROWS)).tolist():
                found_s = median_s(harness)
                if turn > 0:  # the first one warms up
                    done.medians_s[harness].append(found_s)
        for length in rng.permutation(session.lengths[: effort.lengths]).tolist():
            done.blocks_s[length] = np.stack(list(blocks(arm, first, length, effort.calls_by_length)))
        arm.close()
    return done


def blocks(arm: WorkerArm, other: Host, length: int, calls: int) -> Iterator[np.ndarray]:
    """Yield the latencies of strop's blocks of `length` calls, between which another process works for as long."""
    for _ in range(max(2, calls // length)):
        other.ask("bare", length, 0)
        yield arm.block(rotation(length)).latency_s


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median of one value a round, and both ends of its 95 % interval.

    The ends are two of the values, by the binomial law of how many lie below the median: a round that a neighbour
    spoilt counts as one round, however bad it was. Fewer than six values cannot tell that much: then all lie between.
    Source: H. David, H. Nagaraja, "Order Statistics" (2003), section 7.1.
    """
    from scipy.stats import binom

    ordered = np.sort(values)
    end = max(1, int(binom.ppf(0.025, len(ordered), 0.5)))
    return float(np.median(ordered)), float(ordered[end - 1]), float(ordered[-end])


def cells(differences_s: list[float], bare_s: float) -> list[str]:
    """Return a difference and its interval in microseconds and in percent of the bare loop."""
    middle, low, high = interval(differences_s)
    return [
        f"{middle * 1e6:+.2f} [{low * 1e6:+.2f}, {high * 1e6:+.2f}]",
        f"{middle / bare_s:+.2%} [{low / bare_s:+.2%}, {high / bare_s:+.2%}]",
    ]


def overhead_table(rounds: dict[Session, list[Round]]) -> list[str]:
    """Return the lines of the table of harnesses."""
    lines = [["session", "harness", "p50 us", "over the bare loop us [95 %]", "% [95 %]"]]
    for session, done in rounds.items():
        bare_s = bare_p50_s(done)
        for harness, name in ROWS.items():
            p50_s = np.median([made.medians_s[harness] for made in done])
            more = cells([made.difference_s(harness) for made in done], bare_s) if harness != "bare" else ["", ""]
            lines.append([session.name, name, f"{p50_s * 1e6:.2f}", *more])
    return aligned(lines)


def length_table(rounds: dict[Session, list[Round]]) -> list[str]:
    """Return the lines of the table of strop's blocks: their median and mean call, and calls by their place in it."""
    names = [f"call {place}" for place in PLACES]
    lines = [["session", "calls a block", "p50 us", "over the bare loop us [95 %]", "% [95 %]", "mean %", *names]]
    for session, done in rounds.items():
        bare_s = bare_p50_s(done)
        for length in sorted(done[0].blocks_s):
            found = np.concatenate([made.blocks_s[length] for made in done])
            over = [float(np.median(made.blocks_s[length]) - np.median(made.medians_s["bare"])) for made in done]
            mean_s = np.median(found.mean(axis=1))
            at_s = [mean_s, *(np.median(found[:, place - 1]) for place in PLACES if place <= length)]
            lines.append(
                [session.name, str(length), f"{np.median(found) * 1e6:.2f}", *cells(over, bare_s)]
                + [f"{value_s / bare_s - 1:+.1%}" for value_s in at_s]
            )
    return aligned(lines)


def bare_p50_s(done: list[Round]) -> float:
    """Return the bare loop's median over all turns of all rounds [s]."""
    return float(np.median([made.medians_s["bare"] for made in done]))


def requirements(rounds: dict[Session, list[Round]]) -> list[str]:
    """Return one line a requirement: whether the whole interval keeps it, breaks it, or holds the limit."""
    lines = []
    for session, done in rounds.items():
        for harness in ("loop", "worker"):
            over = interval([made.difference_s(harness) for made in done])
            below = interval([made.difference_s(harness) - made.difference_s("loadgen") for made in done])
            what = f"{session.name}, {ROWS[harness]}"
            lines.append(
                f"{what}: within {session.within_s * 1e6:g} us of the bare loop: {verdict(over, session.within_s)}"
            )
            lines.append(f"{what}: below LoadGen: {verdict(below, 0.0)}")
    return lines


def verdict(found: tuple[float, float, float], limit: float) -> str:
    """Return what a median and its interval say about an upper limit."""
    _, low, high = found
    return "yes" if high <= limit else "no" if low > limit else "undecided"


def aligned(lines: list[list[str]]) -> list[str]:
    """Return rows of cells as text, in columns two spaces apart."""
    rows = [[*line, *[""] * (len(lines[0]) - len(line))] for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


if __name__ == "__main__":
    main()
