"""Plan files: a plan is made once, written to `results/plans/<digest>.json`, and only read after that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strop import machine
from strop.artifact import write_atomically
from strop.errors import StropError
from strop.ids import canonical, digest, sha256_file, source_digest
from strop.options import OPTIONS
from strop.plan.build import PLAN_VERSION, make_plan
from strop.plan.content import stamp


def open_plan(overrides: list[str], conf: Path, results: Path) -> dict[str, Any]:
    """Return the plan for `overrides`: the stored one if nothing it rests on has changed, else a new one, stored.

    A plan rests on the overrides, conf/, strop's own code, this machine and the packages on it, and the user's own
    files that settings name. Its own digest is of its content, so that equal plans have equal digests.

    Raises:
        StropError: as `make_plan` and `load_plan`.
    """
    path = results / "plans" / f"{_key(overrides, conf)}.json"
    if path.is_file():
        plan = load_plan(path)
        if all(stamp(Path(file)) == kept for file, kept in plan["contents"].items()):
            return plan
    plan = make_plan(overrides, conf)
    plan["digest"] = digest({key: value for key, value in plan.items() if key not in ("contents", "overrides")})
    plan["path"] = str(path)
    write_atomically(path, json.dumps(plan, indent=1, ensure_ascii=False) + "\n")
    return plan


def load_plan(path: Path) -> dict[str, Any]:
    """Read a plan file.

    Raises:
        StropError: it is missing, damaged, or of another version.
    """
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = plan["plan_version"]
        checked = all(name in plan for name in ("digest", "study", "steps", "variants", "runs", "contents"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StropError(f"{path}: not a plan ({type(error).__name__}: {error}); delete it and run again") from None
    if version != PLAN_VERSION or not checked:
        raise StropError(f"{path}: a plan of version {version} or incomplete; delete it and run again")
    plan["path"] = str(path)
    return plan


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
        }
    )
