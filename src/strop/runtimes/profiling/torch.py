"""torch's profiler, for all of torch's formats: each operator's own time, without that of operators that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strop.artifact import Artifact
from strop.runtimes.profiling import Operator, Profiled, make_calls
from strop.runtimes.session import Feeds
from strop.runtimes.torch import open_session

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions


def profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, *, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    """See `strop.runtimes.profiling.profile`; on CUDA the time is the device's.

    torch.compile compiles anew here, so that its kernels report themselves. In a package of AOTInductor they do not:
    their time is outside of operators.
    """
    import torch
    import torch._inductor.config

    if artifact.manifest.format != "torch_compile":
        return _profile(artifact, feeds, calls, threads, device, cuda)
    torch._dynamo.reset()  # else it calls what was compiled before, whose kernels are silent
    with torch._inductor.config.patch({"cpp.enable_kernel_profile": True}):
        return _profile(artifact, feeds, calls, threads, device, cuda)


def _profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    import torch
    from torch.profiler import ProfilerActivity

    session = open_session(artifact, threads=threads, device=device, cuda=cuda)
    prepared = [session.prepare(batch) for batch in feeds]
    make_calls(prepared, max(calls, len(prepared)))
    activities = [ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        wall_s = make_calls(prepared, calls)
    field = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    operators = [Operator(event.key, getattr(event, field) / 1e6, event.count) for event in profiler.key_averages()]
    return Profiled([item for item in operators if item.seconds > 0], wall_s, session.facts)
