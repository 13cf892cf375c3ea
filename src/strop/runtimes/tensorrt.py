"""TensorRT: engines are built and run through its Python API, on a CUDA device only.

Without a device even loading its runtime may take the process with it, so the driver is asked first.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.runtimes.cuda import CudaCall, CudaOptions, CudaStream, device_facts
from strop.runtimes.probe import cuda_problem
from strop.runtimes.session import Call, Feeds

Shapes = dict[str, tuple[list[int], list[int], list[int]]]


def build(model: Path, engine: Path, shapes: Shapes, workspace_bytes: int) -> None:
    """Build a strongly typed engine: precision is what the model's own types say (casts, Q/DQ).

    Args:
        model: an ONNX file.
        engine: file to write.
        shapes: input -> smallest, usual and largest shape.
        workspace_bytes: scratch memory that the builder may use [byte].

    Raises:
        StageFailure: `skipped` without a device; `build_failed` if TensorRT cannot parse or build the model.
    """
    trt = _library()
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(_strongly_typed(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        errors = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise StageFailure("build_failed", f"TensorRT does not parse it: {one_line(errors)}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_bytes)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        name = network.get_input(index).name
        profile.set_shape(name, *shapes[name])
    config.add_optimization_profile(profile)
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise StageFailure("build_failed", "TensorRT built no engine; its own words are in the log")
    engine.write_bytes(built)


def _library() -> Any:
    if reason := cuda_problem():
        raise StageFailure("skipped", f"TensorRT: {reason}")
    import tensorrt

    return tensorrt


def _strongly_typed(trt: Any) -> int:
    """Return the network's flag: TensorRT 11 knows typed networks only and has dropped the flag for them."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


class TensorRtSession:
    """An execution context on torch's CUDA memory, and on a stream of its own, as TensorRT wants it."""

    def __init__(self, engine: Any, manifest: Manifest, facts: dict[str, Any], cuda: CudaStream) -> None:
        self.inputs: tuple[Tensor, ...] = manifest.inputs
        self.outputs: tuple[Tensor, ...] = manifest.outputs
        self.facts = facts
        self.stream: Any = cuda.stream
        self._cuda = cuda
        self._engine = engine
        self._context = engine.create_execution_context()

    def prepare(self, feeds: Feeds) -> Call:
        """Copy `feeds` to the device; the call computes on them and waits."""
        return CudaCall(self._compute, feeds, self._cuda)

    def _compute(self, inputs: dict[str, Any]) -> dict[str, Any]:
        import torch

        for name, tensor in inputs.items():
            self._context.set_input_shape(name, tuple(tensor.shape))
            self._context.set_tensor_address(name, tensor.data_ptr())
        outputs = self._allocate()
        self._context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        return outputs

    def _allocate(self) -> dict[str, Any]:
        """Return memory for the outputs at the shapes that the inputs now set give."""
        import tensorrt as trt
        import torch

        outputs = {}
        for tensor in self.outputs:
            shape = tuple(self._context.get_tensor_shape(tensor.name))
            dtype = getattr(torch, trt.nptype(self._engine.get_tensor_dtype(tensor.name)).__name__)
            outputs[tensor.name] = torch.empty(shape, dtype=dtype, device="cuda")
            self._context.set_tensor_address(tensor.name, outputs[tensor.name].data_ptr())
        return outputs

    def to_numpy(self, raw: dict[str, Any]) -> Feeds:
        """Copy the outputs of a call."""
        return {name: value.cpu().clone().numpy() for name, value in raw.items()}

    def compile_seconds(self) -> None:
        """See `Session`: an engine was compiled when it was built."""

    def transfer_seconds(self, call: Any) -> dict[str, float]:
        """See `Session`."""
        found: dict[str, float] = call.transfer_seconds()
        return found


def open_session(
    artifact: Artifact, *, threads: int, device: str = "cuda", cuda: CudaOptions | None = None
) -> TensorRtSession:
    """Load an engine.

    Args:
        artifact: holds `model.engine`, built on this very kind of device with this version of TensorRT.
        threads: recorded only: the device computes.
        device: `cuda`.
        cuda: see `strop.runtimes.session.open_session`; TensorRT always has its own stream.

    Raises:
        StageFailure: `skipped` without a device; `build_failed` if the engine does not load.
    """
    trt = _library()
    if device != "cuda":
        raise StageFailure("skipped", f"TensorRT runs on CUDA, not on {device}")
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
    engine = runtime.deserialize_cuda_engine(artifact.file("model.engine").read_bytes())
    if engine is None:
        raise StageFailure("build_failed", "TensorRT does not load the engine; its own words are in the log")
    precision = artifact.manifest.details.get("precision", "f32")
    options = replace(cuda or CudaOptions.from_settings({}), own_stream=True)
    facts = {"runtime": "tensorrt", "version": trt.__version__, "threads": threads, "precision": precision}
    return TensorRtSession(engine, artifact.manifest, facts | device_facts(options), CudaStream(options))


def preload(artifact: Artifact) -> None:
    """See `strop.runtimes.session.preload`."""
    del artifact
    with contextlib.suppress(ImportError):
        import tensorrt  # noqa: F401 (that it is loaded is all that is wanted)
