"""From rows of the summary to a decision: which meet the limits, which are not beaten, which one to ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.columns import COLUMNS, groups, value_of, with_interval
from strop.errors import StropError, nearest

Row = dict[str, Any]
# Latency and throughput have no interval of their own; the speedup's is of the same calls, so it tells ties apart.
WIDE = 1.3  # high end over low end of a control that vouches for little
SAME_CALLS = frozenset({"speedup", "throughput_per_s", "latency_mean_s", "latency_p50_s"})


def decide(rows: Sequence[Mapping[str, Any]], limits: Mapping[str, float], objective: str) -> list[Row]:
    """Return the rows, in order, with `feasible`, `infeasible_reason`, `pareto` and `recommended` set.

    Rows with the same reference and the same load (`columns.GROUP`) are ranked together; each group has at most one
    recommended row. The best in the objective leads; rows whose value lies in the leader's
    interval, or the leader's in theirs, are its ties, and the smallest of them (in two digits of its size) is
    recommended, so that luck does not choose. `pareto` rows are the
    feasible ones that no feasible row beats in objective and quality.

    Args:
        rows: rows of the summary (`records.SUMMARY`).
        limits: column -> most (or, where more is better, least) that is acceptable, in the column's unit. It is held
            against the less favourable end of the column's 95 % interval, where it has one.
        objective: column to be best in.

    Raises:
        StropError: a limit or the objective is not a column that can be ranked.
    """
    check_question(limits, objective)
    decided: list[Row] = []
    for row in rows:
        reason = _infeasible(row, limits)
        decided.append(
            {**row, "feasible": reason is None, "infeasible_reason": reason, "pareto": False, "recommended": False}
        )
    for group in groups(decided).values():
        feasible = [row for row in group if row["feasible"]]
        for row in feasible:
            row["pareto"] = not any(_beats(other, row, objective) for other in feasible)
        tied = ties(feasible, objective)
        if tied:
            min(tied, key=lambda row: _preference(row, objective))["recommended"] = True
    return decided


def check_question(limits: Mapping[str, float], objective: str) -> None:
    """Raise a StropError unless the objective and all limits name columns that can be ranked."""
    for name in limits:
        if name not in COLUMNS:
            raise StropError(f"study.limits: '{name}' cannot be limited; {nearest(name, COLUMNS)}")
    if objective not in COLUMNS:
        raise StropError(f"study.objective: '{objective}' cannot be an objective; {nearest(objective, COLUMNS)}")


def _infeasible(row: Mapping[str, Any], limits: Mapping[str, float]) -> str | None:
    if row.get("status") == "unstable":
        return f"unstable: {row.get('error') or 'no steady state was found'}"
    if row.get("status") != "ok":
        return f"{row.get('status')}: {row['error']}" if row.get("error") else str(row.get("status"))
    reasons = [_broken(row, name, limit) for name, limit in limits.items()]
    return "; ".join(reason for reason in reasons if reason) or None


def _broken(row: Mapping[str, Any], name: str, limit: float) -> str | None:
    """Return how a row breaks a limit, in words, or None."""
    column = COLUMNS[name]
    held = value_of(row, column.bound or name)
    measured = value_of(row, name)
    if held is None or measured is None:
        return f"{column.words} was not measured (limit {column.show(limit)}{column.unit})"
    if held >= limit if column.more else held <= limit:
        return None
    digits = next((d for d in range(2, 9) if column.show(held, d) != column.show(limit, d)), 9)
    shown, limit_shown = column.show(held, digits), column.show(limit, digits)
    if column.bound is None:
        over = f", {abs(held / limit - 1):.0%} {'under' if column.more else 'over'}" if limit else ""
        return f"{column.words} is {shown}{column.unit} (limit {limit_shown}{over})"
    on = f" on {row['examples']} examples" if name == "quality_drop" and row.get("examples") else ""
    may = "as low as" if column.more else "up to"
    measured_shown = column.show(measured, digits)
    return f"{column.words} may be {may} {shown}{column.unit} (limit {limit_shown}; measured {measured_shown}{on})"


def _gain(row: Mapping[str, Any], objective: str) -> float:
    """Return the objective so that more is better; minus infinity where it was not measured."""
    value = 1.0 if _is_unit(row, objective) else value_of(row, objective)
    return float("-inf") if value is None else value if COLUMNS[objective].more else -value


def _is_unit(row: Mapping[str, Any], objective: str) -> bool:
    """Return whether a value is 1.0 by definition: the reference's speedup. What was measured is the control's."""
    return objective == "speedup" and bool(row.get("is_reference")) and value_of(row, objective) is not None


def _quality(row: Mapping[str, Any]) -> float:
    """Return the quality, or without labels the agreement with the reference."""
    values = (value_of(row, "quality"), value_of(row, "fidelity"))
    return next((value for value in values if value is not None), float("-inf"))


def _beats(a: Mapping[str, Any], b: Mapping[str, Any], objective: str) -> bool:
    ours, theirs = (_gain(a, objective), _quality(a)), (_gain(b, objective), _quality(b))
    return ours != theirs and all(x >= y for x, y in zip(ours, theirs, strict=True))


def ties(rows: Sequence[Row], objective: str) -> list[Row]:
    """Return the feasible row that is best in the objective, and those that cannot be told apart from it."""
    rivals = [row for row in rows if row["feasible"] and value_of(row, objective) is not None]
    if not rivals:
        return []
    leader = max(rivals, key=lambda row: (_gain(row, objective), _quality(row), str(row["variant"])))
    return [row for row in rivals if row is leader or _alike(row, leader, objective)]


def _alike(a: Row, b: Row, objective: str) -> bool:
    """Return whether the value of one lies in the other's interval, or without intervals whether they are equal."""
    name = "speedup" if objective in SAME_CALLS else objective
    column = COLUMNS[name]
    found = []
    for row in (a, b):
        unit = _is_unit(row, name)
        found += [1.0 if unit else value_of(row, end) for end in (name, column.low, column.high)]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        return value_of(a, objective) == value_of(b, objective)
    a_value, a_low, a_high, b_value, b_low, b_high = numbers
    return a_low <= b_value <= a_high or b_low <= a_value <= b_high


