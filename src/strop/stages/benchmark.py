"""Measure a variant against its reference, in turns. Names of the scenarios are MLPerf Inference's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from resource import RUSAGE_CHILDREN
from typing import Any

from strop import records
from strop.artifact import MANIFEST, read_manifest
from strop.check import fixed_batch
from strop.errors import StageFailure, StropError
from strop.examples import Examples
from strop.job import Job, Made
from strop.measure.arm import WorkerArm
from strop.measure.batches import random_batches, sorted_batches, unseen_twins
from strop.measure.conditions import Usage, Watch, noise
from strop.measure.decision import decided
from strop.measure.guards import MemoryGuard, OutputGuard
from strop.measure.numbers import of_comparison, of_facts, of_latency, of_openings, of_spending
from strop.measure.paired import ARMS, Arm, Block, Measurement, Observer, Rules, measure
from strop.stats.paired import Ratio

SAME_FOR_BOTH = ("affinity", "threads")


def single_stream(
    job: Job,
    *,
    batch_size: int,
    instances: int,
    min_time_s: float,
    max_time_s: float,
    min_calls: int,
    max_calls: int,
    precision: float,
    seed: int,
) -> Made:
    """One query after the other, each of random examples: latency."""
    rules = Rules(instances, min_time_s, max_time_s, min_calls, max_calls, precision, int(job.id, 16))
    return _benchmark(job, random_batches(_test(job), batch_size, seed), rules)


def offline(
    job: Job,
    *,
    batch_size: int,
    instances: int,
    min_time_s: float,
    max_time_s: float,
    min_calls: int,
    max_calls: int,
    precision: float,
    seed: int,
) -> Made:
    """All examples at hand, in batches of near lengths, as whoever has them all would cut them: throughput."""
    rules = Rules(instances, min_time_s, max_time_s, min_calls, max_calls, precision, int(job.id, 16))
    return _benchmark(job, sorted_batches(_test(job), batch_size, seed), rules)


def _test(job: Job) -> Examples:
    return Examples.read(job.artifact("model").file("examples/test.parquet"))


def _benchmark(job: Job, rows: list[list[int]], rules: Rules) -> Made:
    for role in ("source", "reference"):
        fixed = fixed_batch(job.artifact(role).manifest.inputs)
        if fixed is not None and fixed != len(rows[0]):
            raise StropError(f"the model takes batches of {fixed} only; set benchmark.batch_size={fixed}")
    # A CUDA graph is captured at a batch's first call, which takes long, and replays nothing that could remember.
    twins, unseen = ([], []) if job.device.get("cuda_graph") else unseen_twins(rows, _test(job))
    arms = _arms(job, rows + unseen)
    watch, observer = Watch(), _Watcher(job, rules, twins)
    try:
        done = measure(arms, len(rows), rules, time.perf_counter, observer)
        observer.memory.judge()
        facts = {name: arm.facts() for name, arm in arms.items()}
    finally:
        for arm in arms.values():
            arm.close()
    _check_even(facts)
    items = len(rows[0])
    _write_samples(job, done, items)
    details = of_latency(done, items) | of_comparison(done) | of_openings(done.openings["variant"])
    details |= of_spending(arms["variant"].reports, items) | of_facts(facts)
    details |= _conditions(job, watch, arms, done, rules, len(facts["variant"]["affinity"])) | {"device": job.device}
    if restless := [name for name in ARMS if not done.steady[name]]:
        reason = f"{' and '.join(restless)}: no steady state within the limit of the warm-up"
        details |= {"status": "unstable", "status_reason": reason}
    return Made(details=details)


def _arms(job: Job, rows: list[list[int]]) -> dict[str, WorkerArm]:
    examples = job.artifact("model").file("examples/test.parquet")
    roles = {"reference": "reference", "variant": "source"}
    return {
        name: WorkerArm(name, job.artifact(role).folder, examples, rows, job.device) for name, role in roles.items()
    }


def _conditions(
    job: Job, watch: Watch, arms: Mapping[str, WorkerArm], done: Measurement, rules: Rules, cpus: int
) -> dict[str, Any]:
    timed = [report["timed"] for arm in arms.values() for report in arm.reports]
    found = watch.conditions([Usage.now(RUSAGE_CHILDREN)], timed)  # the workers are this process's only children
    reason = noise(found, done.ratio.half_width, rules.precision, job.threads, cpus)
    return {"conditions": found, "noisy": reason is not None, "noisy_reason": reason}


class _Watcher(Observer):
    """Guards what is measured, shows how far it is, and knows when it is decided."""

    def __init__(self, job: Job, rules: Rules, twins: list[tuple[int, int]]) -> None:
        self._limits: Mapping[str, float] = job.context.get("limits", {})
        self._rivals = rivals(job) if self._limits else []
        self._outputs = OutputGuard(float(job.context["min_cosine"]))
        self.memory = MemoryGuard(twins, rules.seed)

    def after_pair(self, batch: int, blocks: Mapping[str, Block]) -> None:
        """Look at the outputs of both."""
        self._outputs.look(batch, blocks)

    def after_instance(self, arms: Mapping[str, Arm], done: Measurement) -> None:
        """Judge what was seen, and show how far the measurement is."""
        self.memory.look(arms, done.call_s)
        self._outputs.judge()
        ratio = done.ratio
        print(
            f"instance {len(done.ratios)}: {done.calls} calls, speedup {ratio.ratio:.3f} "
            f"[{ratio.low:.3f}, {ratio.high:.3f}]"
        )

    def decided(self, done: Measurement) -> bool:
        """See `strop.measure.decision.decided`."""
        return decided(done, self._limits, self._rivals)


def rivals(job: Job) -> list[Ratio]:
    """Return the speedups of other variants that were measured in the same way against the same reference."""
    ours, theirs = job.upstream["source"], job.upstream["reference"]
    asked = (job.option, job.settings, theirs, job.device)
    found = []
    for path in sorted(job.folder.parent.glob(f"*/{MANIFEST}")):
        other = read_manifest(path)
        answered = (other.option, other.settings, other.upstream.get("reference"), other.details.get("device"))
        if other.status == "ok" and answered == asked and other.upstream["source"] not in (ours, theirs):
            found.append(Ratio(*(other.details[name] for name in ("speedup", "speedup_low", "speedup_high"))))
    return found


def _check_even(facts: dict[str, dict[str, Any]]) -> None:
    """Raise a StageFailure unless both arms had the same CPUs and threads."""
    for name in SAME_FOR_BOTH:
        theirs, ours = (facts[arm].get(name) for arm in ARMS)
        if theirs != ours:
            raise StageFailure("crashed", f"the arms were not even: {name} {theirs} and {ours}")


def _write_samples(job: Job, done: Measurement, items: int) -> None:
    columns: dict[str, Any] = done.samples()
    columns |= {"start_s": columns["start_s"] - columns["start_s"].min(), "run_id": job.id, "items": items}
    records.write("samples", records.from_columns("samples", columns), job.folder / "samples.parquet")
