"""What a session is, and which runtime opens which format."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from strop.artifact import Artifact, Tensor
from strop.errors import StageFailure

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions

Feeds = dict[str, np.ndarray]
Call = Callable[[], Any]

RUNTIMES = {
    "torch": "strop.runtimes.torch",
    "torch_compile": "strop.runtimes.torch",
    "torch_export": "strop.runtimes.torch",
    "torchscript": "strop.runtimes.torch",
    "aot_inductor": "strop.runtimes.torch",
    "onnx": "strop.runtimes.onnxruntime",
    "ort": "strop.runtimes.onnxruntime",
    "openvino": "strop.runtimes.openvino",
    "tensorrt": "strop.runtimes.tensorrt",
}


class Session(Protocol):
    """An artifact loaded on a device, ready to be called.

    Attributes:
        inputs: what it takes, in order.
        outputs: what it gives, in order.
        facts: what the runtime says of itself after loading: `runtime`, `version`, `threads`, `precision` (the one
            really used: `f32`, `bf16`, `int8`, ...), `providers` where there are such; on CUDA `transfers`,
            `cuda_graph` and what else was chosen.
        stream: CUDA stream of its calls' work (`torch.cuda.Stream`), and its calls are `strop.runtimes.cuda.CudaCall`s;
            None where the work is the host's, or the runtime keeps its stream to itself.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    facts: dict[str, Any]
    stream: Any

    def prepare(self, feeds: Feeds) -> Call:
        """Convert `feeds` to what the runtime takes, and return a call that is complete when it returns.

        The call alone is timed, so it converts nothing; its result goes to `to_numpy` afterwards.
        """
        ...

    def to_numpy(self, raw: Any) -> Feeds:
        """Return a call's result as output name -> array; it may last only until the session's next call."""
        ...

    def compile_seconds(self) -> float | None:
        """Return the time that the runtime has spent compiling since the session was asked for [s].

        Asked after the first calls it includes what they compiled. None: the runtime compiles nothing then, or does not
        say how long it took.
        """
        ...

    def transfer_seconds(self, call: Call) -> dict[str, float] | None:
        """Return `h2d_s` and `d2h_s`: the time of copying a batch to the CUDA device, and its outputs back [s].

        Args:
            call: one of this session's prepared calls; it is made, untimed.

        None: the session is not on such a device.
        """
        ...


def run(session: Session, feeds: Feeds) -> Feeds:
    """Call `session` once on a batch: input name -> array in, output name -> array out."""
    return session.to_numpy(session.prepare(feeds)())


def open_session(artifact: Artifact, *, threads: int, device: str = "cpu", cuda: CudaOptions | None = None) -> Session:
    """Load an artifact.

    Args:
        artifact: a finished artifact of a format in `RUNTIMES`; its files are verified by hash first.
        threads: threads of one call [1].
        device: `cpu` or `cuda`.
        cuda: how calls run on CUDA; None: the settings' defaults. Unused on the CPU.

    Raises:
        StageFailure: the format has no runtime here, or the device was not got (`skipped`), or loading failed.
    """
    format_ = artifact.manifest.format or "?"
    if format_ not in RUNTIMES:
        raise StageFailure("skipped", f"no runtime executes the format '{format_}' on this machine")
    module = importlib.import_module(RUNTIMES[format_])
    session: Session = module.open_session(artifact.verify(), threads=threads, device=device, cuda=cuda)
    return session


def preload(artifact: Artifact) -> None:
    """Import what opening an artifact will need, and start nothing: a process may fork after it.

    What cannot be imported is left for `open_session` to say.
    """
    if artifact.manifest.format in RUNTIMES:
        importlib.import_module(RUNTIMES[artifact.manifest.format]).preload(artifact)
