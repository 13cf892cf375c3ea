"""From manifests, predictions and plan to the study's tables: one row a run, and the decision over all rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from strop import records
from strop.artifact import MANIFEST, Manifest, read_manifest
from strop.columns import QUANTILES
from strop.decide import Evidence, decide
from strop.errors import StropError
from strop.ids import digest
from strop.options import TRANSFORMS
from strop.stats.quality import QualityDrop, examples_needed, quality_drop
from strop.stats.tails import judge

FROM_RUN = (
    *("variant", "variant_id", "run_id", "is_reference", "model", "dataset"),
    *TRANSFORMS,
    *("overrides", "format", "device", "threads", "scenario", "batch_size"),
)
FROM_BENCHMARK = (
    *("runtime", "precision", "latency_mean_s", "latency_p50_s", "latency_p90_s", "latency_p99_s", "latency_p999_s"),
    *("latency_p50_calls_needed", "latency_p90_calls_needed", "latency_p99_calls_needed", "latency_p999_calls_needed"),
    *("reference_latency_p50_s", "throughput_per_s", "speedup", "speedup_low", "speedup_high", "calls", "instances"),
    *("processes", "block_calls", "block_s", "switch_s", "overhead_s", "sd_process", "sd_session", "sd_pair"),
    *("affinity", "stopped_by", "load_s", "first_call_s", "compile_s", "peak_memory_bytes", "load_memory_bytes"),
    *("running_memory_bytes", "gpu_memory_bytes", "energy_per_item_j", "energy_reason", "noisy", "noisy_reason"),
)
# Steps whose time is no part of building a variant: everyone needs the model, optimized or not.
NOT_BUILT = frozenset({"model", "dataset"})
# What a model artifact holds for other stages; it ships weights and model.json.
NOT_SHIPPED = ("examples/", "probes.npz")


def aggregate(plan: dict[str, Any], results: Path) -> None:
    """Write `variants.parquet` and `summary.parquet` of a plan's study.

    Args:
        plan: as `strop.plan` makes it.
        results: folder of all results.

    Raises:
        StropError: a limit, the objective or the tie breaker is no column, or a file of the results is damaged.
    """
    study = plan["study"]
    folder = results / "studies" / study["name"]
    variants = [_variant_row(variant, study["name"]) for variant in plan["variants"]]
    rows = [run_row(run, results, study["name"]) for run in plan["runs"]]
    evidence = {
        run["run_id"]: evidence_of(run, row, study["limits"], results)
        for run, row in zip(plan["runs"], rows, strict=True)
    }
    decided = decide(rows, study["limits"], study["objective"], study["tie_breaker"], evidence)
    records.write("variants", variants, folder / "variants.parquet")
    records.write("summary", decided, folder / "summary.parquet")


def _variant_row(variant: dict[str, Any], study: str) -> dict[str, Any]:
    row = {name: variant.get(name) for name in records.VARIANTS.names}
    return {**row, "study": study, "chain": " ".join(variant["chain"])}


def run_row(run: dict[str, Any], results: Path, study: str) -> dict[str, Any]:
    """Return a run's row of the summary, without the decision's columns.

    It reads what is there: a step without a manifest makes the row `blocked`. A row that is not ok carries status,
    error, log and repeat of the step that failed first, and the numbers of the steps that did not fail.

    Raises:
        StropError: a manifest or a table of predictions is damaged.
    """
    chain = [(key, _manifest(results, key)) for key in run["chain"]]
    evaluate, benchmark = _manifest(results, run["evaluate"]), _manifest(results, run["benchmark"])
    row: dict[str, Any] = {"study": study, **{name: run.get(name) for name in FROM_RUN}}
    row |= _state([*chain, (run["evaluate"], evaluate), (run["benchmark"], benchmark)])
    row["warnings"] = "\n".join(_warnings([manifest for _, manifest in chain if manifest is not None])) or None
    built = [manifest for _, manifest in chain if manifest is not None and manifest.status == "ok"]
    if len(built) == len(chain):
        row |= _built(run, built)
    if benchmark is not None:
        row |= {name: _finite(benchmark.details.get(name)) for name in FROM_BENCHMARK}
    if evaluate is not None and evaluate.status == "ok":
        row |= {name: _finite(evaluate.details.get(name)) for name in ("metric", "quality", "examples")}
        row |= _compared(run, results, row["quality"])
    track = _manifest(results, run["track"])
    return row | {"mlflow_run_id": track.details.get("mlflow_run_id") if track else None}


def _warnings(chain: list[Manifest]) -> list[str]:
    """Return what the audits of a chain's artifacts warn of, each once."""
    found = [warning for manifest in chain for warning in manifest.details.get("audit", {}).get("warnings", [])]
    return list(dict.fromkeys(found))


def _manifest(results: Path, key: str) -> Manifest | None:
    return read_manifest(results / key) if (results / key / MANIFEST).is_file() else None


