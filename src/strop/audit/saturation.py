"""Do the integers of an ONNX model overflow on this CPU? What it answers, beside the same graph's answers in float.

x86 CPUs with AVX2 or AVX-512 but without VNNI add pairs of products of uint8 and int8 in 16 bits, which saturate: two
times 255 x 127 is 64,770, and 16 bits hold 32,767. The model is right on one machine and wrong on another, and nothing
says so. With 7-bit weights (`quantize.reduce_range`) no pair can overflow.

Three sessions answer the same examples: the model as ONNX Runtime executes it; its emulation, where the same integers
are multiplied as float32; and the model with ONNX Runtime's own remedy (`session.x64quantprecision`: it makes weights
uint8, whose kernels add in 32 bits). A value near the middle of two steps is rounded this way or that by each of them,
and later layers make more of it: on real models without any saturation, up to 9 % of an output's norm against the
emulation, but nothing against the remedy, which does the same work in the same order. So the emulation tells how far
off the answers are, and the remedy whether it is saturation.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from strop.audit.emulation import in_float
from strop.check import join
from strop.compare import Outputs, compare
from strop.errors import StageFailure, one_line
from strop.graph import INTEGER_OPS, graphs, load_graph, side_cars
from strop.machine import VNNI, machine_facts
from strop.runtimes.onnxruntime import create, session_options
from strop.runtimes.onnxruntime_providers import CPU_PROVIDER

Feeds = dict[str, np.ndarray]

NOTICEABLE = 0.01  # relative difference of an output from the remedy's that is called saturation [1]
DISAGREES = 0.2  # relative difference from the emulation that rounding does not explain [1]
REMEDY = "session.x64quantprecision"
# MatMulNBits unpacks its blocks of weights; its kernels for int8 activations do not saturate.
PRODUCTS = (INTEGER_OPS - {"MatMulNBits"}) | {"QAttention", "DynamicQuantizeLSTM"}


def saturation(path: Path, feeds: list[Feeds], threads: int) -> dict[str, Any] | None:
    """Compare an int8 ONNX model, as ONNX Runtime executes it on this CPU, with a float emulation of its integers.

    Args:
        path: the model.
        feeds: batches to call it with; names that it has no input of are left out.
        threads: threads of one call [1].

    Returns:
        None if no product in the graph is one of integers. Else, over all batches and for the output that is worst in
        it, `relative_difference` from the emulation [1], `saturates`, and `reason`: a sentence, or None if all is well.

    Raises:
        StageFailure: `build_failed`: the model or its emulation does not load.
    """
    if not has_integer_products(load_graph(path)):
        return None
    executed = _answers(create(path, threads, "all", {}), feeds)
    remedied = _answers(_remedied(path, threads, "all"), feeds)
    emulated = _emulated(path, feeds, threads)
    from_remedy, from_emulation = worst(remedied, executed), worst(emulated, executed)
    return verdict(from_remedy, from_emulation, set(machine_facts()["instruction_sets"]))


def has_integer_products(model: Any) -> bool:
    """Return whether a node multiplies integers, or ONNX Runtime makes it so: a float product between Q/DQ pairs."""
    for part in graphs(model.graph):
        unpacked = {node.output[0] for node in part.node if node.op_type == "DequantizeLinear"}
        for node in part.node:
            if node.op_type in PRODUCTS:
                return True
            if node.op_type in ("MatMul", "Gemm", "Conv") and unpacked.issuperset(node.input[:2]):
                return True
    return False


def verdict(from_remedy: float, from_emulation: float, instruction_sets: set[str]) -> dict[str, Any]:
    """Say what the differences of the model as executed mean.

    Args:
        from_remedy: relative difference from the same model with kernels that add in 32 bits [1].
        from_emulation: relative difference from the same integers multiplied as floats [1].
        instruction_sets: of this CPU, as `strop.machine` names them.

    Returns:
        What `saturation` returns.
    """
    saturates = not from_remedy <= NOTICEABLE  # a number that is none is far off, too
    reason = None
    if saturates:
        lacks = "" if instruction_sets & VNNI else ", which lacks VNNI"
        reason = (
            f"int8 saturates on this CPU{lacks}: outputs differ by {from_remedy:.2g} of their norm from those with "
            f"sums in 32 bits, and by {from_emulation:.2g} from the same integers in float; use "
            "quantize.reduce_range=true (7-bit weights) or quantize.weight_type=uint8"
        )
    elif not from_emulation <= DISAGREES:
        reason = (
            f"outputs differ by {from_emulation:.2g} of their norm from the same integers in float, and not by "
            "saturation: a kernel or a fusion of ONNX Runtime computes something else"
        )
    return {"relative_difference": float(from_emulation), "saturates": saturates, "reason": reason}


def worst(wanted: Outputs, found: Outputs) -> float:
    """Return the relative difference of the output that differs most [1]."""
    return max((item.relative_l2 for item in compare(wanted, found)), default=0.0)


def _emulated(path: Path, feeds: list[Feeds], threads: int) -> Outputs:
    """Return what the model answers when its integers are multiplied as floats; other integers are added in 32 bits."""
    import onnx

    model = onnx.load(str(path))
    beside = bool(side_cars(load_graph(path)))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "emulated.onnx"
        onnx.save(in_float(model), str(target), save_as_external_data=beside)
        return _answers(_remedied(target, threads, "disabled"), feeds)


def _remedied(path: Path, threads: int, level: str) -> Any:
    """Return a session whose integer kernels add in 32 bits; on CPUs that do so anyway it is as any other."""
    import onnxruntime as ort

    options = session_options(threads, level, {})
    options.add_session_config_entry(REMEDY, "1")
    try:
        return ort.InferenceSession(str(path), options, providers=[CPU_PROVIDER])
    except Exception as error:
        raise StageFailure("build_failed", f"{path.name}: ONNX Runtime does not load it: {one_line(error)}") from error


def _answers(session: Any, feeds: list[Feeds]) -> Outputs:
    names = [output.name for output in session.get_outputs()]
    known = {value.name for value in session.get_inputs()}
    taken = [{name: value for name, value in batch.items() if name in known} for batch in feeds]
    return join([dict(zip(names, session.run(names, batch), strict=True)) for batch in taken])
