"""NNCF's quantizers: integers in an OpenVINO model."""

from __future__ import annotations

import logging
from typing import Any

from strop.errors import StageFailure
from strop.graph import is_quantized, load_graph
from strop.job import Job, Made
from strop.runtimes.openvino import read_model
from strop.stages.quantize.common import MODEL, batches, calibration

SEEN_THROUGH = frozenset({"Select", "Convert", "Multiply", "Reshape", "Transpose", "Squeeze", "Unsqueeze"})


def nncf_int8(job: Job, *, calibration_examples: int, model_type: str) -> Made:
    """NNCF: integer weights and activations for OpenVINO, with ranges from calibration examples."""
    import nncf
    import openvino

    source = job.artifact("source").verify().folder / MODEL
    if is_quantized(load_graph(source)):
        raise StageFailure("skipped", "the model is quantized already")
    examples = calibration(job, calibration_examples)
    model = read_model(source)
    before = _weighted(model)
    transformer = model_type == "transformer" or (model_type == "auto" and _has_attention(model))
    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(
        model,
        nncf.Dataset(batches(job, examples)),
        subset_size=len(examples),
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
    )
    openvino.save_model(quantized, str(job.folder / "model.xml"), compress_to_fp16=False)
    quantizers = sum(op.get_type_name() == "FakeQuantize" for op in quantized.get_ops())
    details: dict[str, Any] = {
        "calibration_examples": len(examples),
        "fake_quantize_nodes": quantizers,
        "weighted_nodes": before,
        "transformer": transformer,
        "precision": "int8",
    }
    if quantizers == 0:
        details |= {"status": "no_effect", "status_reason": "NNCF put no quantizer into the model"}
    return Made("openvino", details=details)


def _has_attention(model: Any) -> bool:
    """Return whether a MatMul reads the result of a Softmax, seen through what exporters put between the two."""
    ahead = [op for op in model.get_ops() if op.get_type_name() == "Softmax"]
    seen: set[str] = set()
    while ahead:
        targets = [target.get_node() for target in ahead.pop().output(0).get_target_inputs()]
        if any(node.get_type_name() == "MatMul" for node in targets):
            return True
        ahead += [node for node in targets if node.get_type_name() in SEEN_THROUGH and node.get_name() not in seen]
        seen |= {node.get_name() for node in targets}
    return False


def _weighted(model: Any) -> int:
    kinds = {"MatMul", "Convolution", "GroupConvolution"}
    return sum(op.get_type_name() in kinds for op in model.get_ops())
