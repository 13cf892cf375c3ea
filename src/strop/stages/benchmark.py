"""Measure a variant against its reference, in turns. Names of the scenarios are MLPerf Inference's."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from strop import records
from strop.check import fixed_batch, join
from strop.compare import Outputs, compare, problem_of
from strop.errors import StageFailure, StropError
from strop.examples import Examples
from strop.job import Job, Made
from strop.measure.conditions import Watch, noise
from strop.measure.paired import Measurement, Rules, measure
from strop.measure.worker import WorkerArm

MOST_BATCHES = 32  # distinct batches: fewer would flatter a variant that remembers, more cost warm-up
QUANTILES = {"latency_p50_s": 0.5, "latency_p90_s": 0.9, "latency_p99_s": 0.99}


def single_stream(
    job: Job,
    *,
    batch_size: int,
    instances: int,
    min_time_s: float,
    max_time_s: float,
    min_calls: int,
    precision: float,
    seed: int,
) -> Made:
    """One query after the other, each of random examples: latency."""
    rules = Rules(instances, min_time_s, max_time_s, min_calls, precision, int(job.id, 16))
    return _benchmark(job, random_batches(_test(job), batch_size, seed), rules)


def offline(
    job: Job,
    *,
    batch_size: int,
    instances: int,
    min_time_s: float,
    max_time_s: float,
    min_calls: int,
    precision: float,
    seed: int,
) -> Made:
    """All examples at hand, in batches of near lengths, as whoever has them all would cut them: throughput."""
    rules = Rules(instances, min_time_s, max_time_s, min_calls, precision, int(job.id, 16))
    return _benchmark(job, sorted_batches(_test(job), batch_size, seed), rules)


def _test(job: Job) -> Examples:
    return Examples.read(job.artifact("model").file("examples/test.parquet"))


def random_batches(examples: Examples, batch_size: int, seed: int) -> list[list[int]]:
    """Return up to 32 batches of random rows, in order of size.

    Where examples are fewer than a batch, they come again in it.
    """
    rng = np.random.default_rng(seed)
    count = max(1, min(MOST_BATCHES, len(examples) // batch_size))
    rows = rng.permutation(len(examples))
    return _by_size(np.resize(rows, (count, batch_size)), examples)


def sorted_batches(examples: Examples, batch_size: int, seed: int) -> list[list[int]]:
    """Return up to 32 batches of near lengths, in order of size, spread over all lengths."""
    order = np.argsort(examples.lengths(), kind="stable")
    full = max(1, len(order) // batch_size)
    batches = np.resize(order, (full, batch_size))
    picked = np.random.default_rng(seed).permutation(full)[:MOST_BATCHES]
    return _by_size(batches[picked], examples)


def _by_size(batches: np.ndarray, examples: Examples) -> list[list[int]]:
    """Return batches, int64 (batches, rows), ordered by the size of the padded batch."""
    ordered: list[list[int]] = batches[np.argsort(examples.lengths()[batches].max(axis=1), kind="stable")].tolist()
    return ordered


def _benchmark(job: Job, rows: list[list[int]], rules: Rules) -> Made:
    for role in ("source", "reference"):
        fixed = fixed_batch(job.artifact(role).manifest.inputs)
        if fixed is not None and fixed != len(rows[0]):
            raise StropError(f"the model takes batches of {fixed} only; set benchmark.batch_size={fixed}")
    examples = job.artifact("model").file("examples/test.parquet")
    roles = {"reference": "reference", "variant": "source"}
    arms = {
        name: WorkerArm(name, job.artifact(role).folder, examples, rows, job.device) for name, role in roles.items()
    }
    watch, spots = Watch(), _SpotChecks(arms, len(rows), rules.seed)
    try:
        done = measure(arms, len(rows), rules, time.perf_counter, spots.check)
        facts = {name: arm.facts() for name, arm in arms.items()}
    finally:
        for arm in arms.values():
            arm.close()
    spots.judge(float(job.context["min_cosine"]))
    _write_samples(job, done, len(rows[0]))
    conditions = watch.conditions(sum(used["cpu_s"] for arm in arms.values() for used in arm.usage))
    details = _numbers(done, len(rows[0])) | {
        "peak_memory_bytes": int(max(used["peak_memory_bytes"] for used in arms["variant"].usage)),
        "runtime": f"{facts['variant']['runtime']} {facts['variant']['version']}",
        "precision": facts["variant"]["precision"],
        "facts": facts,
        "conditions": conditions,
    }
    reason = noise(conditions, done.ratio.half_width, rules.precision, job.threads)
    details |= {"noisy": reason is not None, "noisy_reason": reason}
    if not done.steady:
        details |= {
            "status": "unstable",
            "status_reason": "calls were still getting faster when the warm-up had to end",
        }
    return Made(details=details)


class _SpotChecks:
    """Outputs during the timed run, one batch an instance, held against the reference's at the end."""

    def __init__(self, arms: dict[str, WorkerArm], batches: int, seed: int) -> None:
        self._arms = arms
        self._batches = batches
        self._rng = np.random.default_rng(seed)
        self._outputs: dict[str, list[Outputs]] = {name: [] for name in arms}

    def check(self, done: Measurement) -> None:
        """Ask both arms for the same batch, and show how far the measurement is."""
        batch = int(self._rng.integers(self._batches))
        for name, arm in self._arms.items():
            self._outputs[name].append(arm.answer(batch))
        ratio = done.ratio
        print(
            f"instance {len(done.instances)}: {done.calls} calls, speedup {ratio.ratio:.3f} "
            f"[{ratio.low:.3f}, {ratio.high:.3f}] {done.stopped_by}"
        )

    def judge(self, min_cosine: float) -> None:
        """Raise a StageFailure if the variant's outputs were wrong."""
        for difference in compare(join(self._outputs["reference"]), join(self._outputs["variant"])):
            if reason := problem_of(difference, min_cosine):
                raise StageFailure("wrong_output", f"while it was timed: {reason}")


def _write_samples(job: Job, done: Measurement, items: int) -> None:
    began = min(sample["start_s"] for sample in done.samples)
    rows = [
        {
            **{name: sample[name] for name in ("instance", "block", "arm", "latency_s")},
            "run_id": job.id,
            "start_s": sample["start_s"] - began,
            "items": items,
        }
        for sample in done.samples
    ]
    records.write("samples", rows, job.folder / "samples.parquet")


def _numbers(done: Measurement, items: int) -> dict[str, Any]:
    latency_s = {
        arm: np.asarray([sample["latency_s"] for sample in done.samples if sample["arm"] == arm])
        for arm in ("reference", "variant")
    }
    ours = latency_s["variant"]
    numbers = {name: float(np.quantile(ours, q)) for name, q in QUANTILES.items()}
    openings = done.openings["variant"]
    return {
        **numbers,
        "latency_mean_s": float(ours.mean()),
        "reference_latency_p50_s": float(np.median(latency_s["reference"])),
        "throughput_per_s": float(items * len(ours) / ours.sum()),
        "speedup": done.ratio.ratio,
        "speedup_low": done.ratio.low,
        "speedup_high": done.ratio.high,
        "calls": done.calls,
        "instances": len(done.instances),
        "stopped_by": done.stopped_by,
        **{name: float(np.median([opening[name] for opening in openings])) for name in ("load_s", "first_call_s")},
    }
