"""What the summary's columns mean to a person: the words, the unit shown, which way is better, and the interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 2**20
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column that limits, objectives and tie breakers may name.

    Attributes:
        words: its name in a sentence.
        more: more of it is better.
        unit: the unit shown; `scale` turns the stored SI value into it.
        low, high: columns of its 95 % interval, or None.
        fine: values below 0.1 are shown in two significant digits: 0.00 ms says nothing of a small model.
    """

    words: str
    more: bool
    unit: str = ""
    scale: float = 1.0
    low: str | None = None
    high: str | None = None
    fine: bool = False

    def show(self, value: float, digits: int = 2) -> str:
        """Return a stored value in the unit shown, without the unit."""
        shown = value * self.scale
        if self.fine and digits > 0 and 0 < abs(shown) < 0.1:
            return f"{shown:.2g}"
        return f"{shown:.{digits}f}" if abs(shown) < 1000 or digits > 2 else f"{shown:.0f}"


COLUMNS: dict[str, Column] = {
    "speedup": Column("speedup", True, low="speedup_low", high="speedup_high"),
    "throughput_per_s": Column("throughput", True, " examples/s"),
    "quality": Column("quality", True, " %", 100.0),
    "fidelity": Column("agreement with the reference", True, " %", 100.0),
    "quality_drop": Column("quality drop", False, " points", 100.0, "quality_drop_low", "quality_drop_high"),
    "latency_mean_s": Column("mean latency", False, " ms", 1e3, fine=True),
    "latency_p50_s": Column("median latency", False, " ms", 1e3, fine=True),
    "latency_p90_s": Column("p90 latency", False, " ms", 1e3, fine=True),
    "latency_p99_s": Column("p99 latency", False, " ms", 1e3, fine=True),
    "latency_p999_s": Column("p99.9 latency", False, " ms", 1e3, fine=True),
    "size_bytes": Column("size", False, " MiB", 1 / MIB, fine=True),
    "peak_memory_bytes": Column("peak memory", False, " MiB", 1 / MIB),
    "load_memory_bytes": Column("memory of the load", False, " MiB", 1 / MIB),
    "running_memory_bytes": Column("memory while running", False, " MiB", 1 / MIB),
    "gpu_memory_bytes": Column("GPU memory", False, " MiB", 1 / MIB),
    "energy_per_item_j": Column("energy of an example", False, " mJ", 1e3, fine=True),
    "build_s": Column("build time", False, " s"),
    "load_s": Column("load time", False, " s"),
    "first_call_s": Column("first call", False, " s"),
    "compile_s": Column("compile time", False, " s"),
}
# Quantile of the calls' latencies [1] that a column holds.
QUANTILES = {"latency_p50_s": 0.5, "latency_p90_s": 0.9, "latency_p99_s": 0.99, "latency_p999_s": 0.999}
# Limits that timed calls can break: those that a benchmark may stop by.
TIMED_LIMITS = frozenset({"speedup", *QUANTILES})
# What a row's rivals share with it: the same reference under the same load. Only such rows are ranked.
GROUP = ("model", "dataset", "device", "threads", "scenario", "batch_size")


def value_of(row: Row, name: str | None) -> float | None:
    """Return a number of a row; None where it is missing or not finite."""
    value = row.get(name) if name else None
    return float(value) if value is not None and math.isfinite(value) else None


def with_interval(row: Row, name: str, digits: int = 2) -> str:
    """Return `2.84 [2.79, 2.90]`, without the interval where the column has none, or an empty text."""
    column = COLUMNS[name]
    value, low, high = (value_of(row, part) for part in (name, column.low, column.high))
    if value is None:
        return ""
    if low is None or high is None:
        return column.show(value, digits)
    return f"{column.show(value, digits)} [{column.show(low, digits)}, {column.show(high, digits)}]"


def groups(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Split rows into those that are ranked together, named by what tells them apart (`` if there is one group)."""
    keys = [tuple(row.get(name) for name in GROUP) for row in rows]
    differing = [at for at in range(len(GROUP)) if len({key[at] for key in keys}) > 1]
    named: dict[tuple[Any, ...], str] = {key: ", ".join(_part(at, key[at]) for at in differing) for key in keys}
    return {name: [row for row, k in zip(rows, keys, strict=True) if k == key] for key, name in named.items()}


def _part(at: int, value: Any) -> str:
    return {"threads": f"{value} thread{'' if value == 1 else 's'}", "batch_size": f"batch {value}"}.get(
        GROUP[at], str(value)
    )
