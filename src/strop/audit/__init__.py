"""What really became of an artifact, found in its files and its answers and not taken from what was asked."""

from __future__ import annotations

import traceback
from typing import Any

from strop.artifact import Artifact
from strop.audit.saturation import saturation
from strop.check import fixed_batch, probe_rows
from strop.errors import one_line
from strop.examples import Examples
from strop.job import Job
from strop.runtimes.onnxruntime import model_path

AUDITED = frozenset({"onnx"})


def audit(job: Job, draft: Artifact) -> dict[str, Any]:
    """Audit what a step made.

    Args:
        job: the step; `model` is among its upstream.
        draft: what it made, in a format of `AUDITED`.

    Returns:
        `saturation` (see `strop.audit.saturation`) and `warnings`, sentences for people; an audit that fails costs no
        artifact: then `error` says why, and the log has the rest.
    """
    try:
        examples = Examples.read(job.artifact("model").file("examples/test.parquet"))
        size = fixed_batch(draft.manifest.inputs) or 1
        rows = probe_rows(examples)
        found = saturation(model_path(draft), [examples.batch([row] * size) for row in rows], job.threads)
    except Exception as error:
        traceback.print_exc()
        return {"error": one_line(error), "warnings": []}
    return {"saturation": found, "warnings": [found["reason"]] if found and found["reason"] else []}
