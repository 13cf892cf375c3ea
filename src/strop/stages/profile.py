"""Which operators take the time of a call, of one artifact in its runtime. `strop explain` asks for it."""

from __future__ import annotations

import statistics
from typing import Any

from strop import records
from strop.check import fixed_batch
from strop.examples import Examples
from strop.job import Job, Made
from strop.machine import machine_facts
from strop.measure.batches import random_batches
from strop.measure.worker import bind
from strop.runtimes.cuda import CudaOptions
from strop.runtimes.profiling import Profiled, make_calls, profile
from strop.runtimes.session import open_session

MOST_BATCHES = 8
ROUNDS = 3  # of calls that are not profiled: a neighbour's burst spoils one of them
OUTSIDE = "outside of operators"


def operators(job: Job, *, calls: int, batch_size: int) -> Made:
    """Operators' times in `operators.parquet`.

    Profiling slows calls down, small operators most: shares are meant. So the time of calls that are not profiled is
    in the details (`call_s`), beside that of profiled ones and the share of it that operators took (`coverage`).
    """
    affinity = bind(job.device.get("affinity"))
    source = job.artifact("source")
    examples = Examples.read(job.artifact("model").file("examples/test.parquet"))
    size = fixed_batch(source.manifest.inputs) or batch_size
    rows = random_batches(examples, size, seed=0)
    feeds = [examples.batch(batch) for batch in rows[:: -(-len(rows) // MOST_BATCHES)]]
    threads, device, cuda = job.threads, job.device["kind"], CudaOptions.from_settings(job.device)
    session = open_session(source, threads=threads, device=device, cuda=cuda)
    prepared = [session.prepare(batch) for batch in feeds]
    make_calls(prepared, max(calls, len(prepared)))
    call_s = statistics.median(make_calls(prepared, calls) / calls for _ in range(ROUNDS))
    facts = session.facts
    del session, prepared  # the profiled one should have the memory to itself
    profiled = profile(source, feeds, calls, threads=threads, device=device, cuda=cuda)
    records.write("operators", table(profiled, calls), job.folder / "operators.parquet")
    spent = sum(item.seconds for item in profiled.operators)
    details = {
        "calls": calls,
        "batch_size": size,
        "call_s": call_s,
        "profiled_call_s": profiled.wall_s / calls,
        "coverage": spent / profiled.wall_s,
        "facts": facts,
        "cpus": len(affinity),
        "instruction_sets": machine_facts()["instruction_sets"],
    }
    return Made(details=details)


def table(profiled: Profiled, calls: int) -> list[dict[str, Any]]:
    """Return operators as rows, the costliest first, and what no operator took as one more.

    Operators side by side may take more than the call: then nothing is outside, and shares are of their sum.
    """
    spent = sum(item.seconds for item in profiled.operators)
    whole = max(spent, profiled.wall_s)
    rows = [
        {
            "operator": item.operator,
            "name": item.name,
            "kernel": item.kernel,
            "shapes": item.shapes,
            "calls": item.count / calls,
            "seconds_per_call": item.seconds / calls,
            "share": item.seconds / whole,
        }
        for item in sorted(profiled.operators, key=lambda item: -item.seconds)
    ]
    rest = whole - spent
    return [*rows, {"operator": OUTSIDE, "calls": 1.0, "seconds_per_call": rest / calls, "share": rest / whole}]