def _preference(row: Row, objective: str) -> tuple[float, float, bool, float, str]:
    size = value_of(row, "size_bytes")
    rounded = float("inf") if size is None else float(f"{size:.1e}")
    return rounded, -_quality(row), not row.get("is_reference"), -_gain(row, objective), str(row["variant"])


def losers(rows: Sequence[Row], objective: str) -> dict[str, str]:
    """Return variant -> what killed it, for the decided rows of one group but the recommended one and the control."""
    best = next((row for row in rows if row["recommended"]), None)
    tied = [row["variant"] for row in ties(rows, objective)]
    return {
        row["variant"]: row["infeasible_reason"] or _outdone(row, best, row["variant"] in tied, objective)
        for row in rows
        if not row["recommended"]
    }


def _outdone(row: Row, best: Row | None, tied: bool, objective: str) -> str:
    column = COLUMNS[objective]
    shown = with_interval(row, objective)
    if best is None or not shown:
        return f"{column.words} was not measured"
    if tied:
        return f"tied with {best['variant']}: {column.words} {shown} against {with_interval(best, objective)}"
    return f"{column.words} {shown} against {with_interval(best, objective)} of {best['variant']}"


def control(rows: Sequence[Row]) -> tuple[bool | None, str]:
    """Return whether the reference against itself (A/A) came out as 1.0, and a sentence that says so.

    None: there is no such measurement among the rows of the group.
    """
    row = next((row for row in rows if row.get("is_reference") and value_of(row, "speedup_low") is not None), None)
    if row is None:
        return None, "A/A control: the reference was not measured against itself, so nothing vouches for the machine."
    shown = with_interval(row, "speedup", 3)
    if row["speedup_low"] <= 1.0 <= row["speedup_high"] and row["speedup_high"] > WIDE * row["speedup_low"]:
        return True, (
            f"A/A control: the reference against itself is {shown} times as fast, which holds 1.0 but is so wide "
            "that it vouches for little; raise benchmark.max_time_s."
        )
    if row["speedup_low"] <= 1.0 <= row["speedup_high"]:
        return True, f"A/A control: the reference against itself is {shown} times as fast, which holds 1.0."
    off = abs(row["speedup"] - 1.0)
    return False, (
        f"A/A control: the reference against itself is {shown} times as fast, which misses 1.0; "
        f"ratios of this study may be off by {off:.1%}."
    )


