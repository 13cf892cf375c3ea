"""Sessions of ONNX Runtime, for the formats `onnx` (a model as exported) and `ort` (optimized for one machine)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.graph import graph_precision, load_graph, side_cars
from strop.runtimes.cuda import CudaOptions
from strop.runtimes.onnxruntime_cuda import BoundCall, with_graphs
from strop.runtimes.onnxruntime_providers import CPU_PROVIDER, ON_CUDA, RECORD, given, nodes_by_provider
from strop.runtimes.session import Call, Feeds

MODEL_ENDINGS = (".onnx", ".ort")
ERRORS_ONLY = 3


class OnnxRuntimeSession:
    """A session whose calls use IO binding: inputs are placed on the device once, before the timed call.

    Texts cannot be bound: a model that takes or gives them is called with arrays. On CUDA see `BoundCall`.
    """

    stream = None  # its own, which it waits for before a call returns

    def __init__(self, session: Any, manifest: Manifest, facts: dict[str, Any], cuda: CudaOptions | None) -> None:
        self.inputs: tuple[Tensor, ...] = manifest.inputs
        self.outputs: tuple[Tensor, ...] = manifest.outputs
        self.facts = facts
        self._session = session
        self._names = [output.name for output in session.get_outputs()]
        self._dtypes = {value.name: value.type for value in session.get_inputs()}
        self._texts = "tensor(string)" in {value.type for value in [*session.get_inputs(), *session.get_outputs()]}
        self._cuda = cuda
        self._graphs = itertools.count(1)

    def prepare(self, feeds: Feeds) -> Call:
        """Bind `feeds`; inputs that the graph does not have (an export may drop them) are left out."""
        import onnxruntime

        for name in self._dtypes:
            if name not in feeds:
                raise StageFailure("wrong_output", f"input '{name}' of the model is not among {sorted(feeds)}")
        arrays = {name: _contiguous(feeds[name]) for name in self._dtypes}
        if self._texts:
            return partial(self._session.run, self._names, arrays)
        if self._cuda is not None:
            return BoundCall(self._session, self._names, arrays, self._cuda, next(self._graphs))
        binding = self._session.io_binding()
        for name, value in arrays.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value, "cpu", 0))
        for name in self._names:
            binding.bind_output(name, "cpu")
        run = self._session.run_with_iobinding

        def call() -> Any:
            run(binding)
            return binding

        return call

    def to_numpy(self, raw: Any) -> Feeds:
        """Copy the outputs of the last call of one prepared batch."""
        values = raw if isinstance(raw, list) else raw.copy_outputs_to_cpu()
        return {name: _plain(np.array(value)) for name, value in zip(self._names, values, strict=True)}

    def end_profile(self) -> Path:
        """End taking the times of operators, and return the file that they are in."""
        return Path(self._session.end_profiling())

    def compile_seconds(self) -> None:
        """See `Session`: ONNX Runtime optimizes a graph while it loads it, and does not say how long that took."""

    def transfer_seconds(self, call: Call) -> dict[str, float] | None:
        """See `Session`."""
        return call.transfer_seconds() if isinstance(call, BoundCall) else None


def _plain(value: np.ndarray) -> np.ndarray:
    return value.astype(str) if value.dtype.kind == "O" else value


def _contiguous(value: np.ndarray) -> np.ndarray:
    # ONNX Runtime takes text as objects; everything else by its memory.
    return value.astype(object) if value.dtype.kind in "US" else np.ascontiguousarray(value)


def open_session(
    artifact: Artifact,
    *,
    threads: int,
    device: str = "cpu",
    cuda: CudaOptions | None = None,
    profile_to: Path | None = None,
) -> OnnxRuntimeSession:
    """Load an artifact of format `onnx` or `ort` with the providers in its details (`providers`; default: the CPU).

    Args:
        artifact: its model is loaded by path, so that external weights are found beside it.
        threads: threads inside of an operator [1]; operators run one after the other.
        device: unused here: the providers were chosen when the artifact was built.
        cuda: see `strop.runtimes.session.open_session`; `own_stream` is unused, as ONNX Runtime always has its own.
        profile_to: start of the path of a file with the times of operators; None: none are taken.

    Raises:
        StageFailure: `skipped` if the session did not get its provider, or cannot capture CUDA graphs on it;
            `build_failed` if the model does not load.
    """
    del device
    manifest, details = artifact.manifest, artifact.manifest.details
    path = model_path(artifact)
    options = None
    if details.get("providers", [CPU_PROVIDER])[0] in ON_CUDA:
        options = cuda or CudaOptions.from_settings({})
        details = with_graphs(details) if options.cuda_graph else details
    level = details.get("level", "disabled" if manifest.format == "ort" else "all")
    session = create(path, threads, level, details, profile_to=profile_to)
    facts = _facts(session, manifest, path, threads)
    if options is not None:
        facts |= {"transfers": options.transfers, "cuda_graph": options.cuda_graph}
    return OnnxRuntimeSession(session, manifest, facts, options)


def model_path(artifact: Artifact) -> Path:
    """Return the artifact's one model file (`*.onnx` or `*.ort`), verified."""
    names = [file.path for file in artifact.manifest.files if file.path.endswith(MODEL_ENDINGS)]
    if len(names) != 1:
        raise StageFailure("build_failed", f"{artifact.folder}: holds {len(names)} .onnx or .ort files, expected one")
    return artifact.file(names[0])


