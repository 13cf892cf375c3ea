"""The study's page, and the table and plot that Snakemake's own report shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strop import records
from strop.columns import groups
from strop.report.charts import latencies, latency_rows, speedup_quality, stacked, write_svg
from strop.report.page import page


def report(plan: dict[str, Any], results: Path) -> None:
    """Write `report.html`, `summary.csv` and `speedup_quality.svg` of a plan's study.

    Args:
        plan: as `strop.plan` makes it.
        results: folder of all results; the study's tables are there.

    Raises:
        StropError: a table is missing or damaged.
    """
    import pyarrow.csv as csv

    study = plan["study"]
    folder = results / "studies" / study["name"]
    summary = records.read("summary", folder / "summary.parquet")
    rows = summary.to_pylist()
    csv.write_csv(summary, folder / "summary.csv")
    split = groups(rows)
    plots = {name: speedup_quality(group, study["limits"], name) for name, group in split.items()}
    drawn = [plot for plot in plots.values() if plot is not None]
    write_svg(stacked(drawn) if drawn else None, folder / "speedup_quality.svg")
    timings = {name: latencies(latency_rows(group, _latencies(group, results))) for name, group in split.items()}
    skipped = [variant for variant in plan["variants"] if variant["status"] == "skipped"]
    (folder / "report.html").write_text(page(plan, rows, plots, timings, skipped, results), encoding="utf-8")


def _latencies(rows: list[dict[str, Any]], results: Path) -> dict[str, np.ndarray]:
    """Return run_id -> latency of each timed call of the variant's arm [s], float64, shape (calls,)."""
    found = {}
    for row in rows:
        path = results / "benchmark" / row["run_id"] / "samples.parquet"
        if path.is_file():
            samples = records.read("samples", path)
            latency_s = samples["latency_s"].to_numpy()
            found[row["run_id"]] = latency_s[samples["arm"].to_numpy() == "variant"]
    return found
