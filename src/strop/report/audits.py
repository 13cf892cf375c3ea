"""What the report shows of the audits: for each variant, that of the last audited step of its chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from strop.artifact import MANIFEST, read_manifest
from strop.columns import MIB

Audit = Mapping[str, Any]


def audits(runs: Iterable[Mapping[str, Any]], results: Path) -> dict[str, Audit]:
    """Return variant -> `audit` of the last step of its chain that has one, for those that have any.

    Args:
        runs: of a plan.
        results: folder of all results.

    Raises:
        StropError: a manifest is damaged.
    """
    found: dict[str, Audit] = {}
    for run in runs:
        for key in reversed(run["chain"]):
            if (results / key / MANIFEST).is_file() and "weights" in (seen := _audit(results / key)):
                found.setdefault(run["variant"], seen)
                break
    return found


def _audit(folder: Path) -> Audit:
    audit: Audit = read_manifest(folder).details.get("audit", {})
    return audit


def cells(audit: Audit) -> dict[str, str]:
    """Return an audit in words, by what a column of the report shows."""
    floats = (f"{row['count']} {row['operator']}: {row['reason']}" for row in audit.get("left_in_float", []))
    return {
        "weights": shares(audit["weights"]),
        "work": shares(audit["work"]) if audit["work"] else "not known",
        "left_in_float": "; ".join(floats),
        "moves_added": f"{audit['moves_added']:+d}" if "moves_added" in audit else "",
        "sparsity": "" if audit["sparsity"] is None else f"{audit['sparsity']:.0%}",
        "two_four": "" if audit["two_four"] is None else f"{audit['two_four']:.0%}",
        "parameters": _million(audit["parameters"]),
        "macs": "" if audit["macs"] is None else _million(audit["macs"]),
        "size": f"{audit['size_bytes'] / MIB:.2f}",
        "expected": f"{audit['size_expected_bytes'] / MIB:.2f}",
    }


def shares(found: Mapping[str, float]) -> str:
    """Return shares by precision as `97 % int8, 3 % f32`; a share that is not nothing is never shown as 0."""
    return ", ".join(f"{max(share, 0.001):.{0 if share >= 0.01 else 1}%} {kind}".replace("%", " %")
                     for kind, share in found.items())  # fmt: skip


def _million(count: int) -> str:
    return f"{count / 1e6:.3g}"
