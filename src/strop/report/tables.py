"""Tables for a terminal: the study's rows, its failures, and the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop import records
from strop.columns import COLUMNS, GROUP, groups, value_of, with_interval
from strop.decide import control, sentence
from strop.report.measured import quantile_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = dict[str, Any]
WIDTH = 120
GAP = 2
SHIP, PARETO, NOISY = "★", "◆", "~"
LEGEND = {SHIP: "ship this", PARETO: "not beaten in objective and quality", NOISY: "noisy measurement"}


@dataclass(frozen=True)
class Shown:
    """A column of the table; those of the highest `rank` are dropped first where the terminal is narrow."""

    header: str
    cell: Callable[[Row], str]
    rank: int
    left: bool = False


def _number(name: str, digits: int) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = value_of(row, name)
        return "" if value is None else COLUMNS[name].show(value, digits)

    return cell


def _interval(name: str) -> Callable[[Row], str]:
    return lambda row: with_interval(row, name)


def marks(row: Row) -> str:
    """Return the row's flags, one character each (`LEGEND`)."""
    flags = ((SHIP, "recommended"), (PARETO, "pareto"), (NOISY, "noisy"))
    return "".join(mark for mark, name in flags if row.get(name))


def state(row: Row) -> str:
    """Return the status, or for a row that ran well and is not feasible `over limit` or `undecided`."""
    if row["status"] != "ok" or row.get("feasible") is not False:
        return str(row["status"])
    return "undecided" if row.get("limits_verdict") == "undecided" else "over limit"


def load_of(row: Row) -> str:
    """Return what rows are told apart by besides their variant: scenario, batch, and what is no single core."""
    device = f", {row['device']}" if row.get("device") not in (None, "cpu") else ""
    threads = f", {row['threads']} threads" if (row.get("threads") or 1) > 1 else ""
    return f"{row['scenario']} x{row['batch_size']}{device}{threads}"


COLUMNS_SHOWN = (
    Shown("", marks, 0, left=True),
    Shown("variant", lambda row: str(row["variant"]), 0, left=True),
    Shown("scenario", load_of, 0, left=True),
    Shown("status", state, 1, left=True),
    Shown("p50\nms", _number("latency_p50_s", 2), 3),
    Shown("p99\nms", lambda row: quantile_cell(row, "latency_p99_s"), 5),
    Shown("speedup\n[95 %]", _interval("speedup"), 0),
    Shown("\ntie", lambda row: str(row.get("tie_group") or ""), 2),
    Shown("quality\n%", _number("quality", 2), 6),
    Shown("quality drop\npoints [95 %]", _interval("quality_drop"), 2),
    Shown("size\nMiB", _number("size_bytes", 1), 4),
    Shown("memory\nMiB", _number("peak_memory_bytes", 0), 7),
)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows as people read them: by load, then feasible by speedup, then infeasible, then failed."""

    def key(row: Row) -> tuple[Any, ...]:
        speedup = value_of(row, "speedup")
        kind = 0 if row.get("feasible") else 1 if speedup is not None else 2
        group = tuple(str(row.get(name)) for name in GROUP)
        return group, kind, -(speedup or 0.0), row["variant"]

    return sorted(rows, key=key)


def has_ties(rows: list[Row]) -> bool:
    """Return whether rows that are ranked together share a tie group."""
    ranked = [[row["tie_group"] for row in group if row.get("tie_group")] for group in groups(rows).values()]
    return any(len(set(numbers)) < len(numbers) for numbers in ranked)


def summary_table(rows: list[Row], width: int = WIDTH) -> Table:
    """Return the rows as a table at most `width` characters wide; columns are left out where it is narrower."""
    from rich.table import Table
    from rich.text import Text

    ordered = in_order(rows)
    hidden = {"scenario"} if len({load_of(row) for row in rows}) < 2 else set()
    hidden |= set() if has_ties(rows) else {"\ntie"}
    shown = [column for column in COLUMNS_SHOWN if column.header not in hidden]
    cells = {column.header: [column.cell(row) for row in ordered] for column in shown}
    shown = _fitting([c for c in shown if any(cells[c.header]) or c.rank == 0], cells, width)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in shown:
        fold = column.header == "variant"
        table.add_column(
            column.header,
            justify="left" if column.left else "right",
            no_wrap=not fold,
            overflow="fold" if fold else "ellipsis",
            vertical="bottom" if not fold else "top",
        )
    for at, row in enumerate(ordered):
        table.add_row(*(Text(cells[column.header][at]) for column in shown), style=_style(row))
    return table


def _fitting(shown: list[Shown], cells: dict[str, list[str]], width: int) -> list[Shown]:
    from rich.cells import cell_len

    def needed(column: Shown) -> int:
        return GAP + max(cell_len(line) for line in (*column.header.split("\n"), *cells[column.header]))

    kept = list(shown)
    while sum(map(needed, kept)) - GAP > width and max(column.rank for column in kept) > 0:
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def _style(row: Row) -> str:
    if row.get("recommended"):
        return "bold green"
    return "" if row.get("feasible") else "yellow" if row["status"] == "ok" else "red"


def failures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return each failure once: status, error, log, repeat, and the names of the `variants` that it ended."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in in_order(rows):
        if row["status"] == "ok":
            continue
        facts = {name: row.get(name) for name in ("status", "error", "log", "repeat")}
        names = found.setdefault(tuple(facts.values()), {**facts, "variants": []})["variants"]
        if row["variant"] not in names:
            names.append(row["variant"])
    return list(found.values())


def warned(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return what audits warn of, each sentence once, with the names of the variants that it is of."""
    found: dict[str, list[str]] = {}
    for row in in_order(rows):
        for warning in (row.get("warnings") or "").splitlines():
            names = found.setdefault(warning, [])
            names += [row["variant"]] if row["variant"] not in names else []
    return found


