"""Sessions of PyTorch: formats `torch`, `torch_compile`, `torch_export`, `torchscript` and `aot_inductor`."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.runtimes.cuda import CudaCall, CudaOptions, CudaStream, device_facts
from strop.runtimes.modules import (
    SPEC,
    in_float32,
    load_module,
    make_module,
    named_outputs,
    precision_of,
    read_spec,
    save_module,
)
from strop.runtimes.session import Call, Feeds

if TYPE_CHECKING:
    import torch

__all__ = ["load_module", "open_session", "save_module"]

COMPILE_FILE = "compile.json"
CACHE_FILE = "cache.zip"  # Inductor's folder: programs, kernels and their shared libraries
SCRIPT_FILE = "model.ts"
PACKAGE_FILE = "model.pt2"


class TorchSession:
    """A callable on tensors; its calls end when their outputs exist.

    Args:
        run: takes tensors by name.
        artifact: what was loaded.
        facts: see `Session`.
        names: names of the outputs; None: as `run` names them.
        cuda: stream and options on CUDA; None: on the CPU.
        before: what torch had compiled in this process before; None: nothing is compiled while it is called.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        artifact: Artifact,
        facts: dict[str, Any],
        names: list[str] | None,
        cuda: CudaStream | None,
        before: Compiled | None,
    ) -> None:
        self.inputs: tuple[Tensor, ...] = artifact.manifest.inputs
        self.outputs: tuple[Tensor, ...] = artifact.manifest.outputs
        self._facts = facts
        self.stream: Any = cuda.stream if cuda else None
        self._run = run
        self._names = names
        self._cuda = cuda
        self._before = before

    @property
    def facts(self) -> dict[str, Any]:
        """See `Session`; `graphs` that torch.compile has made for it so far, one for each shape that needs its own."""
        if self._before is None:
            return self._facts
        return {**self._facts, "graphs": _compiled_so_far().graphs - self._before.graphs}

    def prepare(self, feeds: Feeds) -> Call:
        """Make tensors of `feeds`; the call materializes each output, and refuses what is no tensor."""
        import torch

        run, names = self._run, self._names

        def compute(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            with torch.inference_mode():
                return named_outputs(run(**inputs), names)

        if self._cuda is not None:
            return CudaCall(compute, feeds, self._cuda)
        return partial(compute, {name: torch.tensor(value) for name, value in feeds.items()})

    def compile_seconds(self) -> float | None:
        """See `Session`: what torch.compile measures of itself; at any new shape it may compile again."""
        return None if self._before is None else _compiled_so_far().seconds - self._before.seconds

    def transfer_seconds(self, call: Call) -> dict[str, float] | None:
        """See `Session`."""
        return call.transfer_seconds() if isinstance(call, CudaCall) else None

    def to_numpy(self, raw: dict[str, torch.Tensor]) -> Feeds:
        """Return the outputs of a call as arrays of their own; bfloat16, which numpy lacks, as float32."""
        import torch

        plain = {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in raw.items()}
        return {name: value.detach().cpu().clone().numpy() for name, value in plain.items()}


def open_session(
    artifact: Artifact, *, threads: int, device: str = "cpu", cuda: CudaOptions | None = None
) -> TorchSession:
    """Load an artifact of one of this module's formats.

    Args:
        artifact: see the module's text for its files.
        threads: threads of one operator, for the whole process [1].
        device: `cpu` or `cuda`.
        cuda: see `strop.runtimes.session.open_session`.

    Raises:
        StageFailure: `skipped` without the device; `build_failed` if it does not load.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise StageFailure("skipped", "this PyTorch finds no CUDA device")
    torch.set_num_threads(threads)
    manifest = artifact.manifest
    before = _compiled_so_far() if manifest.format == "torch_compile" else None
    opened = {"torch": _open_eager, "torch_compile": _open_compiled}.get(manifest.format or "", _open_file)
    try:
        run, precision, spec = opened(artifact, device)
    except StageFailure:
        raise
    except Exception as error:
        raise StageFailure("build_failed", f"{manifest.format}: does not load: {one_line(error)}") from error
    facts = {"runtime": "torch", "version": torch.__version__, "threads": threads, "precision": precision}
    if device == "cpu":
        return TorchSession(run, artifact, facts, spec["outputs"], None, before)
    options = cuda or CudaOptions.from_settings({})
    stream = CudaStream(options)
    return TorchSession(run, artifact, facts | device_facts(options), spec["outputs"], stream, before)


Opened = tuple[Callable[..., Any], str, dict[str, Any]]


def _open_eager(artifact: Artifact, device: str) -> Opened:
    spec = read_spec(artifact)
    module = load_module(artifact).to(device)
    return in_float32(module, spec), precision_of(module, spec), spec


def _open_compiled(artifact: Artifact, device: str) -> Opened:
    how = json.loads(artifact.file(COMPILE_FILE).read_text(encoding="utf-8"))
    _fill_cache(artifact)
    run, precision, spec = _open_eager(artifact, device)
    return compiled(run, how), precision, spec


def compiled(run: Callable[..., Any], how: dict[str, Any]) -> Callable[..., Any]:
    """Return `torch.compile` of `run` as `compile.json` says.

    Raises:
        StageFailure: when it is called: `build_failed`, at more shapes than torch compiles for. By default it then
            computes eagerly without a word, and the row would carry the compiler's name.
    """
    import torch
    from torch._dynamo.exc import FailOnRecompileLimitHit

    torch._dynamo.config.fail_on_recompile_limit_hit = True
    program = torch.compile(run, backend=how["backend"], mode=how["mode"], dynamic=how["dynamic"])

    def call(**inputs: torch.Tensor) -> Any:
        try:
            return program(**inputs)
        except FailOnRecompileLimitHit as error:
            limit = torch._dynamo.config.recompile_limit
            mend = "" if how["dynamic"] else "; compile.dynamic=true compiles once for all"
            told = f"torch.compile has compiled for {limit} shapes, its limit, and here is another{mend}"
            raise StageFailure("build_failed", told) from error

    return call


class Compiled(NamedTuple):
    """What torch.compile has done in this process, by its own count: time, with that of reading caches, and graphs."""

    seconds: float
    graphs: int


def _compiled_so_far() -> Compiled:
    from torch._dynamo.utils import calculate_time_spent, counters

    return Compiled(float(calculate_time_spent()["total_wall_time"]), counters["stats"]["unique_graphs"])


def _fill_cache(artifact: Artifact) -> None:
    """Lay what was compiled when the artifact was made where torch looks for it."""
    compiler_cache()
    if any(file.path == CACHE_FILE for file in artifact.manifest.files):
        _unpack(artifact.file(CACHE_FILE))


@lru_cache
def _unpack(file: Path) -> None:
    folder = Path(compiler_cache())
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if not (folder / name).exists():  # names are of the content, and a library may be in use
                archive.extract(name, folder)


@lru_cache
def compiler_cache() -> str:
    """Give this process a folder of its own for what torch compiles; it goes when the process ends."""
    folder = os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="strop-inductor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _open_file(artifact: Artifact, device: str) -> Opened:
    """A program that was compiled ahead takes its inputs by place and returns a tuple; the manifest has the names."""
    import torch

    manifest = artifact.manifest
    spec = {**SPEC, "outputs": [tensor.name for tensor in manifest.outputs]}
    if manifest.format == "torchscript":
        program: Any = torch.jit.load(str(artifact.file(SCRIPT_FILE)), map_location=device)
        if manifest.details.get("optimize_for_inference"):
            program = torch.jit.optimize_for_inference(program)
    elif manifest.format == "torch_export":
        program = torch.export.load(artifact.file(PACKAGE_FILE)).module()
    else:
        program = torch._inductor.aoti_load_package(str(artifact.file(PACKAGE_FILE)))
    return _by_place(program, manifest), str(manifest.details.get("precision", "f32")), spec


def _by_place(program: Callable[..., Any], manifest: Manifest) -> Callable[..., Any]:
    names = [tensor.name for tensor in manifest.inputs]

    def run(**inputs: torch.Tensor) -> Any:
        return program(*(inputs[name] for name in names))

    return run


def preload(artifact: Artifact) -> None:
    """See `strop.runtimes.session.preload`. A module of ours is made without memory, as that imports what it is of."""
    import torch

    if artifact.manifest.format not in ("torch", "torch_compile"):
        return
    if artifact.manifest.format == "torch_compile":
        import torch._inductor.compile_fx

        _fill_cache(artifact)  # one for all forks: what the first of them compiled, the others read
    spec = read_spec(artifact)
    if spec["quantize"]:
        with contextlib.suppress(ImportError):
            import torchao  # noqa: F401 (that it is loaded is all that is wanted)
    if spec["factory"].startswith("strop."):
        with contextlib.suppress(StageFailure), torch.device("meta"):
            make_module(artifact.folder, spec)
