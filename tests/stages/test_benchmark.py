"""A benchmark times real artifacts against their reference, and keeps what others need to judge it."""

import dataclasses
import os

import numpy as np
import pytest
from support import DEVICE, QUICK, full_settings

from strop import records
from strop.artifact import Manifest, write_manifest
from strop.errors import StageFailure
from strop.examples import Examples
from strop.stages.benchmark import _check_even, rivals
from strop.stats.paired import Ratio


def test_numbers_and_samples_agree(text_bench):
    engine = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch)
    made = text_bench.measured("single_stream", engine, text_bench.torch, text_bench.torch)
    assert made.status == "ok", made.error
    found = made.details
    samples = records.read("samples", text_bench.results / made.key / "samples.parquet").to_pylist()
    ours = np.asarray([sample["latency_s"] for sample in samples if sample["arm"] == "variant"])
    assert len(ours) == found["calls"] == len(samples) / 2
    for name, q in {"latency_p50": 0.5, "latency_p99": 0.99}.items():  # null where calls depend on each other too much
        needed = found[f"{name}_calls_needed"]
        assert found[f"{name}_s"] == (None if needed else pytest.approx(np.quantile(ours, q)))
    assert found["throughput_per_s"] == pytest.approx(len(ours) / ours.sum())
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert found["instances"] >= 2
    assert found["stopped_by"] in ("precision", "time")
    assert found["affinity"] == ",".join(map(str, sorted(os.sched_getaffinity(0))))
    assert found["device"] == DEVICE
    assert found["runtime"].startswith("onnxruntime ")
    assert found["precision"] == "f32"
    assert 1e7 < found["load_memory_bytes"] <= found["peak_memory_bytes"] < 1e9
    assert 1e7 < found["running_memory_bytes"] <= found["peak_memory_bytes"]
    assert found["gpu_memory_bytes"] is None
    assert min(sample["start_s"] for sample in samples) == 0
    assert {sample["items"] for sample in samples} == {1}


def test_the_reference_against_itself_is_about_one(text_bench):
    made = text_bench.measured(
        "offline", text_bench.torch, text_bench.torch, text_bench.torch, instances=3, batch_size=8
    )
    assert made.status == "ok", made.error
    # One interval in twenty misses 1.0 by right; by more than a tenth none does.
    assert made.details["speedup_low"] < 1.1
    assert made.details["speedup_high"] > 0.9
    samples = records.read("samples", text_bench.results / made.key / "samples.parquet").to_pylist()
    assert {sample["items"] for sample in samples} == {8}


def test_wrong_outputs_while_it_is_timed_end_it(text_bench):
    int8 = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch)
    made = text_bench.measured("single_stream", int8, text_bench.torch, text_bench.torch, min_cosine=0.9999999)
    assert made.status == "wrong_output"
    assert made.error.startswith("while it was timed: output 'output_0'")


def test_a_model_of_one_batch_size_names_the_setting(bench, text_bench):
    import onnx

    graph = onnx.load(str(text_bench.artifact(text_bench.onnx).file("model.onnx")))
    for value in graph.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(graph, str(bench.project / "one.onnx"))
    test = Examples.read(text_bench.artifact(text_bench.torch).file("examples/test.parquet"))
    data = bench.dataset(test.columns, test.labels, calibration=4)
    model = bench.do("model", "onnx", {"dataset": data.key}, source={"path": "one.onnx"})
    assert model.status == "ok", model.error
    made = bench.measured("offline", model, model, model, batch_size=4)
    assert made.status == "crashed"
    assert made.error == "the model takes batches of 1 only; set benchmark.batch_size=1"
    evaluated = bench.do("evaluate", "classification", {"source": model.key, "model": model.key}, batch_size=4)
    assert evaluated.status == "ok", evaluated.error


def test_both_arms_keep_to_the_devices_cpus(text_bench, monkeypatch):
    cpu = max(os.sched_getaffinity(0))
    monkeypatch.setattr(text_bench, "device", {**DEVICE, "affinity": [cpu]})
    made = text_bench.measured("single_stream", text_bench.onnx, text_bench.torch, text_bench.torch)
    assert made.status == "ok", made.error
    assert made.details["affinity"] == str(cpu)
    assert [made.details["facts"][arm]["affinity"] for arm in ("reference", "variant")] == [[cpu], [cpu]]


def test_a_cpu_that_is_not_there_skips_the_benchmark(text_bench, monkeypatch):
    monkeypatch.setattr(text_bench, "device", {**DEVICE, "affinity": [4096]})
    made = text_bench.measured("single_stream", text_bench.onnx, text_bench.torch, text_bench.torch)
    assert made.status == "skipped"
    assert "device.affinity=[4096]: the CPUs here are [" in made.error


def test_arms_that_were_not_even_are_no_comparison():
    even = {"affinity": [0, 1], "threads": 2, "precision": "f32"}
    _check_even({"reference": even, "variant": {**even, "precision": "int8"}})
    for name, other in {"affinity": [0], "threads": 1}.items():
        with pytest.raises(StageFailure, match=f"the arms were not even: {name} ") as caught:
            _check_even({"reference": even, "variant": {**even, name: other}})
        assert caught.value.status == "crashed"


def earlier(job, identity, **changes):
    """Leave a benchmark's manifest beside the job's, like it but for `changes`."""
    details = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "device": DEVICE}
    details |= changes.pop("details", {})
    same = Manifest(
        identity, job.stage, job.option, job.settings, {**job.upstream, "source": "engine/other"}, details=details
    )
    found = dataclasses.replace(same, **changes)
    folder = job.folder.parent / identity
    folder.mkdir()
    write_manifest(found, folder)


def test_rivals_are_what_was_measured_in_the_same_way_against_the_same_reference(bench):
    upstream = {"source": "engine/mine", "reference": "model/one", "model": "model/one"}
    job = bench.job("benchmark", "single_stream", upstream, full_settings("benchmark", "single_stream", QUICK))
    assert rivals(job) == []
    earlier(job, "00000000aaaa")
    earlier(job, "00000000bbbb", details={"speedup": 0.5, "speedup_low": 0.4, "speedup_high": 0.6})
    earlier(job, "00000000cccc", option="offline")
    earlier(job, "00000000dddd", settings={**job.settings, "batch_size": 8})
    earlier(job, "00000000eeee", upstream={**upstream, "reference": "model/two"})
    earlier(job, "00000000ffff", details={"device": {**DEVICE, "threads": 2}})
    earlier(job, "0000000000ab", status="timeout", error="too slow")
    write_manifest(Manifest(job.id, job.stage, job.option, job.settings, upstream), job.folder)
    assert rivals(job) == [Ratio(2.0, 1.9, 2.1), Ratio(0.5, 0.4, 0.6)]
