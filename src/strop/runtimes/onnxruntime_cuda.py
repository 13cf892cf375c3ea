"""Calls of ONNX Runtime on CUDA: bound values, copies apart or within, CUDA graphs. It keeps its stream to itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from strop.errors import StageFailure, one_line
from strop.runtimes.cuda import REPEATS, CudaOptions
from strop.runtimes.onnxruntime_providers import CPU_PROVIDER, CUDA_PROVIDER
from strop.runtimes.session import Feeds

NO_GRAPH = "-1"  # of the run option `gpu_graph_id`: neither capture nor replay


class BoundCall:
    """A prepared call on values that lie on the device; it is complete when it returns.

    With transfers `within`, the call begins with copies into these values from the host's (pageable) memory and ends
    with the outputs' copies back. For a CUDA graph the outputs, too, are bound to fixed memory at the first call, and
    the batch has a graph of its own: a graph replays the addresses it was captured with, whatever is bound later.
    Source: ONNX Runtime, "CUDA Execution Provider", on CUDA graphs and `gpu_graph_id`.

    Args:
        session: an `onnxruntime.InferenceSession`.
        names: the outputs.
        arrays: the batch.
        options: see `CudaOptions`; ONNX Runtime always has a stream of its own.
        graph: number of this batch's graph, from 1; no other batch of the session has it.
        device: where values lie; tests have no `cuda`.
    """

    def __init__(
        self, session: Any, names: list[str], arrays: Feeds, options: CudaOptions, graph: int, device: str = "cuda"
    ) -> None:
        import onnxruntime

        self._run = session.run_with_iobinding
        self._arrays = arrays
        self._device = device
        self._within = options.transfers == "within"
        self._values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(value.copy(), device, 0) for name, value in arrays.items()
        }
        self._binding = session.io_binding()
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        for name in names:
            self._binding.bind_output(name, device)
        self._names = names
        self._graph = graph if options.cuda_graph else None
        self._options = _run_options(str(graph)) if options.cuda_graph else None
        self._outputs: list[Any] = []

    def __call__(self) -> Any:
        """Return the binding, or with transfers within the outputs as arrays."""
        if self._graph is not None and not self._outputs:
            self._fix_outputs()
        binding = self._binding
        if self._within:
            self._to_device()
        self._run(binding, self._options)
        binding.synchronize_outputs()
        return binding.copy_outputs_to_cpu() if self._within else binding

    def _fix_outputs(self) -> None:
        """Bind the outputs to memory of the shapes that a call without a graph gives."""
        import onnxruntime

        self._run(self._binding, _run_options(NO_GRAPH))
        self._outputs = [
            onnxruntime.OrtValue.ortvalue_from_shape_and_type(value.shape(), value.element_type(), self._device, 0)
            for value in self._binding.get_outputs()
        ]
        for name, value in zip(self._names, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)
        try:
            self._run(self._binding, self._options)
        except Exception as error:
            raise StageFailure("build_failed", f"CUDA graph: capture fails: {one_line(error)}") from error

    def transfer_seconds(self) -> dict[str, float]:
        """Return `h2d_s` and `d2h_s`, copies to the device and of the outputs back, by the host's clock [s]."""
        self()
        return {"h2d_s": _median_s(self._to_device), "d2h_s": _median_s(self._binding.copy_outputs_to_cpu)}

    def _to_device(self) -> None:
        for name, value in self._arrays.items():
            self._values[name].update_inplace(value)
        self._binding.synchronize_inputs()  # the copies are not on the session's stream


def _median_s(work: Callable[[], Any]) -> float:
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _run_options(graph: str) -> Any:
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", graph)
    return options


def with_graphs(details: dict[str, Any]) -> dict[str, Any]:
    """Return an artifact's details with CUDA graphs switched on in its provider's options.

    Raises:
        StageFailure: `skipped`: the first provider is not CUDA's.
    """
    provider = details.get("providers", [CPU_PROVIDER])[0]
    if provider != CUDA_PROVIDER:
        raise StageFailure("skipped", f"device.cuda_graph: ONNX Runtime captures with {CUDA_PROVIDER}, not {provider}")
    options = details.get("provider_options", {})
    ours = {**options.get(CUDA_PROVIDER, {}), "enable_cuda_graph": "1"}
    return {**details, "provider_options": {**options, CUDA_PROVIDER: ours}}
