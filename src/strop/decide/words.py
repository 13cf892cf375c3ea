"""The decision in words: the control, what to ship and why, and what killed each loser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from strop.columns import COLUMNS, value_of, with_interval
from strop.decide.choice import TIE_BREAKER, preference
from strop.decide.noise import SAME_CALLS, Row, control_row, gain, noise_floor, quality, scale_of

WIDE = 1.3  # high end over low end of a control that vouches for little


def control(rows: Sequence[Row]) -> tuple[bool | None, str]:
    """Return whether the reference against itself (A/A) came out as 1.0, and a sentence that says so.

    The sentence names the noise floor too. None: there is no such measurement among the rows of the group.
    """
    row = control_row(rows)
    if row is None:
        return None, (
            "A/A control: the reference was not measured against itself, so nothing vouches for the machine, "
            "and no noise floor is known."
        )
    words = f"A/A control: the reference against itself is {with_interval(row, 'speedup', 3)} times as fast, which"
    floor = f"differences up to {_floor_shown(rows)} are not ranked"
    if not row["speedup_low"] <= 1.0 <= row["speedup_high"]:
        off = abs(row["speedup"] - 1.0)
        return False, f"{words} misses 1.0; ratios of this study may be off by {off:.1%}, and {floor}."
    if row["speedup_high"] > WIDE * row["speedup_low"]:
        return True, (
            f"{words} holds 1.0 but is so wide that it vouches for little: {floor}; raise benchmark.max_time_s."
        )
    return True, f"{words} holds 1.0; {floor}."


def _floor_shown(rows: Sequence[Row]) -> str:
    return f"{math.expm1(noise_floor(rows)):.1%}"


def losers(rows: Sequence[Row], objective: str) -> dict[str, str]:
    """Return variant -> what killed it, for the decided rows of one group but the recommended one."""
    best = next((at for at, row in enumerate(rows) if row["recommended"]), None)
    outdone = {}
    for at, row in enumerate(rows):
        if not row["recommended"]:
            outdone[row["variant"]] = row["infeasible_reason"] or _outdone(rows, at, best, objective)
    return outdone


def _outdone(rows: Sequence[Row], at: int, best: int | None, objective: str) -> str:
    column, shown = COLUMNS[objective], with_interval(rows[at], objective)
    if best is None or not shown:
        return f"{column.words} was not measured"
    against, name = with_interval(rows[best], objective), rows[best]["variant"]
    pair = [rows[best], rows[at]]
    floor = noise_floor(rows)
    if scale_of(pair, objective, floor).ahead(0)[1]:
        return f"{column.words} {shown} against {against} of {name}"
    words = f"tied with {name}: {column.words} {shown} against {against}"
    bare = scale_of(pair, objective, 0.0)
    within = bare.ahead(0)[1] or bare.ahead(1)[0]
    return f"{words}, within the noise floor of {_floor_shown(rows)}" if within else words


def sentence(
    rows: Sequence[Row], objective: str, results: Path | str = "results", tie_breaker: str = TIE_BREAKER
) -> str:
    """Return the decision on the decided rows of one group, as one sentence: what to ship, its gain, cost and files."""
    best = next((row for row in rows if row["recommended"]), None)
    if best is None:
        return f"Ship nothing: {_no_answer(rows, objective)}."
    files = f"the files are in {Path(results).as_posix()}/{best['artifact']}"
    tail = f"; {files}{_tie_words(rows, best, objective, tie_breaker)}{_caution(rows, best)}."
    if best.get("is_reference"):
        missed = _near_miss(rows, best, objective)
        return f"Ship the reference ({best['variant']}): nothing that meets the limits beats it{missed}{tail}"
    return f"Ship {best['variant']}: {_gain_words(best, objective)}, {_cost_words(best)}{tail}"


def _near_miss(rows: Sequence[Row], best: Row, objective: str) -> str:
    """Return what kept the best row that broke a limit from winning, or an empty text if there is none."""
    broke = [row for row in rows if row.get("status") == "ok" and not row["feasible"]]
    better = [row for row in broke if gain(row, objective) > gain(best, objective)]
    if not better:
        return ""
    row = max(better, key=lambda row: gain(row, objective))
    return f" ({row['variant']} would, but its {row['infeasible_reason']})"


def _no_answer(rows: Sequence[Row], objective: str) -> str:
    measured = [row for row in rows if row.get("status") == "ok"]
    if not measured:
        return "no variant was measured to its end, see the failures"
    if any(row["feasible"] for row in measured):
        return f"no variant that meets the limits has a {COLUMNS[objective].words}"
    nearest_row = max(measured, key=lambda row: (gain(row, objective), quality(row)))
    what = "fails" if nearest_row["limits_verdict"] == "fail" else "is open"
    none = "no variant meets the limits" if what == "fails" else "no variant was shown to meet the limits"
    return f"{none}; the best, {nearest_row['variant']}, {what}: {nearest_row['infeasible_reason']}"


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


def _tie_words(rows: Sequence[Row], best: Row, objective: str, tie_breaker: str) -> str:
    """Return that it was a tie, with whom, what broke it and by how much; an empty text if it was none."""
    name, words = ("speedup", "speed") if objective in SAME_CALLS else (objective, COLUMNS[objective].words)
    others = [row for row in rows if row.get("tie_group") == 1 and row is not best]
    if not others:
        return ""
    others.sort(key=lambda row: preference(row, objective, tie_breaker))
    shown = ", ".join(f"{row['variant']} ({with_interval(row, name)})" for row in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"; tied in {words} with {shown}{more}, {_broken_by(best, others, objective, tie_breaker)}"


def _broken_by(best: Row, others: Sequence[Row], objective: str, tie_breaker: str) -> str:
    """Return the first preference that tells the chosen row apart from the next in the order, with both values."""
    ours = preference(best, objective, tie_breaker)
    runner = next((row for row in others if preference(row, objective, tie_breaker) > ours), None)
    if runner is None:  # the others lead in the objective, but their speedup says the opposite
        return "chosen as the faster one by more than noise"
    theirs = preference(runner, objective, tie_breaker)
    column = COLUMNS[tie_breaker]
    at = next(at for at, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    if at == 0:
        return f"chosen by {column.words}: {_against(best, runner, tie_breaker)}"
    if at == 1:
        name = "quality" if value_of(best, "quality") is not None else "fidelity"
        return f"of about equal {column.words}, chosen by {COLUMNS[name].words}: {_against(best, runner, name)}"
    last = ("chosen as the reference", "chosen by the value measured", "and nothing else tells them apart")
    return f"of about equal {column.words} and equal quality, {last[at - 2]}"


def _against(best: Row, runner: Row, name: str) -> str:
    column, ours, theirs = COLUMNS[name], value_of(best, name), value_of(runner, name)
    other = "not measured" if theirs is None else f"{column.show(theirs)}{column.unit}"
    return f"{column.show(ours or 0.0)}{column.unit} against {other} of {runner['variant']}"


def _caution(rows: Sequence[Row], best: Row) -> str:
    held, _ = control(rows)
    words = "; careful, the A/A control misses 1.0, so the machine was not even" if held is False else ""
    if best.get("noisy"):
        words += f"; careful, the measurement was noisy ({best.get('noisy_reason') or 'no reason given'})"
    return words
