"""Limits and their verdicts: passed, failed, or undecided, with what would decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strop.columns import COLUMNS, Column, value_of, with_interval
from strop.decide.noise import is_unit
from strop.stats.tails import Verdict

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"


@dataclass(frozen=True)
class Evidence:
    """What a run's samples say of the study's limits beyond the numbers of its row.

    Attributes:
        tails: latency column -> verdict on its limit.
        examples_needed: test examples that would decide an undecided limit on the quality drop [1], or None.
    """

    tails: Mapping[str, Verdict] = field(default_factory=dict)
    examples_needed: int | None = None


def verdict_of(
    row: Mapping[str, Any], limits: Mapping[str, float], evidence: Evidence
) -> tuple[str | None, str | None]:
    """Return the verdict on a row's limits, and why it cannot be shipped in words, or None.

    A limit on a column with an interval is passed if the less favourable end keeps it, failed if even the more
    favourable end breaks it, else undecided; a column without one is taken as exact. Quantiles of latencies are
    judged on their calls. One failed limit fails the row. A row that is not ok has no verdict.
    """
    if row.get("status") != "ok":
        return None, _status_words(row)
    found = [_judged(row, name, limit, evidence) for name, limit in limits.items()]
    verdicts = {verdict for verdict, _ in found}
    overall = next((verdict for verdict in (FAIL, UNDECIDED, PASS) if verdict in verdicts), None)
    return overall, "; ".join(words for _, words in found if words) or None


def _status_words(row: Mapping[str, Any]) -> str:
    if row.get("status") == "unstable":
        return f"unstable: {row.get('error') or 'no steady state was found'}"
    return f"{row.get('status')}: {row['error']}" if row.get("error") else str(row.get("status"))


def _judged(row: Mapping[str, Any], name: str, limit: float, evidence: Evidence) -> tuple[str, str]:
    """Return the verdict on one limit, and what stands in the way, in words."""
    column = COLUMNS[name]
    tail, value = evidence.tails.get(name), value_of(row, name)
    if tail is not None:
        return tail.verdict, _tail_words(column, limit, tail)
    if value is None:
        return UNDECIDED, f"{column.words} was not measured (limit {column.show(limit)}{column.unit})"
    low, high = _ends(row, name, value)
    worst, best = (low, high) if column.more else (high, low)
    if _keeps(column, worst, limit):
        return PASS, ""
    if not _keeps(column, best, limit):
        return FAIL, _fail_words(row, name, limit, best)
    return UNDECIDED, _undecided_words(row, name, limit, evidence)


def _ends(row: Mapping[str, Any], name: str, value: float) -> tuple[float, float]:
    """Return the ends of a column's interval: infinite where they are unknown, the value itself where it is exact."""
    column = COLUMNS[name]
    if is_unit(row, name):
        return 1.0, 1.0
    if column.low is None:
        return value, value
    low, high = value_of(row, column.low), value_of(row, column.high)
    return -math.inf if low is None else low, math.inf if high is None else high


def _keeps(column: Column, value: float, limit: float) -> bool:
    return value >= limit if column.more else value <= limit


def _fail_words(row: Mapping[str, Any], name: str, limit: float, best: float) -> str:
    column = COLUMNS[name]
    digits = next((d for d in range(2, 9) if column.show(best, d) != column.show(limit, d)), 9)
    shown, limit_shown = column.show(best, digits), column.show(limit, digits)
    if is_unit(row, name):
        return f"{column.words} is {shown} by definition (limit {limit_shown})"
    if column.low is None:
        off = f", {abs(best / limit - 1):.0%} {'under' if column.more else 'over'}" if limit else ""
        return f"{column.words} is {shown}{column.unit} (limit {limit_shown}{off})"
    bound = "at most" if column.more else "at least"
    measured = f"measured {column.show(float(row[name]), digits)}{_on(row, name)}"
    return f"{column.words} is {bound} {shown}{column.unit} (limit {limit_shown}; {measured})"


def _undecided_words(row: Mapping[str, Any], name: str, limit: float, evidence: Evidence) -> str:
    column = COLUMNS[name]
    words = (
        f"{column.words} is undecided at limit {column.show(limit)}{column.unit}, measured {with_interval(row, name)}"
    )
    if name == "quality_drop":
        needed = evidence.examples_needed
        more = "more test examples may" if needed is None else f"about {_about(needed)} test examples would"
        return f"{words}{_on(row, name)}; {more} decide (dataset.test_size)"
    setting = "precision" if row.get("stopped_by") == "precision" else "max_time_s"
    return f"{words}; a longer measurement would decide (benchmark.{setting})"


def _on(row: Mapping[str, Any], name: str) -> str:
    return f" on {row['examples']:,} examples" if name == "quality_drop" and row.get("examples") else ""


def _tail_words(column: Column, limit: float, tail: Verdict) -> str:
    shown = f"{column.show(limit)}{column.unit}"
    if tail.verdict == PASS:
        return ""
    if tail.verdict == FAIL:
        return f"{column.words} is over the limit of {shown}: {tail.over:,} of {tail.calls:,} calls took longer"
    words = f"{column.words} is undecided at limit {shown}"
    if tail.calls_still_needed is None:
        return f"{words}, too near to it for any number of calls to decide"
    total = _about(tail.calls + tail.calls_still_needed).replace(",", "")
    return f"{words}, about {_about(tail.calls_still_needed)} more calls are needed (benchmark.min_calls={total})"


def _about(count: int) -> str:
    """Return a number rounded up to two digits: 4,700 for 4,612."""
    step: int = 10 ** max(0, len(str(count)) - 2)
    return f"{-(-count // step) * step:,}"
