"""TensorRT: engines are built and run through its Python API, on a CUDA device only.

Without a device even loading its runtime may take the process with it, so the driver is asked first, in a process of
its own. TensorRT 10 is told to take types from the network alone; TensorRT 11 knows no other way.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.runtimes.cuda import CudaCall, CudaOptions, CudaStream, device_facts
from strop.runtimes.onnxruntime_providers import Shapes
from strop.runtimes.probe import cuda_problem
from strop.runtimes.session import Call, Feeds

# Names of `tensorrt.DataType` -> torch's; TensorRT's own table is of numpy, which lacks bfloat16.
TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class Recipe:
    """How an engine is built.

    Attributes:
        shapes: input -> smallest, usual and largest shape: its optimization profile.
        workspace_bytes: scratch memory that the builder may use [byte].
        tf32: products of float32 may be computed in TensorFloat-32.
        timing: folder of what builders learnt of kernels' times, one file for each device and version.
    """

    shapes: Shapes
    workspace_bytes: int
    tf32: bool
    timing: Path


def build(model: Path, engine: Path, recipe: Recipe) -> dict[str, Any]:
    """Build a strongly typed engine: precision is what the model's own types say (casts, Q/DQ).

    Args:
        model: an ONNX file.
        engine: file to write.
        recipe: see `Recipe`.

    Returns:
        `made_by`, see there, and `layers` of the engine [1].

    Raises:
        StageFailure: `skipped` without a device; `build_failed` if TensorRT cannot parse or build the model.
    """
    trt = _library()
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(strongly_typed(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        errors = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise StageFailure("build_failed", f"TensorRT does not parse it: {one_line(errors)}")
    config = _config(trt, builder, network, recipe)
    made = made_by(trt)
    with _timing_cache(config, recipe.timing / timing_name(made)):
        built = builder.build_serialized_network(network, config)
    if built is None:
        raise StageFailure("build_failed", "TensorRT built no engine; its own words are in the log")
    engine.write_bytes(built)
    loaded = trt.Runtime(logger).deserialize_cuda_engine(built)
    return {"made_by": made, "layers": loaded.num_layers}


def _library() -> Any:
    if reason := cuda_problem():
        raise StageFailure("skipped", f"TensorRT: {reason}")
    import tensorrt

    return tensorrt


def strongly_typed(trt: Any) -> int:
    """Return the flags of a network whose types are its own: TensorRT 11 ignores the flag, a later one may drop it."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _config(trt: Any, builder: Any, network: Any, recipe: Recipe) -> Any:
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe.workspace_bytes)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # so that a profile can name what was fused
    if not recipe.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        name = network.get_input(index).name
        profile.set_shape(name, *recipe.shapes[name])
    config.add_optimization_profile(profile)
    return config


@contextlib.contextmanager
def _timing_cache(config: Any, file: Path) -> Iterator[None]:
    """Let a build know what earlier ones measured, and keep what it measures; one that cannot be read is made anew."""
    cache = config.create_timing_cache(file.read_bytes() if file.is_file() else b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    yield
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_bytes(config.get_timing_cache().serialize())
    temporary.replace(file)  # at once, as another build may read it now


def timing_folder(results: Path) -> Path:
    """Return the folder of timing caches, which all builds share."""
    return results / "caches" / "tensorrt"


def timing_name(made: dict[str, str]) -> str:
    """Return the file of the timing cache for a device and a version, as in `made_by`."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(made.values())) + ".cache"


def made_by(trt: Any) -> dict[str, str]:
    """Return what an engine is good for: this kind of device, and this very version of TensorRT."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return {"device": torch.cuda.get_device_name(), "compute": f"{major}.{minor}", "tensorrt": trt.__version__}


def must_fit(theirs: dict[str, str], ours: dict[str, str]) -> None:
    """Refuse an engine of another version or for another device before it is loaded.

    Raises:
        StageFailure: `build_failed`.
    """
    for name, value in theirs.items():
        if value != ours.get(name):
            text = f"the engine was built for {name} {value}, here is {ours.get(name)}; build engine=tensorrt here"
            raise StageFailure("build_failed", text)


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

    def profile_with(self, profiler: Any) -> None:
        """Report each layer's time to a `tensorrt.IProfiler` from now on."""
        self._context.profiler = profiler

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
        import torch

        outputs = {}
        for tensor in self.outputs:
            shape = tuple(self._context.get_tensor_shape(tensor.name))
            dtype = getattr(torch, TYPES[self._engine.get_tensor_dtype(tensor.name).name])
            outputs[tensor.name] = torch.empty(shape, dtype=dtype, device="cuda")
            self._context.set_tensor_address(tensor.name, outputs[tensor.name].data_ptr())
        return outputs

    def to_numpy(self, raw: dict[str, Any]) -> Feeds:
        """Copy the outputs of a call."""
        import torch

        plain = {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in raw.items()}
        return {name: value.cpu().clone().numpy() for name, value in plain.items()}

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
    must_fit(artifact.manifest.details.get("made_by", {}), made_by(trt))
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
    if cuda_problem():
        return
    with contextlib.suppress(ImportError):
        import tensorrt  # noqa: F401 (that it is loaded is all that is wanted)
