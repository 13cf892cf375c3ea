"""The plan on a terminal: what a study would do, what is shared, what is done already, what is skipped and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strop.report.share import is_done, step_counts


def print_plan(plan: dict[str, Any], results: Path, console: Console) -> None:
    """Print the variants with their chains, the steps by stage, and the skipped combinations with their reasons."""
    console.print(Text.assemble((plan["study"]["name"], "bold"), "  ", plan["study"]["question"]))
    console.print(_variants(plan, results))
    console.print(_steps(plan, results))
    skipped = [variant for variant in plan["variants"] if variant["status"] == "skipped"]
    if skipped:
        console.print(_skipped(skipped))
    repeated = plan["combinations"] - plan["distinct"]
    console.print(
        f"{plan['combinations']} combinations: {len(plan['variants']) - len(skipped)} variants, "
        f"{plan['skipped']} skipped, {repeated} equal to another one; {len(plan['runs'])} runs",
        highlight=False,
    )


def _variants(plan: dict[str, Any], results: Path) -> Table:
    table = Table(title="Variants", title_justify="left", box=None, pad_edge=False)
    for name in ("variant", "chain", "format", "scenarios", "done"):
        table.add_column(name, overflow="fold")
    for variant in plan["variants"]:
        if variant["status"] != "planned":
            continue
        runs = [run for run in plan["runs"] if run["variant_id"] == variant["variant_id"]]
        keys = {key for run in runs for key in (*variant["chain"], run["evaluate"], run["benchmark"])}
        done = sum(is_done(key, results) for key in keys)
        mark = " (reference)" if any(run["is_reference"] for run in runs) else ""
        chain = " > ".join(f"{plan['steps'][key]['label']}" for key in variant["chain"][1:])
        scenarios = ", ".join(sorted({run["scenario"] for run in runs}))
        _add(table, variant["variant"] + mark, chain, variant["format"], scenarios, f"{done}/{len(keys)}")
    return table


def _steps(plan: dict[str, Any], results: Path) -> Table:
    table = Table(title="\nSteps", title_justify="left", box=None, pad_edge=False)
    table.add_column("stage")
    for name in ("steps", "if nothing were shared", "done"):
        table.add_column(name, justify="right")
    for stage, (planned, alone) in step_counts(plan).items():
        done = sum(is_done(key, results) for key, step in plan["steps"].items() if stage in (step["stage"], "all"))
        table.add_row(stage, str(planned), str(alone), str(done))
    return table


def _skipped(skipped: list[dict[str, Any]]) -> Table:
    table = Table(title="\nSkipped", title_justify="left", box=None, pad_edge=False)
    table.add_column("combination", overflow="fold")
    table.add_column("reason", overflow="fold")
    for variant in skipped:
        _add(table, variant["overrides"] or variant["variant"], variant["reason"])
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row of texts as they are: no markup of rich in them, such as a list of an override, is obeyed."""
    table.add_row(*map(Text, cells))
