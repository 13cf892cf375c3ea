"""What really became of an artifact, found in its files and its answers and not taken from what was asked.

Each manifest of an audited format has the entry `audit`:
- `parameters`: numbers in its weights (constants of two axes and more), and `weights`, the share of them kept in each
  precision [1]; both also as they were in the source (`parameters_before`, ...);
- `macs`: multiplications of matrix products and convolutions for one example, each with an addition: two FLOPs; and
  `work`, the share of them computed in each precision [1]; None where shapes are not known;
- `left_in_float`, of a quantized model: which products are float, how much of the work they are, and why if known;
- `moves`, and `moves_added`: operators that only change a type, a scale or a layout, and how many more than before;
- `sparsity`: share of zeros among the products' weights, and `two_four`: share of them in the 2:4 pattern [1];
- `size_bytes` of the model's files, and `size_expected_bytes`: its weights in their precision [byte];
- `saturation` (`strop.audit.saturation`), and `warnings`, sentences for people.
"""

from __future__ import annotations

import traceback
from typing import Any

from strop.artifact import Artifact
from strop.audit.look import FLOATS, Look
from strop.audit.onnx_graph import look_at_onnx
from strop.audit.openvino_model import look_at_openvino
from strop.audit.saturation import saturation
from strop.audit.torch_module import look_at_torch
from strop.audit.verdict import left_in_float, no_effect, warnings
from strop.check import fixed_batch, probe_rows
from strop.errors import one_line
from strop.examples import Examples, Feeds
from strop.job import Job
from strop.runtimes.onnxruntime import model_path
from strop.runtimes.openvino import MODEL_FILE

COMPARED = ("parameters", "macs", "weights", "work", "sparsity", "two_four")
BESIDES = ("examples/", "probes.npz", "sensitivity.json", "tokenizer", "vocab", "merges", "special_tokens")


def audited(artifact: Artifact) -> bool:
    """Return whether there is an audit for the artifact's format and files."""
    names = {file.path for file in artifact.manifest.files}
    if artifact.manifest.format in ("onnx", "ort"):
        return any(name.endswith(".onnx") for name in names)
    return artifact.manifest.format in ("torch", "torch_compile") or MODEL_FILE in names


def audit(job: Job, draft: Artifact) -> dict[str, Any]:
    """Audit what a step made.

    Args:
        job: the step; `model` is among its upstream, unless it makes the model.
        draft: what it made, for which `audited` holds.

    Returns:
        The entries above, and `no_effect`: why the step changed nothing, or None. An audit that fails costs no
        artifact: then `error` says why, the log has the rest, and `warnings` is empty.
    """
    try:
        return _audit(job, draft)
    except Exception as error:
        traceback.print_exc()
        return {"error": one_line(error), "no_effect": None, "warnings": []}


def _audit(job: Job, draft: Artifact) -> dict[str, Any]:
    model = job.artifact("model") if "model" in job.upstream else draft
    examples = Examples.read(model.file("examples/test.parquet"))
    size = fixed_batch(draft.manifest.inputs) or 1
    feeds = [examples.batch([row] * size) for row in probe_rows(examples)]
    look = _look(draft, feeds[len(feeds) // 2], job.threads)
    found = look.as_dict()
    before = job.artifact("source").manifest.details.get("audit", {}) if "source" in job.upstream else {}
    found |= {f"{name}_before": before.get(name) for name in COMPARED} if before else {}
    if "moves" in before:
        found["moves_added"] = sum(found["moves"].values()) - sum(before["moves"].values())
    if set(found["weights"]) - FLOATS:
        found["left_in_float"] = left_in_float(look, draft.manifest.details, job.settings)
    found["size_bytes"] = sum(f.bytes for f in draft.manifest.files if not f.path.startswith(BESIDES))
    found["size_expected_bytes"] = found.pop("weights_bytes")
    if draft.manifest.format == "onnx":
        found["saturation"] = saturation(model_path(draft), feeds, job.threads)
    found["no_effect"] = no_effect(job.stage, before, found) if "weights" in before else None
    return found | {"warnings": warnings(found, job.stage, job.settings)}


def _look(draft: Artifact, feeds: Feeds, threads: int) -> Look:
    """Look at an artifact with one example."""
    if draft.manifest.format in ("onnx", "ort"):
        return look_at_onnx(model_path(draft), feeds, threads)
    if draft.manifest.format == "openvino":
        return look_at_openvino(draft.file(MODEL_FILE), feeds)
    return look_at_torch(draft, feeds)
