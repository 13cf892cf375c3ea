"""Tables: schemas, versions, damage."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strop import records
from strop.errors import StropError


def test_table_reads_back_with_its_schema(tmp_path):
    path = tmp_path / "deep" / "summary.parquet"
    records.write("summary", [{"study": "s", "variant": "v", "speedup": 2.5, "feasible": True}], path)
    found = records.read("summary", path)
    assert found.schema.names == records.SUMMARY.names
    assert found.to_pylist()[0]["speedup"] == 2.5
    assert found.to_pylist()[0]["error"] is None


def test_unknown_column_is_an_error():
    with pytest.raises(KeyError, match="spedup"):
        records.table("summary", [{"spedup": 1.0}])


def test_newer_version_is_refused_and_older_columns_are_null(tmp_path):
    path = tmp_path / "summary.parquet"
    table = pa.table({"study": ["s"], "variant": ["v"]})
    pq.write_table(table.replace_schema_metadata({"strop_table": "summary", "strop_version": "0"}), path)
    assert records.read("summary", path)["speedup"].null_count == 1
    pq.write_table(table.replace_schema_metadata({"strop_table": "summary", "strop_version": "99"}), path)
    with pytest.raises(StropError, match="update strop"):
        records.read("summary", path)
    pq.write_table(table.replace_schema_metadata({"strop_table": "samples", "strop_version": "1"}), path)
    with pytest.raises(StropError, match="holds the table 'samples'"):
        records.read("summary", path)


def test_a_table_of_version_1_is_read_with_nulls_for_what_it_lacks(tmp_path):
    path = tmp_path / "samples.parquet"
    old = pa.table({"run_id": ["r"], "instance": pa.array([0], pa.int32()), "latency_s": [0.25]})
    pq.write_table(old.replace_schema_metadata({"strop_table": "samples", "strop_version": "1"}), path)
    found = records.read("samples", path).to_pylist()[0]
    assert (found["latency_s"], found["batch"]) == (0.25, None)
    assert records.VERSION == 3


@pytest.mark.parametrize("content", [b"", b"PAR1", b"nonsense" * 100])
def test_damaged_file_is_one_line(tmp_path, content):
    path = tmp_path / "samples.parquet"
    path.write_bytes(content)
    with pytest.raises(StropError, match="delete it and run the study again"):
        records.read("samples", path)
    with pytest.raises(StropError, match="run the study first"):
        records.read("samples", tmp_path / "none.parquet")


def test_interface_of_the_summary():
    """DESIGN names these columns; others read them."""
    wanted = """study variant variant_id run_id model prune export optimize quantize compile engine format device
    scenario batch_size status error latency_p50_s latency_p90_s latency_p99_s throughput_per_s speedup speedup_low
    speedup_high metric quality quality_drop quality_drop_high fidelity size_bytes peak_memory_bytes build_s
    load_s first_call_s noisy feasible pareto recommended mlflow_run_id

    latency_p999_s latency_p50_calls_needed latency_p90_calls_needed latency_p99_calls_needed latency_p999_calls_needed
    reference_latency_p50_s compile_s processes block_calls block_s switch_s overhead_s sd_process sd_session sd_pair
    load_memory_bytes running_memory_bytes gpu_memory_bytes energy_per_item_j energy_reason affinity
    limits_verdict control_low control_high tie_group warnings"""
    assert set(wanted.split()) <= set(records.SUMMARY.names)
    assert records.SAMPLES.names == [
        "run_id",
        "instance",
        "block",
        "arm",
        "start_s",
        "latency_s",
        "device_s",
        "items",
        "batch",
    ]
