"""How the time of a comparison is split over calls, blocks, sessions and processes.

The counts follow Kalibera's and Jones's rule (`strop.stats.levels.best_count`): costs are those of the comparison
itself, and so is the scatter of pairs, which is known soon. The scatter of sessions and processes is known late in a
comparison of some seconds; what it usually is was measured, and stands in: docs/design/measurement.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from strop.stats.levels import best_count, levels

LEAD_IN_S = 0.025  # until the caches hold a model of some tens of MB again: docs/design/measurement.md
LEAD_IN_CALLS = 5  # a model that is through sooner needs no longer
SHORT_LEAD_IN_S = 0.0005  # of calls of microseconds, where the processor itself has to wake up
MOST_LEAD_IN_CALLS = 25
BLOCK_OVER_SWITCH = 10  # a block is this many times as long as what a switch costs
CLOCK_TICKS = 1e5  # and as many readings' resolution of the clock
CLOCK_RESOLUTION_S = 1e-7
USUAL_SWITCH_S = 0.002
LONGEST_BLOCK_S = 0.15  # if several calls are in it: what hits one block should hit its partner, too
FEWEST_CALLS, MOST_CALLS = 2, 500  # of a block
FIRST_PAIRS = 6  # of the first session, when nothing is known
MOST_PAIRS = 32  # of a session
MOST_SESSIONS = 8  # of a process
USUAL_SESSION_SD = 0.007  # of the log ratio, between sessions [1]
USUAL_PROCESS_SD = 0.0035  # between processes


@dataclass
class Costs:
    """What was paid for each unit of each level so far [s]."""

    switch_s: list[float] = field(default_factory=list)
    pair_s: list[float] = field(default_factory=list)
    session_s: list[float] = field(default_factory=list)
    process_s: list[float] = field(default_factory=list)
    renew_s: list[float] = field(default_factory=list)
    last_process_s: float = 0.0

    def opened(self, seconds: float, new: bool) -> None:
        """Note the time of opening both sessions; in a `new` process what is more than usual is the process's."""
        usual_s = float(np.median(self.renew_s)) if self.renew_s else 0.0
        if new:
            self.last_process_s = max(0.0, seconds - usual_s)
            self.process_s.append(self.last_process_s)
        else:
            self.renew_s.append(seconds)
            self.last_process_s = 0.0


def lead_in_calls(call_s: float | None) -> int:
    """Return how many calls are made before those of a block are timed.

    Args:
        call_s: usual time of a call [s]; None if nothing is known of it.
    """
    if call_s is None:
        return 1
    fill = min(LEAD_IN_CALLS, math.ceil(LEAD_IN_S / call_s))
    wake = min(MOST_LEAD_IN_CALLS, math.ceil(SHORT_LEAD_IN_S / call_s))
    return max(fill, wake)


def block_calls(call_s: float, costs: Costs) -> int:
    """Return the calls of a block: as many as make it long against its lead-in, a switch's cost and the clock's ticks.

    Args:
        call_s: usual time of a call [s].
        costs: so far.
    """
    switch_s = float(np.median(costs.switch_s)) if costs.switch_s else USUAL_SWITCH_S
    least_s = max(
        BLOCK_OVER_SWITCH * switch_s,
        lead_in_calls(call_s) * call_s,
        CLOCK_TICKS * CLOCK_RESOLUTION_S,
    )
    return min(MOST_CALLS, max(FEWEST_CALLS, round(min(LONGEST_BLOCK_S, least_s) / call_s)))


def pairs_wanted(costs: Costs, ratios: Sequence[np.ndarray], processes: Sequence[int], share_s: float) -> int:
    """Return the pairs of blocks that the next session should have.

    Args:
        costs: so far.
        ratios: the log ratios of the pairs of each session so far.
        processes: the process of each session, and of the one to come.
        share_s: time that a session may take, so that there are enough of them [s].
    """
    if not ratios:
        return FIRST_PAIRS
    found = levels(ratios, processes[: len(ratios)])
    session_sd = max(USUAL_SESSION_SD, found.session or 0.0)
    pair_s, session_s = float(np.median(costs.pair_s)), float(np.median(costs.session_s))
    best = best_count(pair_s, session_s, (found.pair or 0.0) ** 2, session_sd**2)
    return int(min(MOST_PAIRS, best, (share_s - session_s) / pair_s))


def sessions_wanted(costs: Costs, instances: int) -> int:
    """Return the sessions that a process should have: at most so many that there are two processes.

    Args:
        costs: so far.
        instances: fewest sessions of the comparison [1].
    """
    if not costs.process_s or not costs.renew_s:
        return 2  # one of them tells what a session costs without a process
    session_s = float(np.median(costs.session_s)) + float(np.median(costs.pair_s)) * FIRST_PAIRS
    best = best_count(session_s, float(np.median(costs.process_s)), USUAL_SESSION_SD**2, USUAL_PROCESS_SD**2)
    return round(min(MOST_SESSIONS, math.ceil(instances / 2), max(1, best)))
