"""ONNX Runtime's weight-only quantizer: blocks of int4 or int8 weights, unpacked inside the product (MatMulNBits)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import StageFailure
from strop.graph import load_graph, side_cars
from strop.job import Job, Made
from strop.stages.quantize.common import MODEL, made, prepared
from strop.stages.quantize.onnx_layers import Choice, Keeping, keep_in_float, layers, with_products

BLOCK_SIZES = (16, 32, 64, 128, 256)
LEVELS = {"auto": 0, "f32": 1, "f16": 2, "bf16": 3, "int8": 4}
PRODUCTS = ("MatMul", "Gemm")
TABLE = "Gather"
INT4_OPSET = 21


@dataclass(frozen=True)
class Blocks:
    """How weights are quantized.

    Attributes:
        bits: of a weight [bit].
        size: weights of a column that share a scale [1].
        symmetric: no zero points.
        level: least precision of the activations inside of the product, a value of `LEVELS`.
    """

    bits: int
    size: int
    symmetric: bool
    level: int


def ort_int4(
    job: Job,
    *,
    op_types: list[str],
    block_size: int,
    symmetric: bool,
    accuracy_level: str,
    keep_float: list[str],
    keep_sensitive: int,
    sensitivity_file: str | None,
    sensitivity_time_s: float,
) -> Made:
    """ONNX Runtime: 4-bit weights of matrix products, a scale for each block of a column; activations stay float.

    Tables that `Gather` looks up (embeddings) become int4 only if `op_types` names it.
    """
    blocks = Blocks(4, block_size, symmetric, LEVELS[accuracy_level])
    return _weight_only(
        job,
        blocks,
        set(op_types or PRODUCTS),
        Keeping(keep_float, keep_sensitive, sensitivity_file, sensitivity_time_s),
    )


def ort_int8_weights(
    job: Job,
    *,
    block_size: int,
    symmetric: bool,
    accuracy_level: str,
    keep_float: list[str],
    keep_sensitive: int,
    sensitivity_file: str | None,
    sensitivity_time_s: float,
) -> Made:
    """ONNX Runtime: 8-bit weights of matrix products, a scale for each block of a column; activations stay float."""
    blocks = Blocks(8, block_size, symmetric, LEVELS[accuracy_level])
    return _weight_only(
        job, blocks, set(PRODUCTS), Keeping(keep_float, keep_sensitive, sensitivity_file, sensitivity_time_s)
    )


def _weight_only(job: Job, blocks: Blocks, op_types: set[str], keeping: Keeping) -> Made:
    if blocks.size not in BLOCK_SIZES:
        known = ", ".join(map(str, BLOCK_SIZES))
        raise StageFailure("build_failed", f"quantize.block_size={blocks.size}: the library knows {known}")
    with prepared(job) as source:

        def write(target: Path, choice: Choice) -> None:
            _quantize(source, target, choice, blocks, op_types)

        choice, details = keep_in_float(job, source, write, keeping, op_types)
        write(job.folder / MODEL, choice)
    return made(job, details, "no matrix product with constant weights of two axes is left to quantize")


def _quantize(source: Path, target: Path, choice: Choice, blocks: Blocks, op_types: set[str]) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    graph = load_graph(source)
    left = [*choice.kept, *layers(graph, set(PRODUCTS) - op_types)]
    if choice.alone:
        left += [name for name in layers(graph, op_types) if name != choice.alone]
    model = ONNXModel(_with_int4(onnx.load(str(source))) if TABLE in op_types else onnx.load(str(source)))
    model.replace_gemm_with_matmul()  # the quantizer leaves a Gemm in float without a word
    quantizer = MatMulNBitsQuantizer(
        model.model,
        bits=blocks.bits,
        block_size=blocks.size,
        is_symmetric=blocks.symmetric,
        accuracy_level=blocks.level,
        nodes_to_exclude=with_products(left),
        op_types_to_quantize=("MatMul", *({TABLE} & op_types)),
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), bool(side_cars(graph)))


def _with_int4(model: Any) -> Any:
    """Return a model of an ONNX version that has int4; the quantizer would only change the version's number."""
    import onnx

    old = model.opset_import[0].version < INT4_OPSET
    return onnx.version_converter.convert_version(model, INT4_OPSET) if old else model
