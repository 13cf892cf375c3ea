"""The decision: which rows keep the limits, which are not beaten, and which one to ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strop.columns import COLUMNS, groups, value_of
from strop.decide.limits import Evidence, verdict_of
from strop.decide.noise import (
    SAME_CALLS,
    TAILS,
    Row,
    Scale,
    control_row,
    gain,
    noise_floor,
    quality,
    quality_scale,
    scale_of,
    tie_groups,
)
from strop.errors import StropError, nearest

TIE_BREAKER = "size_bytes"


def decide(
    rows: Sequence[Mapping[str, Any]],
    limits: Mapping[str, float],
    objective: str,
    tie_breaker: str = TIE_BREAKER,
    evidence: Mapping[str, Evidence] | None = None,
) -> list[Row]:
    """Return the rows, in order, with the columns of the decision set.

    These are `limits_verdict`, `feasible`, `infeasible_reason`, `pareto`, `tie_group` and `recommended`. Rows with the
    same reference and the same load (`columns.GROUP`) are ranked together; each group has at most one recommended
    row. The feasible ones fall into tie groups (`noise.tie_groups`), 1 is the best. Of group 1, without rows that
    another one is better than by more than noise, the best in the tie breaker (in two digits, so that luck does
    not choose) is recommended; then the better in quality, the reference, the better measured. A feasible row is
    `pareto` unless another one is at least as good in objective and quality, and in one of them better by more than
    noise.

    Args:
        rows: rows of the summary (`records.SUMMARY`).
        limits: column -> most (or, where more is better, least) that is acceptable, in the column's unit.
        objective: column to be best in.
        tie_breaker: column that decides between rows that cannot be told apart in the objective.
        evidence: run_id -> what its samples say of the limits.

    Raises:
        StropError: a limit, the objective or the tie breaker is not a column that can be ranked.
    """
    check_question(limits, objective, tie_breaker)
    decided: list[Row] = []
    for row in rows:
        verdict, reason = verdict_of(row, limits, (evidence or {}).get(str(row.get("run_id")), Evidence()))
        marks = {"limits_verdict": verdict, "feasible": reason is None, "infeasible_reason": reason}
        decided.append({**row, **marks, "pareto": False, "tie_group": None, "recommended": False})
    for group in groups(decided).values():
        control = control_row(group)
        if control is not None:
            interval = {"control_low": control["speedup_low"], "control_high": control["speedup_high"]}
            for row in group:
                row |= interval
        feasible = [row for row in group if row["feasible"]]
        if feasible:
            _rank(feasible, objective, tie_breaker, noise_floor(group))
    return decided


def check_question(limits: Mapping[str, float], objective: str, tie_breaker: str = TIE_BREAKER) -> None:
    """Raise a StropError unless limits, objective and tie breaker name columns that can be ranked."""
    for name in limits:
        if name not in COLUMNS:
            raise StropError(f"study.limits: '{name}' cannot be limited; {nearest(name, COLUMNS)}")
    if objective not in COLUMNS:
        raise StropError(f"study.objective: '{objective}' cannot be an objective; {nearest(objective, COLUMNS)}")
    if tie_breaker not in COLUMNS:
        raise StropError(f"study.tie_breaker: '{tie_breaker}' cannot break ties; {nearest(tie_breaker, COLUMNS)}")
    timed = SAME_CALLS | TAILS
    if objective in timed and tie_breaker in timed:
        raise StropError(
            f"study.tie_breaker: '{tie_breaker}' is of the same calls as the objective '{objective}', and would "
            f"decide its ties by noise; take another column, such as {TIE_BREAKER}"
        )


def _rank(feasible: list[Row], objective: str, tie_breaker: str, floor: float) -> None:
    """Set `pareto`, `tie_group` and `recommended` of a group's feasible rows."""
    scale = scale_of(feasible, objective, floor)
    beaten, outdone = scale.beaten(), _outdone(scale, quality_scale(feasible))
    for at, row in enumerate(feasible):
        row["pareto"] = not outdone[at]
    for number, tied in enumerate(tie_groups(feasible, objective, floor), start=1):
        for row in tied:
            row["tie_group"] = number
    rivals = [
        row
        for row, lost in zip(feasible, beaten, strict=True)
        if row["tie_group"] == 1 and not lost and value_of(row, objective) is not None
    ]
    if rivals:
        min(rivals, key=lambda row: preference(row, objective, tie_breaker))["recommended"] = True


def _outdone(objective: Scale, quality: Scale) -> np.ndarray:
    """Return which rows another one outdoes, bool, shape (rows,): as good in both, beyond noise better in one."""
    found = np.zeros(objective.value.size, dtype=bool)
    for at in range(found.size):
        as_good = (objective.value[at] >= objective.value) & (quality.value[at] >= quality.value)
        found |= as_good & (objective.ahead(at) | quality.ahead(at))
    return found


def preference(row: Row, objective: str, tie_breaker: str) -> tuple[float, float, bool, float, str]:
    """Return what tied rows are ordered by, least first: tie breaker, quality, the reference, objective, name."""
    column, value = COLUMNS[tie_breaker], value_of(row, tie_breaker)
    rounded = float("inf") if value is None else float(f"{-value if column.more else value:.1e}")
    return rounded, -quality(row), not row.get("is_reference"), -gain(row, objective), str(row["variant"])
