"""Calls whose work is on a CUDA stream: where their inputs lie, what is copied when, and CUDA graphs. Torch moves data.

Without a device, nothing here runs: the runtimes refuse to open a session first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.errors import StageFailure, one_line
from strop.runtimes.session import Feeds
from strop.settings import Device

if TYPE_CHECKING:
    import torch

    Tensors = dict[str, torch.Tensor]
    Compute = Callable[[Tensors], Tensors]

WARM_CALLS = 3  # before a capture: libraries make their handles and workspaces at the first ones
REPEATS = 20  # of a transfer that is timed apart


@dataclass(frozen=True)
class CudaOptions:
    """How calls run on CUDA; the fields are the settings of `strop.settings.Device` of the same names."""

    transfers: str
    cuda_graph: bool
    own_stream: bool

    @classmethod
    def from_settings(cls, device: Mapping[str, Any]) -> CudaOptions:
        """Return the options among a device's settings; what is not among them has its default."""
        known = {**asdict(Device()), **device}
        return cls(**{item.name: known[item.name] for item in fields(cls)})


class CudaStream:
    """The stream of one session's calls, and what their CUDA graphs share.

    Args:
        options: see `CudaOptions`; without `own_stream` it is the device's default stream.
    """

    def __init__(self, options: CudaOptions) -> None:
        import torch

        self.options = options
        self.stream: Any = torch.cuda.Stream() if options.own_stream else torch.cuda.default_stream()
        # Work on the default stream cannot be captured, so captures have a stream beside it, and one pool of memory.
        self._side: Any = torch.cuda.Stream() if options.cuda_graph else None
        self._pool: Any = torch.cuda.graph_pool_handle() if options.cuda_graph else None

    def capture(self, compute: Compute, inputs: Tensors) -> Compute:
        """Return a replay of `compute` on the very memory of `inputs`, captured after a few calls on a side stream.

        All graphs of a session share memory for what they compute, so a result lasts until the session's next call.
        Source: PyTorch, "CUDA semantics", on CUDA graphs.

        Raises:
            StageFailure: `build_failed`: it cannot be captured, for example since it waits for the device or allocates
                on the host; the reason is named.
        """
        import torch

        graph, reason = torch.cuda.CUDAGraph(), None
        try:
            self._side.wait_stream(self.stream)
            with torch.cuda.stream(self._side):
                for _ in range(WARM_CALLS):
                    compute(inputs)
            self.stream.wait_stream(self._side)
            with torch.cuda.graph(graph, pool=self._pool, stream=self._side):
                try:
                    outputs = compute(inputs)
                except Exception as error:
                    reason = error  # the end of a capture that failed raises an error of its own, which hides this one
                    raise
        except Exception as error:
            raise StageFailure("build_failed", f"CUDA graph: capture fails: {one_line(reason or error)}") from error

        def replay(inputs: Tensors) -> Tensors:
            del inputs  # the graph reads the memory that it was captured with
            graph.replay()
            return outputs

        return replay


class CudaCall:
    """A prepared call. `enqueue` starts its work on the current stream; calling it waits until the work is complete.

    With transfers `apart`, inputs lie on the device from the start and outputs stay there. With transfers `within`,
    inputs lie in pinned memory of the host, the work begins with their copies to the device and ends with the outputs'
    copies into pinned memory. Outputs of a batch have the shapes of its first call.

    Args:
        compute: enqueues the work for inputs on the device, and returns outputs there.
        feeds: the batch.
        cuda: the session's.
    """

    def __init__(self, compute: Compute, feeds: Feeds, cuda: CudaStream) -> None:
        self._cuda = cuda
        self._compute = compute
        self._host = {name: pinned(value) for name, value in feeds.items()}
        self._inputs = {name: on_device(value) for name, value in self._host.items()}
        self._results: Tensors = {}
        self.enqueue: Callable[[], Tensors] = self._first_time

    def __call__(self) -> Tensors:
        """Do the work on the session's stream, and wait for it."""
        import torch

        with torch.cuda.stream(self._cuda.stream):
            outputs = self.enqueue()
        self._cuda.stream.synchronize()
        return outputs

    def _first_time(self) -> Tensors:
        """Capture if that is asked for, and leave to later calls nothing but their work."""
        if self._cuda.options.cuda_graph:
            self._compute = self._cuda.capture(self._compute, self._inputs)
        self.enqueue = self._work_and_copies if self._cuda.options.transfers == "within" else self._work
        return self.enqueue()

    def _work(self) -> Tensors:
        return self._compute(self._inputs)

    def _work_and_copies(self) -> Tensors:
        self._to_device()
        return self._to_host(self._compute(self._inputs))

    def _to_device(self) -> None:
        for name, value in self._host.items():
            self._inputs[name].copy_(value, non_blocking=True)

    def _to_host(self, outputs: Tensors) -> Tensors:
        if not self._results:
            self._results = {name: pinned_like(value) for name, value in outputs.items()}
        for name, value in outputs.items():
            self._results[name].copy_(value, non_blocking=True)
        return self._results

    def transfer_seconds(self) -> dict[str, float]:
        """Return `h2d_s` and `d2h_s`: how long the batch's copies to the device and its outputs' copies back take [s].

        Each is the median of several, between two CUDA events, from and to pinned memory.
        """
        import torch

        self()
        with torch.cuda.stream(self._cuda.stream):
            outputs = self._work()
            self._to_host(outputs)  # the buffers are made before the copies into them are timed
            return {
                "h2d_s": _median_s(self._to_device, self._cuda.stream),
                "d2h_s": _median_s(lambda: self._to_host(outputs), self._cuda.stream),
            }


def _median_s(work: Callable[[], Any], stream: Any) -> float:
    import torch

    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: list[float] = []
    for _ in range(REPEATS):
        before.record(stream)
        work()
        after.record(stream)
        after.synchronize()
        found.append(before.elapsed_time(after) / 1e3)
    return statistics.median(found)


def pinned(value: np.ndarray) -> torch.Tensor:
    """Return a copy of an array in page-locked memory, from which copies to the device need no help of the host."""
    import torch

    return torch.tensor(value).pin_memory()


def pinned_like(value: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor of the same shape and type in page-locked memory."""
    import torch

    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True)


def on_device(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor on the CUDA device; it is complete when this returns."""
    return value.to("cuda")


def device_facts(options: CudaOptions) -> dict[str, Any]:
    """Return what a session says of its device: its name, and how calls run on it."""
    import torch

    return {"cuda_device": torch.cuda.get_device_name(), **asdict(options)}
