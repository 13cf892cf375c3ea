"""The report: one page that needs nothing beside it and opens offline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from strop.columns import COLUMNS, groups, value_of, with_interval
from strop.decide import control, losers, sentence
from strop.machine import machine_facts
from strop.report.audits import audits, cells
from strop.report.measured import how_measured, overhead_words, quantile_cell
from strop.report.tables import failures, in_order, load_of, marks, state, warned

Row = dict[str, Any]
Plots = dict[str, dict[str, Any] | None]
# What the library is to make known to the page; without such a line nothing of it is bundled.
LIBRARY = "window.vegaEmbed = vegaEmbed;"


def page(
    plan: dict[str, Any], rows: list[Row], plots: Plots, timings: Plots, skipped: list[dict[str, Any]], results: Path
) -> str:
    """Return the page as HTML.

    Args:
        plan: the study's plan.
        rows: decided rows of the summary.
        plots: name of a group of rows -> Vega-Lite specification, or None where there is nothing to show.
        timings: likewise.
        skipped: variants of the plan that were skipped, with `overrides`, `variant` and `reason`.
        results: folder of all results, for the paths shown.
    """
    import vl_convert
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(loader=PackageLoader("strop.report", "."), autoescape=select_autoescape(["html", "j2"]))
    study = plan["study"]
    split = groups(rows)
    specs = {name: [plot for plot in (plots[name], timings[name]) if plot is not None] for name in split}
    sections = [_section(name, group, study, results, len(specs[name])) for name, group in split.items()]
    return environment.get_template("page.html.j2").render(
        study=study,
        tie_breaker=COLUMNS[study["tie_breaker"]].words,
        limits=[_limit(name, limit) for name, limit in study["limits"].items()],
        device=plan["device"],
        machine=machine_facts(),
        threads=sorted({row["threads"] for row in rows}),
        sections=sections,
        warned=warned(rows),
        audits={variant: cells(audit) for variant, audit in audits(plan["runs"], results).items()},
        failures=failures(rows),
        skipped=skipped,
        scripts=_script(vl_convert.javascript_bundle(LIBRARY)),
        specs=json.dumps([plot for drawn in specs.values() for plot in drawn]).replace("<", "\\u003c"),
    )


def _limit(name: str, limit: float) -> str:
    column = COLUMNS[name]
    return f"{column.words}: {column.show(limit)}{column.unit}"


def _section(name: str, group: list[Row], study: dict[str, Any], results: Path, plots: int) -> dict[str, Any]:
    """Return what the template shows of the rows that are ranked together; `plots` is the number of their plots."""
    held, words = control(group)
    lost = losers(group, study["objective"])
    ordered = in_order(group)
    return {
        "name": name,
        "decision": sentence(group, study["objective"], results, study["tie_breaker"]),
        "control": words,
        "held": held,
        "plots": plots,
        "overhead": overhead_words(group),
        "rows": [_cells(row, lost) for row in ordered],
        "measured": [how_measured(row) for row in ordered if value_of(row, "speedup") is not None],
    }


def _script(code: str) -> str:
    """Return JavaScript that cannot end the script element that it stands in. `</` may be a pattern such as `/</g`."""
    return re.sub("</(?=script)", r"<\\/", code, flags=re.IGNORECASE)


def _cells(row: Row, lost: dict[str, str]) -> dict[str, Any]:
    def shown(name: str, digits: int = 2) -> str:
        value = value_of(row, name)
        return "" if value is None else COLUMNS[name].show(value, digits)

    return {
        "marks": marks(row),
        "variant": row["variant"],
        "load": load_of(row),
        "state": state(row),
        "feasible": row["feasible"],
        "recommended": row["recommended"],
        "speedup": with_interval(row, "speedup"),
        "tie": str(row.get("tie_group") or ""),
        **{name: quantile_cell(row, f"latency_{name}_s") for name in ("p50", "p90", "p99", "p999")},
        "throughput": shown("throughput_per_s", 1),
        "quality": shown("quality"),
        "drop": with_interval(row, "quality_drop"),
        "fidelity": shown("fidelity"),
        "size": shown("size_bytes", 1),
        "memory": shown("peak_memory_bytes", 0),
        "runtime": " ".join(str(row[name]) for name in ("runtime", "precision") if row[name]),
        "why": lost.get(row["variant"], ""),
        "noisy": row["noisy_reason"] or "",
    }
