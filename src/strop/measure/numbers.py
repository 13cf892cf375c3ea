"""The numbers of a comparison, as a benchmark's manifest and the study's summary carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from strop.columns import QUANTILES
from strop.measure.paired import ARMS, Measurement, Opening
from strop.stats.tails import quantile

SPENT = ("load_bytes", "running_bytes", "peak_bytes", "gpu_bytes")


def of_latency(done: Measurement, items: int) -> dict[str, Any]:
    """Return the variant's latencies [s] and what it does in a second.

    Args:
        done: the comparison.
        items: examples in a call [1].
    """
    series = done.latencies("variant")
    tails = {name: quantile(series, q) for name, q in QUANTILES.items()}
    ours = np.concatenate(series)
    return {
        **{name: tail.value_s for name, tail in tails.items()},
        **{f"{name.removesuffix('_s')}_calls_needed": tail.calls_needed for name, tail in tails.items()},
        "latency_mean_s": float(ours.mean()),
        "reference_latency_p50_s": float(np.median(np.concatenate(done.latencies("reference")))),
        "throughput_per_s": float(items * len(ours) / ours.sum()),
    }


def of_comparison(done: Measurement) -> dict[str, Any]:
    """Return the speedup, and how it was found."""
    levels = done.levels
    return {
        "speedup": done.ratio.ratio,
        "speedup_low": done.ratio.low,
        "speedup_high": done.ratio.high,
        "calls": done.calls,
        "instances": len(done.ratios),
        "processes": done.processes[-1] + 1,
        "stopped_by": done.stopped_by,
        "block_calls": round(done.calls / (len(done.blocks_s) / 2)),
        "block_s": float(np.median(done.blocks_s)),
        "switch_s": float(np.median(done.switches_s)),
        "sd_process": levels.process,
        "sd_session": levels.session,
        "sd_pair": levels.pair,
    }


def of_openings(openings: Iterable[Opening]) -> dict[str, float | None]:
    """Return the usual time of loading and of the first call, and the longest of compiling in both [s].

    Later sessions may find in a compiler's cache what the first one compiled.
    """
    found = list(openings)
    compiling = [opening.compile_s for opening in found if opening.compile_s is not None]
    return {
        "load_s": float(np.median([opening.load_s for opening in found])),
        "first_call_s": float(np.median([opening.first_call_s for opening in found])),
        "compile_s": max(compiling, default=None),
    }


def of_spending(reports: Sequence[Mapping[str, Any]], items: int) -> dict[str, Any]:
    """Return the variant's peak memory over its empty self [byte] and its energy for one example [J].

    Args:
        reports: what each of its sessions says at its end (`strop.measure.worker.Worker.end`).
        items: examples in a call [1].
    """
    memory = {name: [report[name] for report in reports if report[name] is not None] for name in SPENT}
    metered = [report for report in reports if report["energy_j"] is not None]
    calls = sum(report["energy_calls"] for report in metered)
    return {
        **{name.replace("_bytes", "_memory_bytes"): max(found, default=None) for name, found in memory.items()},
        "energy_per_item_j": sum(report["energy_j"] for report in metered) / (calls * items) if calls else None,
        "energy_reason": reports[0]["energy_reason"],
    }


def of_facts(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the variant's session says of itself, and the facts of both as they are."""
    ours = facts["variant"]
    return {
        "runtime": f"{ours['runtime']} {ours['version']}",
        "precision": ours["precision"],
        "affinity": ",".join(str(cpu) for cpu in ours["affinity"]),
        "overhead_s": max(facts[name]["overhead_s"] for name in ARMS),
        "facts": {name: dict(found) for name, found in facts.items()},
    }
