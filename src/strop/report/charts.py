"""The report's plots, as Vega-Lite specifications (JSON values with their data inside)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strop.columns import value_of
from strop.report.tables import in_order

Row = dict[str, Any]
KINDS = ("ship", "not beaten", "within limits", "over a limit", "undecided", "reference")
# Okabe and Ito's palette: told apart by colour-blind people, and on white as well as on black.
COLOURS = ("#009E73", "#0072B2", "#56B4E9", "#D55E00", "#CC79A7", "#8A8F98")
SHAPES = ("diamond", "circle", "circle", "cross", "triangle-up", "square")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MOST_ROWS = 40  # a plot with more rows is longer than a screen and is read by nobody
WIDTH = 640


def kind_of(row: Row) -> str:
    """Return which of `KINDS` a measured row is drawn as."""
    if row.get("recommended"):
        return "ship"
    if row.get("is_reference"):
        return "reference"
    if row.get("feasible"):
        return "not beaten" if row.get("pareto") else "within limits"
    return "undecided" if row.get("limits_verdict") == "undecided" else "over a limit"


def speedup_quality(rows: list[Row], limits: dict[str, float], title: str = "") -> dict[str, Any] | None:
    """Return the plot of speedup against change of quality with 95 % intervals, or None if nothing was compared.

    Up is better, right is faster. Without labels, agreement with the reference stands for the quality.
    """
    import altair as alt

    points, words = _points(rows)
    if not points:
        return None
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(COLOURS)), title=None)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(SHAPES)), title=None)
    base = alt.Chart(alt.Data(values=points))
    x = alt.X("speedup:Q", title="times as fast as the reference", scale=alt.Scale(zero=False, padding=30, nice=False))
    y = alt.Y("quality:Q", title=words, scale=alt.Scale(zero=False, padding=18))
    hover = [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in ("variant", "times", "change", "kind")]
    layers = [
        *_lines(limits, by_drop=words.startswith("change")),
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(x=x, x2="speedup_high:Q", y=y, color=colour)
        .transform_calculate(speedup="datum.speedup_low"),
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(x=x, y=y, y2="quality_high:Q", color=colour)
        .transform_calculate(quality="datum.quality_low"),
        base.mark_point(size=90, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=hover),
        base.mark_text(align="left", dx=8, dy=-8, fontSize=11, limit=260)
        .encode(x=x, y=y, text="variant:N").transform_filter("datum.named"),
    ]  # fmt: skip
    chart = alt.layer(*layers).properties(width=WIDTH, height=360, title=title)
    return _spec(chart)


def _points(rows: list[Row]) -> tuple[list[dict[str, Any]], str]:
    measured = [row for row in in_order(rows) if value_of(row, "speedup") is not None]
    by_drop = any(value_of(row, "quality_drop") is not None for row in measured)
    points = []
    for row in measured:
        middle, low, high = _quality_ends(row, by_drop)
        if middle is None:
            continue
        speedup = row["speedup"]
        points.append(
            {
                "variant": row["variant"],
                "kind": kind_of(row),
                "speedup": speedup,
                "speedup_low": _or(value_of(row, "speedup_low"), speedup),
                "speedup_high": _or(value_of(row, "speedup_high"), speedup),
                "quality": middle,
                "quality_low": _or(low, middle),
                "quality_high": _or(high, middle),
                "times": f"{speedup:.2f} times as fast",
                "change": f"{middle:+.2f} points" if by_drop else f"{middle:.2f} %",
                "named": bool(row.get("pareto") or row.get("recommended") or row.get("is_reference")),
            }
        )
    return points, "change of quality [points]" if by_drop else "same answer as the reference [%]"


def _quality_ends(row: Row, by_drop: bool) -> tuple[float | None, float | None, float | None]:
    if not by_drop:
        same = value_of(row, "fidelity")
        return (None if same is None else 100 * same), None, None
    drop, low, high = (value_of(row, f"quality_drop{end}") for end in ("", "_low", "_high"))
    middle, worst, best = (None if end is None else 0.0 - 100 * end for end in (drop, high, low))
    return middle, worst, best


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _lines(limits: dict[str, float], by_drop: bool) -> list[Any]:
    """Return the dashed lines of the limits that this plot's axes show."""
    import altair as alt

    wanted = [("speedup", "x", 1.0)] + ([("quality_drop", "y", -100.0)] if by_drop else [("fidelity", "y", 100.0)])
    return [
        alt.Chart(alt.Data(values=[{"at": limits[name] * scale, "name": "limit"}]))
        .mark_rule(strokeDash=[5, 4], color=COLOURS[3], opacity=0.8)
        .encode(**{axis: "at:Q"}, tooltip=alt.Tooltip("name:N", title="your"))
        for name, axis, scale in wanted
        if name in limits
    ]


