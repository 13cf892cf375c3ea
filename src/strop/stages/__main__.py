"""The child process of one step: `python -m strop.stages JOB.json PARENT`; it leaves `.result.json` in the folder."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from strop.artifact import Artifact, Manifest, list_files, write_atomically
from strop.audit import audit, audited
from strop.check import check, write_reference
from strop.errors import StageFailure, one_line
from strop.job import Job, Made
from strop.options import CHAIN_STAGES, option
from strop.process import die_with_parent
from strop.supervise import RESULT

MEMORY_WORDS = ("out of memory", "bad_alloc", "can't allocate")
FAILED = {"export": "export_unsupported", "evaluate": "crashed", "benchmark": "crashed", "profile": "crashed"}


def main(path: str) -> None:
    """Do the step that the job file describes, and write its result; never raise."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    names = {field.name for field in dataclasses.fields(Job)}
    settings = {name: value for name, value in data["settings"].items() if name != "min_cosine"}  # the check's own
    job = Job(**{k: v for k, v in data.items() if k in names and k not in ("settings", "results", "project")},
              settings=settings, results=Path(data["results"]), project=Path(data["project"]))  # fmt: skip
    write_atomically(job.folder / RESULT, json.dumps(attempt(job), allow_nan=False))


def attempt(job: Job) -> dict[str, Any]:
    """Return the step's result as JSON values: `status` and, if not ok, `error`."""
    try:
        return perform(job)
    except BaseException as error:
        traceback.print_exc()
        return {"status": _status(error, job.stage), "error": one_line(error)}


def _status(error: BaseException, stage: str) -> str:
    """Return the status that an exception means, by itself or by what caused it."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    if any(_is_memory(cause) for cause in causes):
        return "out_of_memory"
    return error.status if isinstance(error, StageFailure) else FAILED.get(stage, "build_failed")


def _is_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in MEMORY_WORDS)


def perform(job: Job) -> dict[str, Any]:
    """Call the option's function and check what it made against the reference's outputs."""
    function = getattr(importlib.import_module(option(job.stage, job.option).module), job.option)
    made: Made = function(job, **job.settings)
    result: dict[str, Any] = {
        "status": made.details.pop("status", "ok"),
        "error": made.details.pop("status_reason", None),
        "format": made.format,
        "details": made.details,
    }
    if job.stage in CHAIN_STAGES and result["status"] == "ok":
        result |= _checked(job, made)
    return result


def _checked(job: Job, made: Made) -> dict[str, Any]:
    """Describe what was made, and check it; an artifact whose outputs are wrong is `wrong_output`."""
    upstream = job.artifact("source").manifest if "source" in job.upstream else None
    inputs = made.inputs if made.inputs is not None else upstream.inputs if upstream else ()
    outputs = made.outputs if made.outputs is not None else upstream.outputs if upstream else ()
    draft = Manifest(job.id, job.stage, job.option, job.settings, job.upstream, format=made.format,
                     files=list_files(job.folder), inputs=inputs, outputs=outputs, details=made.details)  # fmt: skip
    found: dict[str, Any] = {
        "inputs": [dataclasses.asdict(tensor) for tensor in inputs],
        "outputs": [dataclasses.asdict(tensor) for tensor in outputs],
    }
    if job.stage == "model":
        found["check"], reason = write_reference(job, draft)
    else:
        found["check"], reason = check(job, draft, float(job.context["min_cosine"]))
    suspects = [made.details["suspects"]] if "suspects" in made.details else []
    artifact = Artifact.draft(job.folder, draft)
    if audited(artifact):
        seen = made.details["audit"] = audit(job, artifact)
        suspects += seen["warnings"]
        if seen["no_effect"] and not reason:
            return found | {"status": "no_effect", "error": seen["no_effect"]}
    if not reason:
        return found
    return found | {
        "status": "unstable" if job.stage == "model" else "wrong_output",
        "error": reason if job.stage == "model" else "; ".join([reason, *suspects]),
    }


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(sys.argv[1])
