"""Plan files: a plan is made once, written to `results/plans/<digest>.json`, and only read after that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strop import machine
from strop.artifact import write_atomically
from strop.errors import StropError, one_line
from strop.ids import canonical, digest, sha256_file, source_digest
from strop.options import OPTIONS
from strop.plan.build import PLAN_VERSION, make_plan
from strop.plan.content import stamp
from strop.requirements import tools

MEND = "delete results/plans and run again"


def open_plan(overrides: list[str], conf: Path, results: Path) -> dict[str, Any]:
    """Return the plan for `overrides`: the stored one if nothing it rests on has changed, else a new one, stored.

    A plan rests on the overrides, conf/, strop's own code, this machine, the packages and the compiler on it,
    and the user's own files that settings name; `plans/keys/` remembers which plan came of them. The plan itself is
    named by its content, so that overrides that change nothing rerun nothing.

    Raises:
        StropError: as `make_plan` and `load_plan`.
    """
    key = results / "plans" / "keys" / f"{_key(overrides, conf)}.json"
    if key.is_file():
        kept = _read(key, ("digest", "contents"))
        if all(stamp(Path(file)) == at for file, at in kept["contents"].items()):
            return load_plan(results / "plans" / f"{kept['digest']}.json")
    plan = make_plan(overrides, conf)
    contents = plan.pop("contents")
    path = results / "plans" / f"{digest(plan)}.json"
    write_atomically(path, json.dumps(plan, indent=1, ensure_ascii=False) + "\n")
    write_atomically(key, json.dumps({"digest": path.stem, "overrides": overrides, "contents": contents}) + "\n")
    return load_plan(path)


def load_plan(path: Path) -> dict[str, Any]:
    """Read a plan file; `path` and `digest` are added to what it holds.

    Raises:
        StropError: it is missing, damaged, or of another version.
    """
    plan = _read(path, ("plan_version", "study", "steps", "variants", "runs"))
    if plan["plan_version"] != PLAN_VERSION:
        raise StropError(f"{path}: a plan of version {plan['plan_version']}, not {PLAN_VERSION}; {MEND}")
    if digest(plan) != path.stem:
        raise StropError(f"{path}: its content is not the one it was written with; {MEND}")
    return {**plan, "path": str(path), "digest": path.stem}


def _read(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in names if name not in data]
    except (OSError, ValueError, TypeError) as error:
        raise StropError(f"{path}: not a plan ({one_line(error, 100)}); {MEND}") from None
    if missing:
        raise StropError(f"{path}: not a plan ('{missing[0]}' is missing); {MEND}")
    return data


def _key(overrides: list[str], conf: Path) -> str:
    files = {file.relative_to(conf).as_posix(): sha256_file(file) for file in sorted(conf.rglob("*.yaml"))}
    packages = tuple(sorted({package for item in OPTIONS.values() for package in item.requires}))
    return digest(
        {
            "overrides": overrides,
            "conf": files,
            "code": source_digest("strop.plan.build"),
            "machine": machine.fingerprint({}),
            "packages": canonical(machine.versions(packages)),
            "tools": tools(),
        }
    )
