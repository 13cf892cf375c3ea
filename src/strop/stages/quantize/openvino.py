"""NNCF's quantizers: integers in an OpenVINO model.

In transformers, ranges move from activations into weights first (SmoothQuant, arXiv:2211.10438). Scales of 4-bit
weights may be chosen by calibration examples (AWQ, arXiv:2306.00978). GPTQ is left out: NNCF 3.4 stops at the
transposes that exporters put before an encoder's products.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from strop.errors import StageFailure
from strop.examples import Examples, Feeds
from strop.job import Job, Made
from strop.runtimes.openvino import read_model
from strop.stages.evaluate import classes_of
from strop.stages.quantize.common import MODEL, batches, calibration, refuse_quantized
from strop.stages.quantize.openvino_facts import facts, has_attention

NO_QUANTIZER = "NNCF put no quantizer into the model"
NO_WEIGHTS = "NNCF found no weights to compress"
ALL_BACK = "NNCF took all quantizers out again, as quantize.max_drop asks"


def nncf_int8(job: Job, *, calibration_examples: int, model_type: str, smooth_quant_alpha: float) -> Made:
    """NNCF: integer weights and activations for OpenVINO, with ranges from calibration examples."""
    import nncf

    model = _source(job)
    examples = calibration(job, calibration_examples)
    transformer = _is_transformer(model, model_type)
    quantized = nncf.quantize(
        model,
        nncf.Dataset(batches(job, examples)),
        subset_size=len(examples),
        model_type=_type(transformer),
        advanced_parameters=_smoothing(smooth_quant_alpha),
    )
    details = {"calibration_examples": len(examples), "transformer": transformer}
    return _made(job, quantized, details, NO_QUANTIZER)


def nncf_accuracy(
    job: Job, *, calibration_examples: int, model_type: str, smooth_quant_alpha: float, max_drop: float
) -> Made:
    """NNCF: as nncf_int8, then layers return to float until accuracy falls by no more than `max_drop`.

    Accuracy is measured on the calibration examples, as the evaluation does it on the test examples.
    """
    import nncf
    import openvino

    model = _source(job)
    examples = _labelled(calibration(job, calibration_examples))
    assert examples.labels is not None
    transformer = _is_transformer(model, model_type)
    feeds = batches(job, examples)
    size = len(examples) // len(feeds)
    pairs = [(feed, examples.labels[at * size : (at + 1) * size]) for at, feed in enumerate(feeds)]
    data = nncf.Dataset(pairs, lambda pair: pair[0])
    before, _ = _accuracy(openvino.compile_model(model, "CPU"), pairs)
    quantized = nncf.quantize_with_accuracy_control(
        model,
        data,
        data,
        _accuracy,
        max_drop=max_drop,
        subset_size=len(examples),
        model_type=_type(transformer),
        advanced_quantization_parameters=_smoothing(smooth_quant_alpha),
    )
    after, _ = _accuracy(openvino.compile_model(quantized, "CPU"), pairs)
    details = {
        "calibration_examples": len(examples),
        "transformer": transformer,
        "calibration_accuracy": {"float": before, "quantized": after},
        "max_drop_met": before - after <= max_drop,
    }
    return _made(job, quantized, details, ALL_BACK)


def nncf_weights(
    job: Job,
    *,
    weight_mode: str,
    block_size: int,
    int4_ratio: float,
    all_layers: bool,
    data_aware: str,
    calibration_examples: int,
) -> Made:
    """NNCF: integer weights for OpenVINO, of 8 or of 4 bits; activations stay float."""
    import nncf

    more: dict[str, Any] = {}
    if weight_mode.startswith("int4"):
        more = {"group_size": block_size, "ratio": int4_ratio, "all_layers": all_layers}
    elif data_aware != "none":
        raise StageFailure("build_failed", f"quantize.data_aware={data_aware} is for 4 bits, not {weight_mode}")
    model = _source(job)
    details: dict[str, Any] = {"weight_mode": weight_mode}
    if data_aware != "none":
        examples = calibration(job, calibration_examples)
        more |= {"dataset": nncf.Dataset(batches(job, examples)), "subset_size": len(examples), data_aware: True}
        details |= {"data_aware": data_aware, "calibration_examples": len(examples)}
    try:
        compressed = nncf.compress_weights(model, mode=nncf.CompressWeightsMode[weight_mode.upper()], **more)
    except nncf.InvalidGroupSizeError as error:
        text = f"quantize.block_size={block_size} does not divide the width of each product; give a smaller one"
        raise StageFailure("build_failed", text) from error
    return _made(job, compressed, details, NO_WEIGHTS)


def _source(job: Job) -> Any:
    """Return the `openvino.Model` of the step's source, which must not be quantized."""
    import nncf

    refuse_quantized(job.artifact("source"))
    nncf.set_log_level(logging.ERROR)
    return read_model(job.artifact("source").verify().folder / MODEL)


def _labelled(examples: Examples) -> Examples:
    """Return those examples that have a label.

    Raises:
        StageFailure: `calibration_failed`: none has.
    """
    rows = [] if examples.labels is None else np.flatnonzero(examples.labels >= 0).tolist()
    if not rows:
        raise StageFailure("calibration_failed", "the calibration examples have no labels to measure accuracy by")
    return examples.take(rows)


def _is_transformer(model: Any, model_type: str) -> bool:
    return model_type == "transformer" or (model_type == "auto" and has_attention(model))


def _type(transformer: bool) -> Any:
    import nncf

    return nncf.ModelType.TRANSFORMER if transformer else None


def _smoothing(alpha: float) -> Any:
    import nncf

    smooth = nncf.AdvancedSmoothQuantParameters(matmul=alpha)
    return nncf.AdvancedQuantizationParameters(smooth_quant_alphas=smooth)


def _accuracy(compiled: Any, pairs: Any) -> tuple[float, list[float]]:
    """Return the share of right answers [1], and that of each batch, which is a pair of inputs and labels."""
    shares = [_right(compiled, feeds, labels) for feeds, labels in pairs]
    accuracy = float(np.mean(shares))
    if len(shares) > 1:  # layers are ranked by single examples, too
        print(f"nncf: accuracy {accuracy:.4f} on {len(shares)} batches of calibration examples", flush=True)
    return accuracy, shares


def _right(compiled: Any, feeds: Feeds, labels: np.ndarray) -> float:
    found, _ = classes_of(compiled(feeds)[0])
    return float(np.mean(found == labels))


def _made(job: Job, model: Any, details: dict[str, Any], nothing: str) -> Made:
    """Write the model, and say what is in it; without an integer weight or quantizer it is `no_effect`."""
    import openvino

    found = {**facts(model), **details}
    openvino.save_model(model, str(job.folder / "model.xml"), compress_to_fp16=False)
    if found["fake_quantize_nodes"] == 0 and found["compressed_constants"] == 0:
        found |= {"status": "no_effect", "status_reason": nothing}
    return Made("openvino", details=found)
