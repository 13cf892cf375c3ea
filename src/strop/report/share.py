"""How much of a plan is shared: steps as planned against steps if every run did all of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def step_counts(plan: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return stage -> (steps of the plan, steps if nothing were shared), with `all` at the end."""
    counts: dict[str, tuple[int, int]] = {}
    for step in plan["steps"].values():
        planned, alone = counts.get(step["stage"], (0, 0))
        counts[step["stage"]] = (planned + 1, alone)
    for run in plan["runs"]:
        for key in [run["dataset_step"], *run["chain"], run["evaluate"], run["benchmark"]]:
            planned, alone = counts[key.partition("/")[0]]
            counts[key.partition("/")[0]] = (planned, alone + 1)
    counts["all"] = (sum(p for p, _ in counts.values()), sum(a for _, a in counts.values()))
    return counts


def is_done(key: str, results: Path) -> bool:
    """Return whether a step's folder is complete."""
    return (results / key / "manifest.json").is_file()
