"""What can be told apart: the noise floor of a study, and rows on the scale of an objective with their ties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.columns import COLUMNS, value_of

Row = dict[str, Any]
# Numbers of the same calls: the speedup is the one that is paired with the reference, so it tells ties apart.
SAME_CALLS = frozenset({"speedup", "throughput_per_s", "latency_mean_s", "latency_p50_s"})
# Tails of the same calls. They have no interval of their own, but are no surer than the speedup.
TAILS = frozenset({"latency_p90_s", "latency_p99_s", "latency_p999_s"})


def control_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the group's row of the reference against itself (A/A); of several the one that erred most.

    A speedup without an interval, or with one from 0 on (a single instance), is no control.
    """
    names = ("speedup", "speedup_low", "speedup_high")
    found = [row for row in rows if row.get("is_reference") and all((value_of(row, n) or 0) > 0 for n in names)]
    return max(found, key=_error, default=None)


def noise_floor(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the least log ratio between two rows of a group that means anything [1]; 0 without a control.

    The control compares equals, so its true log ratio is 0. What it shows instead is an error that this machine made,
    |log speedup|; what it could have shown as well is up to its interval's half-width. The larger of both is the
    floor: the first alone would trust a control that hit 1.0 by luck, the second one that missed 1.0 with a narrow
    interval, which is the very case in which the rows' own intervals are too narrow as well.
    """
    row = control_row(rows)
    return 0.0 if row is None else _error(row)


def _error(control: Mapping[str, Any]) -> float:
    return max(abs(_log(control["speedup"])), _half_width(control, "speedup"))


def gain(row: Mapping[str, Any], objective: str) -> float:
    """Return the objective so that more is better; minus infinity where it was not measured."""
    value = 1.0 if is_unit(row, objective) else value_of(row, objective)
    return float("-inf") if value is None else value if COLUMNS[objective].more else -value


def is_unit(row: Mapping[str, Any], name: str) -> bool:
    """Return whether a value is 1.0 by definition: the reference's speedup. What was measured is the control's."""
    return name == "speedup" and bool(row.get("is_reference")) and value_of(row, name) is not None


def quality(row: Mapping[str, Any]) -> float:
    """Return the quality, or without labels the agreement with the reference; minus infinity without both [1]."""
    values = (value_of(row, "quality"), value_of(row, "fidelity"))
    return next((value for value in values if value is not None), float("-inf"))


@dataclass(frozen=True)
class Scale:
    """Rows of a group on the scale of an objective; in all arrays more is better, float64, shape (rows,).

    Attributes:
        value: the objective, minus infinity where it was not measured.
        place: what is compared: the logarithm of the speedup for numbers of the same calls, else the value.
        half: half-width of the place's 95 % interval; 0 for exact columns, infinite where the interval is unknown.
        floor: least difference of places that means anything.
    """

    value: np.ndarray
    place: np.ndarray
    half: np.ndarray
    floor: float

    def ahead(self, at: int) -> np.ndarray:
        """Return which rows the row `at` is better than by more than noise, bool, shape (rows,).

        Two rows cannot be told apart if their places differ by at most the half-width of the difference, or by at
        most the floor. Each row was compared with the reference on its own, so the half-widths of independent
        errors combine as sqrt(a^2 + b^2).
        """
        width = np.maximum(np.hypot(self.half[at], self.half), self.floor)
        with np.errstate(invalid="ignore"):  # both infinite: not told apart
            lead = self.place[at] - self.place
        measured = np.isfinite(self.value)
        found: np.ndarray = measured[at] & (~measured | (lead > width))
        return found

    def beaten(self) -> np.ndarray:
        """Return which rows some row is better than by more than noise, bool, shape (rows,)."""
        found = np.zeros(self.value.size, dtype=bool)
        for at in range(self.value.size):
            found |= self.ahead(at)
        return found


def scale_of(rows: Sequence[Mapping[str, Any]], objective: str, floor: float) -> Scale:
    """Return rows on the scale of an objective; `floor` [log ratio] holds for what was timed only."""
    value = np.asarray([gain(row, objective) for row in rows], dtype=np.float64)
    if objective not in SAME_CALLS | TAILS:
        return Scale(value, value, _halves(rows, objective), 0.0)
    if objective in SAME_CALLS:
        place = [_log(gain(row, "speedup")) for row in rows]
    else:
        place = [-_log(-found) for found in value]
    return Scale(value, np.asarray(place, dtype=np.float64), _halves(rows, "speedup"), floor)


def quality_scale(rows: Sequence[Mapping[str, Any]]) -> Scale:
    """Return rows on the scale of quality, with the interval of their drop if all that were evaluated have one."""
    value = np.asarray([quality(row) for row in rows], dtype=np.float64)
    drops = [value_of(row, "quality_drop") for row in rows]
    if any(drop is None for drop, found in zip(drops, value, strict=True) if np.isfinite(found)):
        return Scale(value, value, np.zeros(value.size), 0.0)
    place = [float("-inf") if drop is None else -drop for drop in drops]
    return Scale(value, np.asarray(place, dtype=np.float64), _halves(rows, "quality_drop"), 0.0)


def tie_groups(rows: Sequence[Row], objective: str, floor: float) -> list[list[Row]]:
    """Return a partition of rows, best first: the best row leads a group of all that cannot be told apart from it.

    The best of the rest leads the next group, and so on. Rows whose objective was not measured are the last one.
    """
    scale = scale_of(rows, objective, floor)
    order = sorted(range(len(rows)), key=lambda at: (-scale.value[at], -quality(rows[at]), str(rows[at]["variant"])))
    found: list[list[Row]] = []
    while order:
        behind = scale.ahead(order[0])
        found.append([rows[at] for at in order if not behind[at]])
        order = [at for at in order if behind[at]]
    return found


def _halves(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return half-widths as the ranking takes them, float64, shape (rows,); the reference's speedup is exactly 1."""
    half = [0.0 if is_unit(row, name) else _half_width(row, name) for row in rows]
    return np.asarray(half, dtype=np.float64)


def _half_width(row: Mapping[str, Any], name: str) -> float:
    """Return the half-width of a column's interval, of the speedup's on the log scale; 0 for an exact column."""
    column = COLUMNS[name]
    low, high = value_of(row, column.low), value_of(row, column.high)
    if column.low is None:
        return 0.0
    if low is None or high is None:
        return float("inf")
    return (_log(high) - _log(low)) / 2 if name == "speedup" else (high - low) / 2


def _log(value: float) -> float:
    return math.log(value) if value > 0 else float("-inf")
