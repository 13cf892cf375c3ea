"""Sessions of PyTorch, for the formats `torch`, `torch_compile`, `torchscript` and `aot_inductor`."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from strop.artifact import Artifact, Manifest, Tensor
from strop.errors import StageFailure, one_line
from strop.runtimes.modules import SPEC, in_float32, load_module, named_outputs, precision_of, read_spec, save_module
from strop.runtimes.session import Call, Feeds

if TYPE_CHECKING:
    import torch

__all__ = ["load_module", "open_session", "save_module"]

COMPILE_FILE = "compile.json"
CACHE_FILE = "cache.bin"
SCRIPT_FILE = "model.ts"
PACKAGE_FILE = "model.pt2"


class TorchSession:
    """A callable on tensors. Inputs are on the device before the call; the call ends when its outputs exist."""

    def __init__(
        self, run: Callable[..., Any], artifact: Artifact, facts: dict[str, Any], spec: dict[str, Any], device: str
    ) -> None:
        self.inputs: tuple[Tensor, ...] = artifact.manifest.inputs
        self.outputs: tuple[Tensor, ...] = artifact.manifest.outputs
        self.facts = facts
        self._run = run
        self._names: list[str] | None = spec["outputs"]
        self._device = device

    def prepare(self, feeds: Feeds) -> Call:
        """Make tensors of `feeds`; the call materializes each output, and refuses what is no tensor."""
        import torch

        tensors = {name: torch.tensor(value, device=self._device) for name, value in feeds.items()}
        run, names = self._run, self._names

        def call() -> dict[str, torch.Tensor]:
            with torch.inference_mode():
                return named_outputs(run(**tensors), names)

        def call_and_wait() -> dict[str, torch.Tensor]:
            outputs = call()
            torch.cuda.synchronize()
            return outputs

        return call if self._device == "cpu" else call_and_wait

    def to_numpy(self, raw: dict[str, torch.Tensor]) -> Feeds:
        """Return the outputs of a call as arrays of their own; bfloat16, which numpy lacks, as float32."""
        import torch

        plain = {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in raw.items()}
        return {name: value.detach().cpu().clone().numpy() for name, value in plain.items()}


def open_session(artifact: Artifact, *, threads: int, device: str = "cpu") -> TorchSession:
    """Load an artifact of one of this module's formats.

    Args:
        artifact: see the module's text for its files.
        threads: threads of one operator, for the whole process [1].
        device: `cpu` or `cuda`.

    Raises:
        StageFailure: `skipped` without the device; `build_failed` if it does not load.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise StageFailure("skipped", "this PyTorch finds no CUDA device")
    torch.set_num_threads(threads)
    manifest = artifact.manifest
    opened = {"torch": _open_eager, "torch_compile": _open_compiled}.get(manifest.format or "", _open_file)
    try:
        run, precision, spec = opened(artifact, device)
    except StageFailure:
        raise
    except Exception as error:
        raise StageFailure("build_failed", f"{manifest.format}: does not load: {one_line(error)}") from error
    facts = {"runtime": "torch", "version": torch.__version__, "threads": threads, "precision": precision}
    return TorchSession(run, artifact, facts, spec, device)


Opened = tuple[Callable[..., Any], str, dict[str, Any]]


def _open_eager(artifact: Artifact, device: str) -> Opened:
    spec = read_spec(artifact)
    module = load_module(artifact).to(device)
    return in_float32(module, spec), precision_of(module, spec), spec


def _open_compiled(artifact: Artifact, device: str) -> Opened:
    import torch

    how = json.loads(artifact.file(COMPILE_FILE).read_text(encoding="utf-8"))
    compiler_cache()
    if any(file.path == CACHE_FILE for file in artifact.manifest.files):
        torch.compiler.load_cache_artifacts(artifact.file(CACHE_FILE).read_bytes())
    run, precision, spec = _open_eager(artifact, device)
    return compiled(run, how), precision, spec


def compiled(run: Callable[..., Any], how: dict[str, Any]) -> Callable[..., Any]:
    """Return `torch.compile` of `run` as `compile.json` says; more shapes than it may compile for are an error."""
    import torch

    # By default it falls back to eager without a word, and the row would carry the compiler's name.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(run, backend=how["backend"], mode=how["mode"], dynamic=how["dynamic"])


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
    else:
        program = torch._inductor.aoti_load_package(str(artifact.file(PACKAGE_FILE)))
    return _by_place(program, manifest), str(manifest.details.get("precision", "f32")), spec


def _by_place(program: Callable[..., Any], manifest: Manifest) -> Callable[..., Any]:
    names = [tensor.name for tensor in manifest.inputs]

    def run(**inputs: torch.Tensor) -> Any:
        return program(*(inputs[name] for name in names))

    return run