def _state(steps: list[tuple[str, Manifest | None]]) -> dict[str, Any]:
    """Return status, error, log and repeat of the first step that is not ok, or of the one that it waits for."""
    for key, manifest in steps:
        if manifest is None:
            return {"status": "blocked", "error": f"{key} was not run"}
        if manifest.status != "ok":
            root = manifest.details.get("root") if manifest.status == "blocked" else None
            status, error = (root["status"], root["error"]) if root else (manifest.status, manifest.error)
            return {"status": status, "error": error, "log": manifest.log, "repeat": manifest.repeat}
    return {"status": "ok"}


def _built(run: dict[str, Any], chain: list[Manifest]) -> dict[str, Any]:
    last = chain[-1]
    left_out = NOT_SHIPPED if last.stage == "model" else ()
    return {
        "artifact": run["chain"][-1],
        "size_bytes": sum(file.bytes for file in last.files if not file.path.startswith(left_out)),
        "build_s": math.fsum(manifest.seconds for manifest in chain if manifest.stage not in NOT_BUILT),
    }


def _finite(value: Any) -> Any:
    """Return `value`, or None for a float that is not finite: Parquet's readers and MLflow disagree on those."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _compared(run: dict[str, Any], results: Path, quality: float | None) -> dict[str, Any]:
    """Return fidelity and, if there is a quality, its drop with interval; nothing if the reference has none."""
    reference = _manifest(results, run["reference_evaluate"])
    if reference is None or reference.status != "ok":
        return {}
    if run["evaluate"] == run["reference_evaluate"]:
        exact = {} if quality is None else dict.fromkeys(("quality_drop", "quality_drop_low", "quality_drop_high"), 0.0)
        return {"fidelity": 1.0, **exact}
    theirs, ours = _paired_predictions(run, results)
    row: dict[str, Any] = {"fidelity": fidelity(theirs, ours)}
    found = None if quality is None else _drop(run, theirs, ours)
    if found is not None:
        row |= {"quality_drop": found.drop, "quality_drop_low": found.low, "quality_drop_high": found.high}
    return {name: _finite(value) for name, value in row.items()}


Predictions = dict[str, np.ndarray]


def _paired_predictions(run: dict[str, Any], results: Path) -> tuple[Predictions, Predictions]:
    """Return the reference's and the variant's predictions and scores, float64 (examples,), in one order of ids.

    Raises:
        StropError: the two are not of the same examples.
    """
    tables = [
        records.read("predictions", results / key / "predictions.parquet").sort_by("example_id")
        for key in (run["reference_evaluate"], run["evaluate"])
    ]
    if tables[0]["example_id"].to_pylist() != tables[1]["example_id"].to_pylist():
        where = results / run["evaluate"]
        raise StropError(f"{where}: other examples than the reference's {run['reference_evaluate']}; delete both")
    theirs, ours = (
        {name: table[name].cast("float64").to_numpy(zero_copy_only=False) for name in ("prediction", "score")}
        for table in tables
    )
    return theirs, ours


def fidelity(theirs: Predictions, ours: Predictions) -> float | None:
    """Return the share of examples, among those that both predict, with the same prediction [1]."""
    a, b = theirs["prediction"], ours["prediction"]
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.mean(a[both] == b[both])) if both.any() else None


def _drop(run: dict[str, Any], theirs: Predictions, ours: Predictions) -> QualityDrop | None:
    """Return the paired drop over the examples that both score (unlabelled ones have no score)."""
    both = np.isfinite(theirs["score"]) & np.isfinite(ours["score"])
    if not both.any():
        return None
    seed = int(digest([run["reference_evaluate"], run["evaluate"]]), 16)  # equal data, equal interval
    return quality_drop(theirs["score"][both], ours["score"][both], np.random.default_rng(seed))


def evidence_of(run: dict[str, Any], row: dict[str, Any], limits: dict[str, float], results: Path) -> Evidence:
    """Return what a run's calls say of limits on quantiles of latency, and its examples of one on the quality drop.

    Raises:
        StropError: the samples or predictions are missing or damaged.
    """
    if row["status"] != "ok":
        return Evidence()
    tails = {}
    if asked := QUANTILES.keys() & limits.keys():
        instances = _calls(results / run["benchmark"] / "samples.parquet")
        tails = {name: judge(instances, QUANTILES[name], limits[name]) for name in asked}
    low, high = row.get("quality_drop_low"), row.get("quality_drop_high")
    limit = limits.get("quality_drop")
    if limit is None or low is None or high is None or not low <= limit < high:
        return Evidence(tails)
    drop = _drop(run, *_paired_predictions(run, results))
    return Evidence(tails, None if drop is None else examples_needed(drop, limit))


def _calls(path: Path) -> list[np.ndarray]:
    """Return the latencies of the variant's calls [s], in order of time, float64, one vector an instance."""
    samples = records.read("samples", path).sort_by("start_s")
    arm, instance, latency_s = (samples[name].to_numpy() for name in ("arm", "instance", "latency_s"))
    ours = arm == "variant"
    return [latency_s[ours & (instance == at)] for at in np.unique(instance[ours])]
