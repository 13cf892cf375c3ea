"""How each number was measured, in the words and units of the report page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strop.columns import COLUMNS, value_of

Row = dict[str, Any]
STOPPED = {
    "precision": "the interval is narrow enough",
    "decision": "limits and ties are decided",
    "calls": "the calls were as many as may be",
    "time": "the time was over",
}
LEVELS = {"processes": "sd_process", "sessions": "sd_session", "pairs": "sd_pair"}


def how_measured(row: Row) -> dict[str, str]:
    """Return what the page shows of a row's measurement; what was not recorded is an empty text."""
    return {
        "variant": str(row["variant"]),
        "amount": _amount(row),
        "blocks": _blocks(row),
        "stopped": STOPPED.get(str(row.get("stopped_by")), str(row.get("stopped_by") or "")),
        "overhead": _time(row, "overhead_s"),
        "spread": ", ".join(
            f"{name} {value:.2%}" for name, column in LEVELS.items() if (value := value_of(row, column)) is not None
        ),
        "starts": _named(row, {"load": "load_s", "compile": "compile_s", "first call": "first_call_s"}),
        "memory": _named(
            row, {"load": "load_memory_bytes", "running": "running_memory_bytes", "GPU": "gpu_memory_bytes"}
        ),
        "energy": _energy(row),
        "cpus": str(row.get("affinity") or ""),
        "noise": str(row.get("noisy_reason") or ("none seen" if row.get("noisy") is False else "")),
    }


def overhead_words(rows: Sequence[Row]) -> str:
    """Return the time that strop adds to a call, as a sentence over the rows that know it."""
    found = sorted(value * 1e6 for row in rows if (value := value_of(row, "overhead_s")) is not None)
    if not found:
        return "What strop adds to a call was not measured."
    low, high = f"{found[0]:.2g}", f"{found[-1]:.2g}"
    return f"strop adds {low if low == high else f'{low} to {high}'} µs to a call."


def quantile_cell(row: Row, name: str) -> str:
    """Return a quantile [ms]; without one, how many calls it lacks, or `-` where nothing says why."""
    value = value_of(row, name)
    if value is not None:
        return COLUMNS[name].show(value)
    needed = row.get(f"{name.removesuffix('_s')}_calls_needed")
    return f"+{needed:,} calls" if needed else "-" if row.get("status") == "ok" else ""


def _amount(row: Row) -> str:
    words = {"calls": "call", "instances": "instance", "processes": "process"}
    counts = {name: row[name] for name in words if row.get(name) is not None}
    return ", ".join(f"{count:,} {words[name] if count == 1 else name}" for name, count in counts.items())


def _blocks(row: Row) -> str:
    calls, switch = row.get("block_calls"), _time(row, "switch_s")
    parts = (
        "" if calls is None else f"{calls} call{'' if calls == 1 else 's'}",
        _time(row, "block_s"),
        f"switch {switch}" if switch else "",
    )
    return ", ".join(part for part in parts if part)


def _time(row: Row, name: str) -> str:
    """Return a time in the unit that leaves few zeros."""
    value = value_of(row, name)
    if value is None:
        return ""
    return f"{value * 1e6:.2g} µs" if abs(value) < 1e-4 else f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _named(row: Row, names: dict[str, str]) -> str:
    return ", ".join(
        f"{words} {COLUMNS[name].show(value)}{COLUMNS[name].unit}"
        for words, name in names.items()
        if (value := value_of(row, name)) is not None
    )


def _energy(row: Row) -> str:
    value = value_of(row, "energy_per_item_j")
    column = COLUMNS["energy_per_item_j"]
    return str(row.get("energy_reason") or "") if value is None else f"{column.show(value)}{column.unit}"
