"""The child process of one step: `python -m strop.stages JOB.json`. It leaves `.result.json` in the step's folder."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from strop.artifact import Manifest, list_files, write_atomically
from strop.check import check, write_reference
from strop.errors import StageFailure, StropError, one_line
from strop.job import Job, Made
from strop.options import CHAIN_STAGES
from strop.process import die_with_parent
from strop.supervise import RESULT

FAILED = {"export": "export_unsupported", "evaluate": "crashed", "benchmark": "crashed"}


def main(path: str) -> None:
    """Do the step that the job file describes, and write its result; never raise."""
    die_with_parent()
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
    except StageFailure as failure:
        traceback.print_exc()
        return {"status": failure.status, "error": one_line(failure)}
    except StropError as error:
        traceback.print_exc()
        return {"status": FAILED.get(job.stage, "build_failed"), "error": one_line(error)}
    except BaseException as error:
        traceback.print_exc()
        status = "out_of_memory" if _is_memory(error) else FAILED.get(job.stage, "build_failed")
        return {"status": status, "error": one_line(error)}


def _is_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "bad_alloc" in text or "can't allocate" in text


def perform(job: Job) -> dict[str, Any]:
    """Call the option's function and check what it made against the reference's outputs."""
    function = getattr(importlib.import_module(f"strop.stages.{job.stage}"), job.option)
    made: Made = function(job, **job.settings)
    result: dict[str, Any] = {
        "status": made.details.pop("status", "ok"),
        "error": made.details.pop("status_reason", None),
        "format": made.format,
        "details": made.details,
    }
    if job.stage in CHAIN_STAGES:
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
        status = "unstable"
    else:
        found["check"], reason = check(job, draft, float(job.context["min_cosine"]))
        status = "wrong_output"
    return found | ({"status": status, "error": reason} if reason else {})


if __name__ == "__main__":
    main(sys.argv[1])