def sentence(rows: Sequence[Row], objective: str, results: Path | str = "results") -> str:
    """Return the decision on the decided rows of one group, as one sentence: what to ship, its gain, cost and files."""
    best = next((row for row in rows if row["recommended"]), None)
    if best is None:
        return f"Ship nothing: {_no_answer(rows, objective)}."
    files = f"the files are in {Path(results).as_posix()}/{best['artifact']}"
    tail = f"; {files}{_tie_words(best, ties(rows, objective), objective)}{_caution(rows, best)}."
    if best.get("is_reference"):
        missed = _near_miss(rows, best, objective)
        return f"Ship the reference ({best['variant']}): nothing that meets the limits beats it{missed}{tail}"
    return f"Ship {best['variant']}: {_gain_words(best, objective)}, {_cost_words(best)}{tail}"


def _near_miss(rows: Sequence[Row], best: Row, objective: str) -> str:
    """Return what kept the best row that broke a limit from winning, or an empty text if there is none."""
    broke = [row for row in rows if row.get("status") == "ok" and not row["feasible"]]
    better = [row for row in broke if _gain(row, objective) > _gain(best, objective)]
    if not better:
        return ""
    row = max(better, key=lambda row: _gain(row, objective))
    return f" ({row['variant']} would, but its {row['infeasible_reason']})"


def _no_answer(rows: Sequence[Row], objective: str) -> str:
    measured = [row for row in rows if row.get("status") == "ok"]
    if not measured:
        return "no variant was measured to its end, see the failures"
    if any(row["feasible"] for row in measured):
        return f"no variant that meets the limits has a {COLUMNS[objective].words}"
    nearest_row = max(measured, key=lambda row: (_gain(row, objective), _quality(row)))
    return f"no variant meets the limits; the best, {nearest_row['variant']}, fails: {nearest_row['infeasible_reason']}"


def _gain_words(row: Row, objective: str) -> str:
    speedup, low, high = (value_of(row, name) for name in ("speedup", "speedup_low", "speedup_high"))
    words = "its speed was not compared"
    if speedup is not None:
        words = f"{speedup:.2f} times as fast as the reference"
        if low is not None and high is not None:
            words += f" (95 % interval {low:.2f} to {high:.2f})"
    column, value = COLUMNS[objective], value_of(row, objective)
    if objective == "speedup" or value is None:
        return words
    return f"{column.words} {column.show(value)}{column.unit}, {words}"


def _cost_words(row: Row) -> str:
    drop, low, high = (value_of(row, name) for name in ("quality_drop", "quality_drop_low", "quality_drop_high"))
    metric = row.get("metric") or "quality"
    if drop is None:
        same = value_of(row, "fidelity")
        return f"{metric} not compared" if same is None else f"with the reference's answer on {same:.1%} of examples"
    what = f"at a cost of {drop * 100:.2f} points of {metric}"
    if drop < 0:
        what = f"with a gain of {-drop * 100:.2f} points of {metric}"
        low, high = (None if high is None else -high, None if low is None else -low)
    if low is None or high is None:
        return what
    return f"{what} (95 % interval {low * 100:.2f} to {high * 100:.2f}, {row.get('examples')} examples)"


def _tie_words(best: Row, tied: Sequence[Row], objective: str) -> str:
    name, words = ("speedup", "speed") if objective in SAME_CALLS else (objective, COLUMNS[objective].words)
    others = [f"{row['variant']} ({with_interval(row, name)})" for row in tied if row is not best]
    if not others:
        return ""
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    sizes = [value_of(row, "size_bytes") for row in tied if row is not best]
    size = value_of(best, "size_bytes")
    smaller = size is not None and all(s is not None and float(f"{size:.1e}") < float(f"{s:.1e}") for s in sizes)
    return f"; tied in {words} with {shown}" + (", chosen as the smallest" if smaller else "")


def _caution(rows: Sequence[Row], best: Row) -> str:
    held, _ = control(rows)
    words = "; careful, the A/A control misses 1.0, so the machine was not even" if held is False else ""
    if best.get("noisy"):
        words += f"; careful, the measurement was noisy ({best.get('noisy_reason') or 'no reason given'})"
    return words