def session_options(threads: int, level: str, details: dict[str, Any]) -> Any:
    """Return session options: quiet, and optimized up to `level`.

    Args:
        threads: threads of one call [1]: they share the work of one operator after the other or, if the details'
            `execution` is `parallel`, each does operators of its own.
        level: a value of the setting `engine.graph_optimization`.
        details: an artifact's; without its `spinning` threads that have no work sleep at once.
    """
    import onnxruntime as ort

    parallel = details.get("execution") == "parallel"
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1 if parallel else threads
    options.inter_op_num_threads = threads if parallel else 1
    options.execution_mode = getattr(ort.ExecutionMode, "ORT_PARALLEL" if parallel else "ORT_SEQUENTIAL")
    if not details.get("spinning", True):
        for pool in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    options.log_severity_level = ERRORS_ONLY
    levels = {"disabled": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{levels[level]}")
    return options


def create(
    path: Path,
    threads: int,
    level: str,
    details: dict[str, Any],
    save_to: Path | None = None,
    profile_to: Path | None = None,
) -> Any:
    """Return an `onnxruntime.InferenceSession` that really runs on the first provider that `details` names.

    Args:
        path: the model.
        threads: see `session_options`.
        level: see `session_options`.
        details: an artifact's: `providers` (default: the CPU's) with `provider_options` (provider -> dict), and what
            `session_options` reads.
        save_to: file for the model as the session has optimized it, in the format that its ending says.
        profile_to: see `open_session`.

    Raises:
        StageFailure: see `open_session`.
    """
    import onnxruntime as ort

    providers = list(details.get("providers", [CPU_PROVIDER]))

    def make(fallback: bool) -> Any:
        options = session_options(threads, level, details)
        if save_to is not None:
            _save(options, path, save_to)
        if profile_to is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile_to)
        if not fallback:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if providers[0] != CPU_PROVIDER:
            options.add_session_config_entry(RECORD, "1")
        return ort.InferenceSession(str(path), options, providers=given(details, threads))

    if providers[0] == CPU_PROVIDER:
        return _loaded(lambda: make(fallback=True), path)
    if providers[0] not in ort.get_available_providers():
        raise StageFailure("skipped", f"this ONNX Runtime was built without {providers[0]}")
    return _on_device(make, path, providers[0])


def _save(options: Any, path: Path, target: Path) -> None:
    options.optimized_model_filepath = str(target)
    if target.suffix == ".ort":
        options.add_session_config_entry("session.save_model_format", "ORT")
    elif side_cars(load_graph(path)):  # without this the saved model would name files beside `path`
        name = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(name, f"{target.name}.data")


def _loaded(make: Callable[[], Any], path: Path) -> Any:
    try:
        return make()
    except Exception as error:
        raise StageFailure("build_failed", f"{path.name}: ONNX Runtime does not load it: {one_line(error)}") from error


def _on_device(make: Callable[[bool], Any], path: Path, wanted: str) -> Any:
    """Without a device, ONNX Runtime says nothing and uses the CPU: so that is forbidden, and the session is asked.

    Only nodes that compute shapes, which ONNX Runtime leaves to the CPU on purpose, lift the ban.
    """
    try:
        session = make(False)
    except Exception as error:
        if "assigned to the default CPU EP" not in str(error):
            raise StageFailure("skipped", f"{wanted} gives no session: {one_line(error, 200)}") from error
        session = _loaded(lambda: make(True), path)
    if session.get_providers()[0] != wanted:
        raise StageFailure("skipped", f"a session asked for {wanted} got {', '.join(session.get_providers())}")
    return session


def _facts(session: Any, manifest: Manifest, path: Path, threads: int) -> dict[str, Any]:
    import onnxruntime as ort

    found = {
        "runtime": "onnxruntime",
        "version": ort.__version__,
        "threads": threads,
        "precision": manifest.details.get("precision") or graph_precision(load_graph(path)),
        "providers": session.get_providers(),
    }
    nodes = nodes_by_provider(session)
    return found | ({"nodes_by_provider": nodes} if nodes else {})


def preload(artifact: Artifact) -> None:
    """See `strop.runtimes.session.preload`."""
    del artifact
    with contextlib.suppress(ImportError):
        import onnxruntime  # noqa: F401 (that it is loaded is all that is wanted)
