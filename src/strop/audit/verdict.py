"""What an audit's numbers mean: whether a step changed anything, and what people should know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from strop.audit.look import FLOATS, Look

LISTED = 12  # kinds of products left in float that are named
LARGER = 1.15  # size found over size expected that is called out; graph and scales take a little
SLACK_BYTES = 2**16
UNKNOWN = "not known"
APART = 0.01  # difference of two shares that is called out [1]


def no_effect(stage: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return why a step changed nothing, by the audits of what it took and what it made, or None if it did.

    Quantizers change the precision of weights or of work, pruners remove weights or set them to zero; other stages
    change the graph, and say so themselves.
    """
    if stage == "quantize" and (before["weights"], before["work"]) == (after["weights"], after["work"]):
        return "no weight is kept, and no product is computed, in another precision than before"
    if stage == "prune" and before["parameters"] == after["parameters"]:
        zeros = [found["sparsity"] or 0.0 for found in (before, after)]
        if zeros[1] <= zeros[0]:
            return "there are as many weights as before, and no more zeros among them"
    return None


def left_in_float(look: Look, details: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the products that are computed in float, those of most work first, grouped by operator and reason.

    Args:
        look: at a model that is quantized.
        details: of the step that made it; `kept_in_float` are names.
        settings: of that step; `op_types` are operators to quantize.

    Returns:
        Entries of `operator`, `precision`, `count` [1], `work` [1] (share; None if unknown) and `reason`.
    """
    total = sum(product.macs or 0 for product in look.products)
    counts: Counter[tuple[str, str, str]] = Counter()
    work: Counter[tuple[str, str, str]] = Counter()
    for product in look.products:
        if product.precision in FLOATS:
            key = (product.operator, product.precision, _reason(product, details, settings))
            counts[key] += 1
            work[key] += product.macs or 0
    rows = [
        {"operator": key[0], "precision": key[1], "count": counts[key], "work": work[key] / total if total else None,
         "reason": key[2]}
        for key in sorted(counts, key=lambda key: -work[key])
    ]  # fmt: skip
    return rows[:LISTED]


def _reason(product: Any, details: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return why a product is computed in float, as far as that is known."""
    if not product.weights:
        return "neither factor is a weight"
    if product.name in details.get("kept_in_float", []):
        return "kept in float on purpose"
    if product.kept not in FLOATS:
        return "only its weights are quantized"
    wanted = settings.get("op_types") or []
    return f"quantize.op_types leaves {product.operator} out" if wanted and product.operator not in wanted else UNKNOWN


def warnings(found: Mapping[str, Any], stage: str, settings: Mapping[str, Any]) -> list[str]:
    """Return what people should know of an audit, a sentence each."""
    said = [found["saturation"]["reason"]] if (found.get("saturation") or {}).get("reason") else []
    if stage == "quantize":
        said += _kept(found)
    if stage == "prune":
        said += _pruned(found, settings)
    size, expected = found["size_bytes"], found["size_expected_bytes"]
    if stage in ("prune", "quantize") and size > LARGER * expected + SLACK_BYTES:
        said.append(
            f"its files have {size / 2**20:.2f} MiB, its weights in their precision take {expected / 2**20:.2f} MiB"
        )
    return said


def _kept(found: Mapping[str, Any]) -> list[str]:
    """Say that more than half of the work is float after all, though weights and work were to be integers."""
    work = found["work"] or {}
    share = sum(work.get(kind, 0.0) for kind in FLOATS)
    if not (set(work) - FLOATS) or share <= 0.5:
        return []
    most = "; ".join(f"{row['count']} {row['operator']} ({row['reason']})" for row in found["left_in_float"][:3])
    return [f"{share:.0%} of the work of matrix products and convolutions stays in float: {most}"]


def _pruned(found: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Say that fewer weights are zero than were asked for, or that some are not in the 2:4 pattern."""
    asked, zeros, pattern = settings.get("amount"), found["sparsity"], found["two_four"]
    if asked is None:  # 2:4
        part = pattern is not None and pattern < 1 - APART
        return [f"{pattern:.0%} of the products' weights are in the 2:4 pattern, the others are not"] if part else []
    if "round_to" not in settings and zeros is not None and zeros < asked - APART:
        return [f"{zeros:.1%} of the products' weights are zeros, {asked:.1%} were asked for"]
    return []
