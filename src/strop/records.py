"""Tables that others read: their columns, types and units, with a version.

`DESIGN`: SI base units, the unit in every name. A table of an unknown version is refused; old versions are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strop.errors import StropError

VERSION = 3

SAMPLES = pa.schema(
    [
        ("run_id", pa.string()),
        ("instance", pa.int32()),
        ("block", pa.int32()),
        ("arm", pa.string()),  # `reference` or `variant`
        ("start_s", pa.float64()),  # since the run's start
        ("latency_s", pa.float64()),
        ("device_s", pa.float64()),  # of it on a CUDA device, between events; null elsewhere
        ("items", pa.int32()),  # examples in the call
        ("batch", pa.int32()),  # which prepared batch was called
    ]
)

PREDICTIONS = pa.schema(
    [
        ("example_id", pa.string()),
        ("label", pa.int64()),
        ("prediction", pa.int64()),
        ("score", pa.float64()),  # the metric's value for this example, 0 or 1 for accuracy
    ]
)

VARIANTS = pa.schema(
    [
        ("study", pa.string()),
        ("variant", pa.string()),
        ("variant_id", pa.string()),
        ("model", pa.string()),
        ("dataset", pa.string()),
        ("prune", pa.string()),
        ("export", pa.string()),
        ("optimize", pa.string()),
        ("quantize", pa.string()),
        ("compile", pa.string()),
        ("engine", pa.string()),
        ("overrides", pa.string()),  # the combination as Hydra overrides
        ("format", pa.string()),
        ("chain", pa.string()),  # steps in order, `stage/id` joined by spaces
        ("status", pa.string()),  # `planned` or `skipped`
        ("reason", pa.string()),
    ]
)

SUMMARY = pa.schema(
    [
        ("study", pa.string()),
        ("variant", pa.string()),
        ("variant_id", pa.string()),
        ("run_id", pa.string()),
        ("is_reference", pa.bool_()),
        ("model", pa.string()),
        ("dataset", pa.string()),
        ("prune", pa.string()),
        ("export", pa.string()),
        ("optimize", pa.string()),
        ("quantize", pa.string()),
        ("compile", pa.string()),
        ("engine", pa.string()),
        ("overrides", pa.string()),
        ("format", pa.string()),
        ("runtime", pa.string()),
        ("precision", pa.string()),  # precision that the runtime says it really uses
        ("device", pa.string()),
        ("threads", pa.int32()),
        ("scenario", pa.string()),
        ("batch_size", pa.int32()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("warnings", pa.string()),  # what the audits of the chain's artifacts found, a line each
        ("log", pa.string()),
        ("repeat", pa.string()),
        ("latency_mean_s", pa.float64()),
        ("latency_p50_s", pa.float64()),
        ("latency_p90_s", pa.float64()),
        ("latency_p99_s", pa.float64()),
        ("latency_p999_s", pa.float64()),
        ("latency_p50_calls_needed", pa.int64()),  # calls still needed for the quantile; 0: it is there
        ("latency_p90_calls_needed", pa.int64()),
        ("latency_p99_calls_needed", pa.int64()),
        ("latency_p999_calls_needed", pa.int64()),
        ("reference_latency_p50_s", pa.float64()),  # in the same run
        ("throughput_per_s", pa.float64()),
        ("speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("calls", pa.int64()),
        ("instances", pa.int32()),
        ("processes", pa.int32()),  # fresh processes of each arm
        ("block_calls", pa.int32()),
        ("block_s", pa.float64()),
        ("switch_s", pa.float64()),  # from one arm to the other
        ("overhead_s", pa.float64()),  # what strop adds to a call
        ("sd_process", pa.float64()),  # of the log ratio [1], between processes
        ("sd_session", pa.float64()),  # between sessions of a process
        ("sd_pair", pa.float64()),  # between pairs of blocks of a session
        ("affinity", pa.string()),  # CPUs of the workers, `0,1`
        ("stopped_by", pa.string()),  # `precision`, `decision` or `time`
        ("metric", pa.string()),
        ("quality", pa.float64()),
        ("quality_drop", pa.float64()),
        ("quality_drop_low", pa.float64()),
        ("quality_drop_high", pa.float64()),
        ("fidelity", pa.float64()),  # share of test examples whose prediction is the reference's
        ("examples", pa.int64()),
        ("size_bytes", pa.int64()),
        ("peak_memory_bytes", pa.int64()),  # over the worker's empty self, load included
        ("load_memory_bytes", pa.int64()),
        ("running_memory_bytes", pa.int64()),
        ("gpu_memory_bytes", pa.int64()),
        ("energy_per_item_j", pa.float64()),
        ("energy_reason", pa.string()),  # why there is no energy
        ("build_s", pa.float64()),
        ("load_s", pa.float64()),
        ("first_call_s", pa.float64()),
        ("compile_s", pa.float64()),  # of loading and first call; null where the runtime compiles nothing
        ("noisy", pa.bool_()),
        ("noisy_reason", pa.string()),
        ("limits_verdict", pa.string()),  # `pass`, `fail` or `undecided`
        ("feasible", pa.bool_()),
        ("infeasible_reason", pa.string()),
        ("pareto", pa.bool_()),
        ("control_low", pa.float64()),  # of the speedup of the reference against itself, under the row's load
        ("control_high", pa.float64()),
        ("tie_group", pa.int32()),  # of the feasible rows ranked together, 1 is the best
        ("recommended", pa.bool_()),
        ("artifact", pa.string()),  # folder to ship, below results/
        ("mlflow_run_id", pa.string()),
    ]
)

OPERATORS = pa.schema(
    [
        ("operator", pa.string()),  # its type, as the runtime calls it
        ("name", pa.string()),  # of the node, where the runtime tells
        ("kernel", pa.string()),  # provider, or kind and precision of the kernel, where the runtime tells
        ("shapes", pa.string()),  # of its inputs with their types in the last call, where the runtime tells
        ("calls", pa.float64()),  # how often it is executed in one call of the model, in the mean
        ("seconds_per_call", pa.float64()),  # its own time in one call of the model while it is profiled, in the mean
        ("share", pa.float64()),  # of the time of a profiled call [1]; of all rows they add up to 1
    ]
)

SCHEMAS = {
    "samples": SAMPLES,
    "predictions": PREDICTIONS,
    "variants": VARIANTS,
    "summary": SUMMARY,
    "operators": OPERATORS,
}


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table of schema `name`; a missing key is null, an unknown one is an error (KeyError)."""
    schema = SCHEMAS[name]
    unknown = {key for row in rows for key in row} - set(schema.names)
    if unknown:
        raise KeyError(f"columns {sorted(unknown)} are not in the schema '{name}'")
    full = [{key: row.get(key) for key in schema.names} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


def from_columns(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table of schema `name`.

    Args:
        name: of the schema.
        columns: vectors of one length, or single values that all rows have; a missing column is null.

    Raises:
        KeyError: a column is not in the schema.
    """
    schema = SCHEMAS[name]
    if unknown := columns.keys() - set(schema.names):
        raise KeyError(f"columns {sorted(unknown)} are not in the schema '{name}'")
    rows = max(len(value) for value in columns.values() if hasattr(value, "dtype"))

    def whole(field: pa.Field) -> pa.Array:
        value = columns.get(field.name)
        return pa.array(value, field.type) if hasattr(value, "dtype") else pa.repeat(pa.scalar(value, field.type), rows)

    return pa.Table.from_arrays([whole(field) for field in schema], schema=schema)


def write(name: str, rows: list[dict[str, Any]] | pa.Table, path: Path) -> None:
    """Write a table of schema `name` by rename, with name and version in its metadata."""
    data = rows if isinstance(rows, pa.Table) else table(name, rows)
    data = data.cast(SCHEMAS[name]).replace_schema_metadata({"strop_table": name, "strop_version": str(VERSION)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(data, temporary)
    temporary.replace(path)


def read(name: str, path: Path) -> pa.Table:
    """Read a table of schema `name`; columns that an older version lacks are null.

    Raises:
        StropError: the file is missing, damaged, of another table, or of a newer version.
    """
    try:
        data = pq.read_table(path)
    except FileNotFoundError:
        raise StropError(f"{path}: not there; run the study first") from None
    except (OSError, pa.ArrowException) as error:
        raise StropError(f"{path}: not a readable Parquet file ({error}); delete it and run the study again") from None
    metadata = data.schema.metadata or {}
    found, version = metadata.get(b"strop_table", b"?").decode(), int(metadata.get(b"strop_version", b"0"))
    if found != name:
        raise StropError(f"{path}: holds the table '{found}', not '{name}'")
    if version > VERSION:
        raise StropError(f"{path}: version {version} of '{name}', this strop reads up to {VERSION}; update strop")
    rows = data.num_rows
    for column in SCHEMAS[name]:
        if column.name not in data.column_names:
            data = data.append_column(column, pa.nulls(rows, column.type))
    return data.select(SCHEMAS[name].names)
