"""A benchmark times real artifacts against their reference, and keeps what others need to judge it."""

import numpy as np
import pytest

from strop import records
from strop.examples import Examples
from strop.stages.benchmark import MOST_BATCHES, random_batches, sorted_batches

QUICK = {"instances": 2, "min_time_s": 0.2, "max_time_s": 8.0, "min_calls": 20, "precision": 0.5}


def measured(bench, option, source, reference, model, min_cosine=0.9, **settings):
    upstream = {"source": source.key, "reference": reference.key, "model": model.key}
    return bench.do("benchmark", option, upstream, min_cosine=min_cosine, **{**QUICK, **settings})


def test_numbers_and_samples_agree(text_bench):
    engine = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch)
    made = measured(text_bench, "single_stream", engine, text_bench.torch, text_bench.torch)
    assert made.status == "ok", made.error
    found = made.details
    samples = records.read("samples", text_bench.results / made.key / "samples.parquet").to_pylist()
    ours = np.asarray([sample["latency_s"] for sample in samples if sample["arm"] == "variant"])
    assert len(ours) == found["calls"] == len(samples) / 2
    assert found["latency_p50_s"] == pytest.approx(np.quantile(ours, 0.5))
    assert found["latency_p99_s"] == pytest.approx(np.quantile(ours, 0.99))
    assert found["throughput_per_s"] == pytest.approx(len(ours) / ours.sum())
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    assert found["instances"] >= 2
    assert found["stopped_by"] in ("precision", "time")
    assert found["runtime"].startswith("onnxruntime ")
    assert found["precision"] == "f32"
    assert found["peak_memory_bytes"] > 1e7
    assert min(sample["start_s"] for sample in samples) == 0
    assert {sample["items"] for sample in samples} == {1}


def test_the_reference_against_itself_is_about_one(text_bench):
    made = measured(
        text_bench, "offline", text_bench.torch, text_bench.torch, text_bench.torch, instances=3, batch_size=8
    )
    assert made.status == "ok", made.error
    # One interval in twenty misses 1.0 by right; by more than a tenth none does.
    assert made.details["speedup_low"] < 1.1
    assert made.details["speedup_high"] > 0.9
    samples = records.read("samples", text_bench.results / made.key / "samples.parquet").to_pylist()
    assert {sample["items"] for sample in samples} == {8}


def test_wrong_outputs_while_it_is_timed_end_it(text_bench):
    int8 = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch)
    made = measured(text_bench, "single_stream", int8, text_bench.torch, text_bench.torch, min_cosine=0.9999999)
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
    made = measured(bench, "offline", model, model, model, batch_size=4)
    assert made.status == "crashed"
    assert made.error == "the model takes batches of 1 only; set benchmark.batch_size=1"
    evaluated = bench.do("evaluate", "classification", {"source": model.key, "model": model.key}, batch_size=4)
    assert evaluated.status == "ok", evaluated.error


def examples(lengths):
    rows = [np.zeros(length, np.float32) for length in lengths]
    return Examples([str(row) for row in range(len(rows))], {"x": rows})


def test_batches_vary_and_are_the_seeds_own():
    many = examples(range(1, 101))
    rows = random_batches(many, 1, seed=0)
    assert len(rows) == MOST_BATCHES
    assert len({row for batch in rows for row in batch}) == MOST_BATCHES
    assert rows == random_batches(many, 1, seed=0) != random_batches(many, 1, seed=1)


def test_offline_batches_hold_near_lengths():
    many = examples(np.random.default_rng(0).permutation(np.arange(1, 101)))
    lengths = many.lengths()
    for batch in sorted_batches(many, 10, seed=0):
        assert max(lengths[batch]) - min(lengths[batch]) == 9
    assert {row for batch in sorted_batches(many, 10, seed=0) for row in batch} == set(range(100))


def test_fewer_examples_than_a_batch_come_again_in_it():
    few = examples([1, 2, 3])
    assert [sorted(set(batch)) for batch in random_batches(few, 8, seed=0)] == [[0, 1, 2]]
    assert len(sorted_batches(few, 8, seed=0)[0]) == 8
