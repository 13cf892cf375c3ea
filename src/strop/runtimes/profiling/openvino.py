"""OpenVINO's performance counters: each executed node with the kernel, and so the precision, that it was given."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strop.artifact import Artifact
from strop.runtimes.openvino import open_session
from strop.runtimes.profiling import Operator, Profiled, make_calls
from strop.runtimes.session import Feeds

if TYPE_CHECKING:
    from strop.runtimes.cuda import CudaOptions

EXECUTED = "EXECUTED"


def profile(
    artifact: Artifact, feeds: Sequence[Feeds], calls: int, *, threads: int, device: str, cuda: CudaOptions | None
) -> Profiled:
    """See `strop.runtimes.profiling.profile`; the counters are of one call each, so they are read after each call."""
    session = open_session(artifact, threads=threads, device=device, cuda=cuda, profile=True)
    prepared = [session.prepare(batch) for batch in feeds]
    make_calls(prepared, max(calls, len(prepared)))
    found: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    wall_s = 0.0
    for call in itertools.islice(itertools.cycle(prepared), calls):
        began = time.perf_counter()
        request = call()
        wall_s += time.perf_counter() - began
        for node in request.profiling_info:
            if node.status.name == EXECUTED:
                entry = found[node.node_type, node.node_name, node.exec_type]
                entry[0] += node.real_time.total_seconds()
                entry[1] += 1
    operators = [
        Operator(kind, seconds, int(count), name, kernel) for (kind, name, kernel), (seconds, count) in found.items()
    ]
    return Profiled(operators, wall_s, session.facts)
