"""TensorRT's layer times; written against its API, never run without a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strop.artifact import Artifact
from strop.runtimes.profiling import Operator, Profiled, make_calls
from strop.runtimes.session import Feeds
from strop.runtimes.tensorrt import open_session

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions


def profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, *, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    """See `strop.runtimes.profiling.profile`; a layer's name says what was fused into it."""
    session = open_session(artifact, threads=threads, device=device, cuda=cuda)  # without a device it ends here
    import tensorrt

    class LayerTimes(tensorrt.IProfiler):  # type: ignore[misc] # the library has no types here
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            entry = self.found[layer_name]
            entry[0] += ms / 1e3
            entry[1] += 1

    prepared = [session.prepare(batch) for batch in feeds]
    make_calls(prepared, max(calls, len(prepared)))
    times = LayerTimes()
    session.profile_with(times)
    wall_s = make_calls(prepared, calls)
    operators = [Operator(name, seconds, int(count), name) for name, (seconds, count) in times.found.items()]
    return Profiled(operators, wall_s, session.facts)