def print_study(plan: dict[str, Any], results: Path, console: Console) -> None:
    """Print a finished study: table, A/A control, failures, skipped combinations, and the decision last.

    Raises:
        StropError: the study has no readable summary yet.
    """
    study = plan["study"]
    rows = records.read("summary", results / "studies" / study["name"] / "summary.parquet").to_pylist()
    if not console.is_terminal:  # a pipe or a log file has no width; rich takes 80 for it
        console.width = max(console.width, WIDTH)
    console.print(summary_table(rows, console.width))
    used = {mark for row in rows for mark in marks(row)}
    legend = {mark: words for mark, words in LEGEND.items() if mark in used}
    legend |= {"tie": "same number: cannot be told apart in the objective"} if has_ties(rows) else {}
    if any(quantile_cell(row, "latency_p99_s").startswith("+") for row in rows):
        legend["+n calls"] = "so many more calls would tell this quantile (benchmark.min_calls)"
    _line(console, "   ".join(f"{mark} {words}" for mark, words in legend.items()), "dim")
    _print_warnings(rows, console)
    _print_failures(rows, console)
    if skipped := plan["skipped"]:
        words = "1 combination cannot work and was" if skipped == 1 else f"{skipped} combinations cannot work and were"
        _line(console, f"\n{words} skipped; variants.parquet says why.")
    for name, group in groups(rows).items():
        held, words = control(group)
        _line(console, f"\n{name + ': ' if name else ''}{words}", "" if held else "yellow")
        decision = sentence(group, study["objective"], results, study["tie_breaker"])
        _line(console, f"{name + ': ' if name else ''}{decision}", "bold")


def _print_warnings(rows: list[Row], console: Console) -> None:
    found = warned(rows)
    _line(console, "\nWarnings" if found else "", "bold")
    for warning, names in found.items():
        _line(console, f"  {', '.join(names)}: {warning}", "yellow")


def _print_failures(rows: list[Row], console: Console) -> None:
    for at, failure in enumerate(failures(rows)):
        if at == 0:
            _line(console, "\nFailures", "bold")
        _line(
            console, f"  {', '.join(failure['variants'])}: {failure['status']}: {failure['error'] or 'no error text'}"
        )
        for name in ("log", "repeat"):
            if failure[name]:
                _line(console, f"    {name:6} {failure[name]}")


def _line(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup of rich in it is obeyed, and a log keeps long lines whole."""
    if text:
        console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)
