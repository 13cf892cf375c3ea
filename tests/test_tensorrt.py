"""TensorRT as far as no device is needed: profiles of fixed batches, and where a timing cache is kept."""

from dataclasses import replace
from types import SimpleNamespace

from strop.runtimes.tensorrt import timing_name
from strop.stages.engine import profile


def test_a_profile_keeps_a_fixed_batch(text_bench):
    job = text_bench.job("engine", "tensorrt", {"source": text_bench.onnx.key, "model": text_bench.torch.key}, {})
    free = profile(job)
    source = job.artifact("source")
    inputs = tuple(replace(tensor, shape=(4, *tensor.shape[1:])) for tensor in source.manifest.inputs)
    artifacts = {
        "model": job.artifact("model"),
        "source": SimpleNamespace(manifest=replace(source.manifest, inputs=inputs)),
    }
    fixed = profile(SimpleNamespace(artifact=artifacts.__getitem__))
    for name, shapes in fixed.items():
        assert [shape[0] for shape in shapes] == [4, 4, 4]
        assert [shape[1:] for shape in shapes] == [shape[1:] for shape in free[name]]


def test_a_timing_cache_belongs_to_a_device_and_a_version():
    one = timing_name({"tensorrt": "10.13.0", "device": "NVIDIA H100 80GB HBM3 / sm_90"})
    assert one == timing_name({"tensorrt": "10.13.0", "device": "NVIDIA H100 80GB HBM3 / sm_90"})
    assert one != timing_name({"tensorrt": "11.0.0", "device": "NVIDIA H100 80GB HBM3 / sm_90"})
    assert "/" not in one
    assert " " not in one
