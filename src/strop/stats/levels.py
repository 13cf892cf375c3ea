"""Where the scatter of a comparison comes from: processes, sessions in them, pairs of blocks in those.

A comparison is a nested experiment. More pairs average out what differs from pair to pair, and nothing else; so the
scatter of each level is estimated, and time goes to the level where it buys most. Source: T. Kalibera, R. Jones,
"Rigorous benchmarking in reasonable time", ISMM 2013, sections 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Levels:
    """Standard deviation of the log ratio at each level [1]; None where there were too few to tell.

    Attributes:
        process: between the means of processes, if each had endless sessions.
        session: between the means of sessions of one process, if each had endless pairs.
        pair: between the pairs of one session.
    """

    process: float | None
    session: float | None
    pair: float | None


def levels(sessions: Sequence[np.ndarray], processes: Sequence[int]) -> Levels:
    """Estimate the scatter at each level, by the method of moments for unbalanced nested classes.

    Args:
        sessions: for each session the log ratio of each of its pairs, float64, shape (pairs,), pairs >= 1.
        processes: for each session the number of its process.

    Source: S. Searle, G. Casella, C. McCulloch, "Variance Components" (1992), section 3.6. An estimate below zero
    means none that can be seen: 0.
    """
    within = [float(pairs.var(ddof=1)) for pairs in sessions if pairs.size > 1]
    pair = float(np.mean(within)) if within else None
    means = np.asarray([pairs.mean() for pairs in sessions])
    noise = float(np.mean([(pair or 0.0) / pairs.size for pairs in sessions]))
    between, inside = between_and_inside(means, np.asarray(processes))
    session = None if inside is None else max(0.0, inside - noise)
    process = None if between is None else max(0.0, between)
    if session is None and between is None and len(means) > 1:  # one session a process: they cannot be told apart
        session = max(0.0, float(means.var(ddof=1)) - noise)
    return Levels(_root(process), _root(session), _root(pair))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def between_and_inside(values: np.ndarray, groups: np.ndarray) -> tuple[float | None, float | None]:
    """Return the variance between groups and that inside of them; None where it cannot be estimated."""
    names, counts = np.unique(groups, return_counts=True)
    n, k = len(values), len(names)
    if n == k:
        return None, None
    means = np.asarray([values[groups == name].mean() for name in names])
    inside = sum(float(((values[groups == name] - mean) ** 2).sum()) for name, mean in zip(names, means, strict=True))
    inside /= n - k
    if k == 1:
        return None, inside
    between = float((counts * (means - values.mean()) ** 2).sum()) / (k - 1)
    size = (n - float((counts**2).sum()) / n) / (k - 1)
    return (between - inside) / size, inside


def best_count(cost: float, cost_above: float, variance: float, variance_above: float) -> float:
    """Return how many units of a level a unit of the level above should have, for the least scatter in a given time.

    It is sqrt(cost_above / cost * variance / variance_above), infinite where the level above does not scatter.

    Args:
        cost: time of one unit of the level [s].
        cost_above: time that a unit of the level above costs beside its units of this one [s].
        variance: between units of the level, within one of the level above.
        variance_above: between units of the level above.

    Source: Kalibera and Jones 2013, section 7 (their equation for the optimal number of repetitions).
    """
    if variance_above <= 0:
        return math.inf
    return math.sqrt(cost_above / cost * variance / variance_above)