def latency_rows(rows: list[Row], samples: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return variant, kind and quantiles [ms] of the timed calls, for the first `MOST_ROWS` rows that have any.

    Args:
        rows: decided rows.
        samples: run_id -> latency of each timed call of the variant's arm [s], float64, shape (calls,).
    """
    found: list[dict[str, Any]] = []
    for row in in_order(rows):
        latency_s = samples.get(row["run_id"])
        if latency_s is None or latency_s.size == 0 or len(found) == MOST_ROWS:
            continue
        values_ms = np.quantile(latency_s, QUANTILES) * 1e3
        ends = {f"p{round(100 * q)}": float(v) for q, v in zip(QUANTILES, values_ms, strict=True)}
        text = "   ".join(f"{name} {value:.3g}" for name, value in ends.items())
        found.append({"variant": row["variant"], "kind": kind_of(row), "calls": int(latency_s.size), **ends,
                      "all": f"{text} ms"})  # fmt: skip
    return found


def latencies(quantiles: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the plot of latency distributions: p5 to p95 thin, middle half thick, median and p99 as marks."""
    import altair as alt

    if not quantiles:
        return None
    order = [row["variant"] for row in quantiles]
    base = alt.Chart(alt.Data(values=quantiles))
    y = alt.Y("variant:N", sort=order, title=None, axis=alt.Axis(labelLimit=320, grid=False))

    def x(name: str) -> Any:
        scale = alt.Scale(type="log", nice=False, padding=12)
        return alt.X(f"{name}:Q", title="latency of a call [ms], log scale", scale=scale)

    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(COLOURS)), title=None)
    hover = [alt.Tooltip("variant:N"), alt.Tooltip("all:N", title="latency"), alt.Tooltip("calls:Q", title="calls")]
    layers = [
        base.mark_rule(strokeWidth=2, opacity=0.7).encode(x=x("p5"), x2="p95:Q", y=y, color=colour, tooltip=hover),
        base.mark_bar(height=11, opacity=0.75).encode(x=x("p25"), x2="p75:Q", y=y, color=colour, tooltip=hover),
        base.mark_tick(thickness=3, size=17).encode(x=x("p50"), y=y, color=colour, tooltip=hover),
        base.mark_point(size=28, filled=True).encode(x=x("p99"), y=y, color=colour, tooltip=hover),
    ]
    return _spec(alt.layer(*layers).properties(width=WIDTH - 120, height=alt.Step(24)))


def _spec(chart: Any) -> dict[str, Any]:
    configured = chart.configure_view(stroke=None).configure_legend(orient="top")
    spec: dict[str, Any] = configured.to_dict()
    spec.pop("$schema", None)  # an address that nothing here may fetch
    return spec


def stacked(specs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return plots of `speedup_quality` one below the other."""
    if len(specs) == 1:
        return specs[0]
    inner = [{key: value for key, value in spec.items() if key != "config"} for spec in specs]
    return {"config": specs[0]["config"], "vconcat": inner}


def write_svg(spec: dict[str, Any] | None, path: Path) -> None:
    """Draw a plot as an SVG file on white; without a plot, an SVG that says so."""
    import vl_convert

    nothing = {"data": {"values": [{}]}, "mark": "text", "encoding": {"text": {"value": "nothing was compared"}}}
    full = {**(spec or nothing), "background": "white", "padding": 12}
    path.write_text(vl_convert.vegalite_to_svg(full, allowed_base_urls=[]), encoding="utf-8")
