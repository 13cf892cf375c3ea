"""What variants are called: by the options that do something, and the settings that were swept."""

from __future__ import annotations

from typing import Any

from strop.options import TRANSFORMS, Option, reads
from strop.plan.compose import Composed
from strop.plan.sweep import Sweep

Rows = dict[str, dict[str, Any]]

ON_DEVICE = frozenset({"compile", "engine", "evaluate", "benchmark"})


def name_of(at: Composed, chain: list[Option], sweep: Sweep) -> str:
    """Name a variant by its options that do something, the models if there are several, and the swept settings."""
    stages = {item.stage for item in chain}
    words = [at.choices[stage] for stage in TRANSFORMS if stage in stages and at.choices[stage] != "auto"]
    words = words or ["eager" if chain[0].returns == "torch" else str(chain[0].returns)]
    # What is not built for a device is one variant on all of them; its runs are told apart by their load.
    named = ("model", "dataset", "device") if stages & ON_DEVICE else ("model", "dataset")
    words = [at.choices[group] for group in named if group in sweep.axes] + words
    for key in sweep.axes:
        stage, _, setting = key.partition(".")
        if setting and (stage in stages or stage in named):
            method = next((item.name for item in chain if item.stage == stage), None)
            if method is None or setting.split(".")[0] in reads(stage, method):
                words.append(f"{setting}={_value(at.values, key)}")
    return joined(words)


def _value(values: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values


def joined(words: list[str]) -> str:
    """Return the words that do something as one name."""
    return "+".join(word for word in words if word not in ("none", "auto"))


def name_apart(variants: Rows, runs: Rows) -> None:
    """Give variants that would share a name their id as a suffix, so that a name means one variant; runs follow.

    Args:
        variants: of a plan in the making, by id; changed.
        runs: likewise.
    """
    planned = [v for v in variants.values() if v["status"] == "planned"]
    names = [v["variant"] for v in planned]
    for variant in planned:
        if names.count(variant["variant"]) > 1:
            variant["variant"] += f"@{variant['variant_id'][:6]}"
    by_id = {v["variant_id"]: v["variant"] for v in planned}
    for run in runs.values():
        run["variant"] = by_id[run["variant_id"]]
