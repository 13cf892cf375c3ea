"""Engines build from ONNX and OpenVINO files and say which precision they really use."""

import pytest

from strop.errors import StageFailure
from strop.examples import Examples
from strop.runtimes import open_session
from strop.runtimes.probe import cuda_problem
from strop.stages.engine import LARGEST_BATCH, profile


def test_onnxruntime_saves_the_optimized_graph(text_bench):
    made = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch, min_cosine=0.9999)
    assert made.status == "ok", made.error
    assert made.format == "ort"
    assert sum(made.details["nodes"].values()) < sum(made.details["nodes_before"].values())
    session = open_session(text_bench.artifact(made), threads=1)
    assert session.facts["providers"] == ["CPUExecutionProvider"]
    plain = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch, graph_optimization="disabled")
    assert plain.details["nodes"] == plain.details["nodes_before"]


@pytest.mark.parametrize("threads", [1, 2])
def test_openvino_is_told_to_compute_in_float32(text_bench, threads):
    made = text_bench.step("engine", "openvino", text_bench.onnx, text_bench.torch, min_cosine=0.99999)
    assert made.status == "ok", made.error
    facts = open_session(text_bench.artifact(made), threads=threads).facts
    assert (facts["precision"], facts["threads"]) == ("f32", threads)


def test_precision_survives_from_quantizer_to_engine(text_bench):
    int8 = text_bench.step("quantize", "nncf_int8", text_bench.onnx, text_bench.torch)
    made = text_bench.step("engine", "openvino", int8, text_bench.torch)
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == "int8"
    dynamic = text_bench.step("quantize", "ort_int8_dynamic", text_bench.onnx, text_bench.torch)
    made = text_bench.step("engine", "onnxruntime", dynamic, text_bench.torch)
    assert open_session(text_bench.artifact(made), threads=1).facts["precision"] == "int8"


def test_profiles_span_the_examples(text_bench):
    job = text_bench.job("engine", "tensorrt", {"source": text_bench.onnx.key, "model": text_bench.torch.key}, {})
    shapes = profile(job)
    (low, usual, high) = shapes["input_ids"]
    assert low[0] == 1
    assert high[0] == LARGEST_BATCH
    assert low[1] <= usual[1] <= high[1]
    assert 3 <= low[1] < high[1] < 20


@pytest.mark.skipif(cuda_problem() is None, reason="tests what happens without a CUDA device")
@pytest.mark.parametrize("option", ["onnxruntime_cuda", "onnxruntime_tensorrt", "tensorrt"])
def test_without_a_device_nothing_falls_back_to_the_cpu(text_bench, option):
    made = text_bench.step("engine", option, text_bench.onnx, text_bench.torch)
    assert made.status == "skipped"
    assert made.error


def test_openvino_is_not_asked_for_other_devices(text_bench):
    made = text_bench.step("engine", "openvino", text_bench.onnx, text_bench.torch)
    with pytest.raises(StageFailure, match="OpenVINO runs on the CPU here"):
        open_session(text_bench.artifact(made), threads=1, device="cuda")


@pytest.mark.parametrize("option", [None, "ort_int8_dynamic", "ort_int8_static"])
def test_weights_beside_the_file_stay_with_it(bench, text_bench, option):
    import onnx

    path = bench.project / "big.onnx"
    graph = onnx.load(str(text_bench.artifact(text_bench.onnx).file("model.onnx")))
    onnx.save(graph, str(path), save_as_external_data=True, location="big.bin", size_threshold=1024)
    test = Examples.read(text_bench.artifact(text_bench.torch).file("examples/test.parquet"))
    data = bench.dataset(test.columns, test.labels, calibration=4)
    model = bench.do("model", "onnx", {"dataset": data.key}, source={"path": path.name})
    source = model
    if option:
        source = bench.step("quantize", option, model, model, op_types=["MatMul", "Gemm"])
        assert source.status == "ok", source.error
        assert source.size_bytes < 0.8 * model.size_bytes
    for engine in ("onnxruntime", "openvino"):
        made = bench.step("engine", engine, source, model)
        assert made.status == "ok", made.error
    assert open_session(bench.artifact(made), threads=1)
