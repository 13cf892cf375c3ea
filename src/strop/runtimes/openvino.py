"""Sessions of OpenVINO on the CPU, for the format `openvino`."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.machine import machine_facts
from strop.runtimes.session import Call, Feeds

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions

MODEL_FILE = "model.xml"
BLOB_FILE = "model.blob"
NO_WORK = frozenset({"Const", "Constant", "Input", "Output", "Parameter", "Result"})
READ_BACK = {"float32": "f32", "float": "f32", "f32": "f32", "bfloat16": "bf16", "float16": "f16"}


class OpenVinoSession:
    """A compiled model with one inference request; inputs are set before the timed call."""

    stream = None

    def __init__(self, compiled: Any, manifest: Manifest, facts: dict[str, Any], compile_s: float) -> None:
        self.inputs: tuple[Tensor, ...] = manifest.inputs
        self.outputs: tuple[Tensor, ...] = manifest.outputs
        self.facts = facts
        self._compile_s = compile_s
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._names = [tensor.name for tensor in manifest.outputs]
        self._inputs = _input_names(compiled, manifest)

    def prepare(self, feeds: Feeds) -> Call:
        """Make tensors that share the memory of `feeds`; the call sets them and waits for the result."""
        import openvino

        for name in self._inputs:
            if name not in feeds:
                raise StageFailure("wrong_output", f"input '{name}' of the model is not among {sorted(feeds)}")
        # The arrays are kept beside the tensors, which own no memory of theirs.
        arrays = [np.ascontiguousarray(feeds[name]) for name in self._inputs]
        tensors = [openvino.Tensor(array, shared_memory=True) for array in arrays]
        request = self._request

        def call() -> Any:
            for index, tensor in enumerate(tensors):
                request.set_input_tensor(index, tensor)
            request.infer()
            return request

        call.arrays = arrays  # type: ignore[attr-defined] # a function may carry attributes
        return call

    def to_numpy(self, raw: Any) -> Feeds:
        """Copy the outputs of the last call."""
        return {name: raw.get_output_tensor(index).data.copy() for index, name in enumerate(self._names)}

    def compile_seconds(self) -> float:
        """See `Session`: the time of `compile_model`, which reads the model, too; of a blob that of its import."""
        return self._compile_s

    def transfer_seconds(self, call: Call) -> None:
        """See `Session`: it is on the CPU."""
        del call


def read_model(path: Path) -> Any:
    """Return the `openvino.Model` of a file.

    Raises:
        StageFailure: `build_failed`: OpenVINO cannot read it; its summary names the operators.
    """
    import openvino

    try:
        return openvino.Core().read_model(str(path))
    except RuntimeError as error:
        told = str(error).rpartition("Summary:")[2]
        raise StageFailure("build_failed", f"OpenVINO does not read it: {one_line(told)}") from error


def _input_names(compiled: Any, manifest: Manifest) -> list[str]:
    """Return the model's inputs in its own order, by the manifest's names."""
    known = {tensor.name for tensor in manifest.inputs}
    names = []
    for port in compiled.inputs:
        found = known & set(port.get_names())
        if not found:
            raise StageFailure("build_failed", f"input {sorted(port.get_names())} is not among {sorted(known)}")
        names.append(found.pop())
    return names


def open_session(
    artifact: Artifact, *, threads: int, device: str = "cpu", cuda: CudaOptions | None = None, profile: bool = False
) -> OpenVinoSession:
    """Load an artifact of format `openvino`, as its details say (`properties`).

    Args:
        artifact: holds model.xml and model.bin, or the blob that another process has compiled of them.
        threads: threads of all streams together; a call has one stream [1].
        device: `cpu`.
        cuda: unused.
        profile: count the time of operators; the request that a call returns has them as `profiling_info`.

    Raises:
        StageFailure: `skipped` for another device; `build_failed` if it does not load, or is a blob of another version
            or for another CPU.
    """
    import openvino

    del cuda
    if device != "cpu":
        raise StageFailure("skipped", f"OpenVINO runs on the CPU here, not on {device}")
    details = artifact.manifest.details
    is_blob = any(file.path == BLOB_FILE for file in artifact.manifest.files)
    path = artifact.file(BLOB_FILE if is_blob else MODEL_FILE)
    if is_blob:
        _must_fit(details.get("made_by", {}))
    load = _import_blob if is_blob else compile_model
    began = time.perf_counter()
    compiled = load(path, properties(details, threads) | ({"PERF_COUNT": True} if profile else {}))
    compile_s = time.perf_counter() - began
    facts = {
        "runtime": "openvino",
        "version": openvino.__version__.partition("-")[0],
        "threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
        "streams": int(compiled.get_property("NUM_STREAMS")),
        "precision": details.get("precision") or _precision(compiled),
        "float_precision": _precision(compiled),  # of what is not quantized
    }
    return OpenVinoSession(compiled, artifact.manifest, facts, compile_s)


def properties(details: dict[str, Any], threads: int) -> dict[str, Any]:
    """Return what OpenVINO is told.

    Args:
        details: an artifact's: `hint`, the precision of what is not quantized; `performance_hint`; and without such a
            hint, which chooses them itself, `streams`.
        threads: most threads of all streams together [1].
    """
    found: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
    if details.get("performance_hint", "none") == "none":
        found["NUM_STREAMS"] = details.get("streams", 1)
    else:
        found["PERFORMANCE_HINT"] = details["performance_hint"].upper()
    if details.get("hint", "f32") != "auto":
        found["INFERENCE_PRECISION_HINT"] = details.get("hint", "f32")
    return found


def compile_model(path: Path, told: dict[str, Any]) -> Any:
    """Return the `openvino.CompiledModel` of a file for the CPU; `told` as from `properties`.

    Raises:
        StageFailure: `build_failed`.
    """
    import openvino

    try:
        return openvino.Core().compile_model(str(path), "CPU", told)
    except RuntimeError as error:
        raise StageFailure("build_failed", f"OpenVINO does not load it: {one_line(error)}") from error


def _import_blob(path: Path, told: dict[str, Any]) -> Any:
    import openvino

    try:
        return openvino.Core().import_model(path.read_bytes(), "CPU", told)
    except RuntimeError as error:
        raise StageFailure("build_failed", f"OpenVINO does not load the blob: {one_line(error)}") from error


def made_by() -> dict[str, Any]:
    """Return what a blob is good for: this very version of OpenVINO, and a CPU with these instruction sets."""
    import openvino

    return {"openvino": openvino.get_version(), "instruction_sets": machine_facts()["instruction_sets"]}


def _must_fit(theirs: dict[str, Any]) -> None:
    """Importing a blob of another version may give wrong results instead of an error: it is not tried.

    Raises:
        StageFailure: `build_failed`.
    """
    ours = made_by()
    for name, value in theirs.items():
        if value != ours.get(name):
            kind = name.replace("_", " ")
            text = f"the blob was made with {kind} {value}, here is {ours.get(name)}; build engine=openvino_blob here"
            raise StageFailure("build_failed", text)


def node_counts(model: Any) -> dict[str, int]:
    """Return type -> number of nodes that do work, most frequent first.

    Args:
        model: an `openvino.Model`: as read, or what a compiled model executes (`get_runtime_model`), whose nodes tell
            their type apart.
    """
    kinds = (_executed(op) or op.get_type_name() for op in model.get_ops())
    return dict(Counter(kind for kind in kinds if kind not in NO_WORK).most_common())


def _executed(op: Any) -> str | None:
    if op.get_type_name() != "ExecutionNode":
        return None
    kind = op.get_rt_info()["layerType"]
    return str(kind.astype(str) if hasattr(kind, "astype") else kind)


def _precision(compiled: Any) -> str:
    """Return the precision that the plugin says it uses, whatever was asked for."""
    said = compiled.get_property("INFERENCE_PRECISION_HINT")
    name = str(said.to_string() if hasattr(said, "to_string") else said)
    return READ_BACK.get(name, name)


def preload(artifact: Artifact) -> None:
    """See `strop.runtimes.session.preload`."""
    del artifact
    with contextlib.suppress(ImportError):
        import openvino  # noqa: F401 (that it is loaded is all that is wanted)
