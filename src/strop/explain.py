"""Why a variant of a study takes the time that it takes: its operators are profiled, and the reference's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from strop import machine, records
from strop.artifact import MANIFEST, Manifest, read_manifest
from strop.errors import StageFailure, StropError
from strop.head_to_head import find_variant
from strop.ids import digest
from strop.report.explain import chain_lines, explanation, failure_lines, verdict_lines
from strop.report.profile import Side
from strop.supervise import log_of, run_step

Plan = dict[str, Any]


def explain(plan: Plan, word: str, overrides: Sequence[str], results: Path, project: Path, said: TextIO) -> list[str]:
    """Return why a variant takes the time that it takes, under the first load that the plan has for it, as lines.

    Both profiles are steps of their own in `profile/<id>`, made once. A variant that failed is explained by that.

    Args:
        plan: as `strop.plan` opens it.
        word: name or id of the variant.
        overrides: that the plan was opened with, for the commands that messages name.
        results: folder of all results.
        project: folder that paths in settings are relative to.
        said: where it is said what is profiled.

    Raises:
        StropError: there is no such variant, it is the reference, or it was not built.
        StageFailure: a profile failed; the line names step, status and log.
    """
    variant_id = find_variant(plan, word)
    run = next(run for run in plan["runs"] if run["variant_id"] == variant_id)
    if run["is_reference"]:
        raise StropError(f"{word}: it is the reference, which the others are explained by; name another variant")
    path = results / "studies" / plan["study"]["name"] / "summary.parquet"
    rows = records.read("summary", path).to_pylist() if path.is_file() else []
    command = shlex.join(["strop", "run", *overrides])
    chain = _built(run["chain"], run["variant"], command, results)
    lines = [*verdict_lines(rows, run), "", *chain_lines(step for step in chain if step.status == "ok"), ""]
    failed = next((step for step in chain if step.status != "ok"), None)
    if failed:
        return [*lines, *failure_lines(failed)]
    end = plan["steps"][run["benchmark"]]["upstream"]["reference"]
    other = next(item for item in plan["runs"] if item["is_reference"] and item["chain"][-1] == end)
    before = _built(other["chain"], other["variant"], command, results)
    repeat = shlex.join(["strop", "explain", run["variant"], *overrides])
    sides = []
    for name, steps in ((run["variant"], chain), (f"reference ({other['variant']})", before)):
        step = profile_step(plan, run, steps[-1].key, repeat)
        sides.append(_profiled(step, name, steps, results, project, said))
    return [*lines, *explanation(*sides)]


def profile_step(plan: Plan, run: dict[str, Any], source: str, repeat: str) -> dict[str, Any]:
    """Return the step that profiles an artifact of a plan.

    Args:
        plan: see `explain`; its `profile` has the settings.
        run: whose load and device it is.
        source: the artifact, as `<stage>/<id>`.
        repeat: command that makes it again.
    """
    device, given = plan["steps"][run["benchmark"]]["device"], plan["profile"]
    settings = {"calls": given["calls"], "batch_size": given["batch_size"] or run["batch_size"]}
    upstream = {"source": source, "model": run["chain"][0]}
    step = {"stage": "profile", "option": given["method"], "settings": settings, "upstream": upstream}
    return {
        **step,
        "id": digest({**step, "device": machine.fingerprint(device)}),
        "label": run["variant"],
        "requires": [],
        "device": device,
        "timeout_s": given["timeout_s"],
        "memory_bytes": given["memory_bytes"],
        "repeat": repeat,
    }


def _built(keys: Sequence[str], name: str, command: str, results: Path) -> list[Manifest]:
    """Return the manifests of a chain up to the first that is not ok."""
    return list(_until_failed(keys, name, command, results))


def _until_failed(keys: Sequence[str], name: str, command: str, results: Path) -> Iterator[Manifest]:
    for key in keys:
        if not (results / key / MANIFEST).is_file():
            raise StropError(f"{name}: {key} was not built on this device; run it first: {command}")
        manifest = read_manifest(results / key)
        yield manifest
        if manifest.status != "ok":
            return


def _profiled(
    step: dict[str, Any], name: str, chain: Sequence[Manifest], results: Path, project: Path, said: TextIO
) -> Side:
    """Return a side with its profile: the one that is there, unless its artifact is younger, or a new one."""
    folder = results / "profile" / step["id"]
    manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    source = results / step["upstream"]["source"] / MANIFEST
    if not manifest or manifest.status != "ok" or _younger(source, folder / MANIFEST):
        print(f"strop: profiles {name}", file=said, flush=True)
        manifest = run_step(step, results=results, project=project)
    if manifest.status != "ok":
        log = log_of(step, results)
        raise StageFailure(manifest.status, f"{manifest.key}: {manifest.status}: {manifest.error}; see {log}")
    rows = records.read("operators", folder / "operators.parquet").to_pylist()
    return Side(name, chain, manifest.details, rows)


def _younger(one: Path, other: Path) -> bool:
    return one.stat().st_mtime > other.stat().st_mtime
