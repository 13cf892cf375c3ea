"""Build what a runtime loads on this device. Precision is the model's own: an engine only builds."""

from __future__ import annotations

from typing import Any

from strop.artifact import Artifact
from strop.graph import graph_precision, load_graph, node_counts
from strop.job import Job, Made
from strop.runtimes.onnxruntime import CPU_PROVIDER, create, model_path
from strop.runtimes.openvino import read_model

MODEL = "model.onnx"
LARGEST_BATCH = 64  # of TensorRT's profile: larger calls need an engine with a larger one


def onnxruntime(job: Job, *, graph_optimization: str) -> Made:
    """ONNX Runtime on the CPU: the graph as its optimizers leave it for this machine."""
    return _ort(job, graph_optimization, [CPU_PROVIDER], {})


def onnxruntime_cuda(job: Job, *, graph_optimization: str) -> Made:
    """ONNX Runtime on CUDA."""
    return _ort(job, graph_optimization, ["CUDAExecutionProvider", CPU_PROVIDER], {})


def onnxruntime_tensorrt(job: Job, *, graph_optimization: str, workspace_bytes: int) -> Made:
    """ONNX Runtime with TensorRT for the parts that it takes, CUDA for the rest; engines are cached in the folder."""
    options = {
        "TensorrtExecutionProvider": {
            "trt_max_workspace_size": str(workspace_bytes),
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(job.folder),
        }
    }
    return _ort(job, graph_optimization, [*options, "CUDAExecutionProvider", CPU_PROVIDER], options)


def _ort(job: Job, level: str, providers: list[str], options: dict[str, Any]) -> Made:
    """Write the optimized graph; one that providers compile to nodes of their own stays as it came."""
    source = job.artifact("source").verify()
    path = model_path(source)
    before = load_graph(path)
    details: dict[str, Any] = {
        "providers": providers,
        "provider_options": options,
        "precision": graph_precision(before),
    }
    target = job.folder / MODEL
    if providers[0] == CPU_PROVIDER:
        create(path, job.threads, level, details, save_to=target)
    else:
        create(path, job.threads, level, details)
        _copy(source, job)
    details["nodes_before"], details["nodes"] = node_counts(before), node_counts(load_graph(target))
    return Made("ort", details=details)


def _copy(source: Artifact, job: Job) -> None:
    for file in source.manifest.files:
        target = job.folder / (MODEL if file.path.endswith(".onnx") else file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.file(file.path).read_bytes())


def openvino(job: Job, *, precision: str) -> Made:
    """OpenVINO on the CPU. Left to itself it computes float models in bfloat16 where the CPU can: so it is told."""
    import openvino as library

    source = job.artifact("source").verify()
    manifest = source.manifest
    path = model_path(source) if manifest.format == "onnx" else source.folder / "model.xml"
    library.save_model(read_model(path), str(job.folder / "model.xml"), compress_to_fp16=False)
    int8 = manifest.details.get("precision") == "int8" or (
        manifest.format == "onnx" and graph_precision(load_graph(path)) == "int8"
    )
    return Made("openvino", details={"hint": precision, "precision": "int8" if int8 else None})


def tensorrt(job: Job, *, workspace_bytes: int) -> Made:
    """TensorRT: a strongly typed engine with one optimization profile over the test examples' shapes."""
    from strop.runtimes.tensorrt import build

    source = job.artifact("source").verify()
    build(model_path(source), job.folder / "model.engine", profile(job), workspace_bytes)
    return Made("tensorrt", details={"precision": graph_precision(load_graph(model_path(source)))})


def profile(job: Job) -> dict[str, tuple[list[int], list[int], list[int]]]:
    """Return input -> smallest, most frequent and largest shape, over the test examples in batches of 1 to 64."""
    from strop.examples import Examples

    test = Examples.read(job.artifact("model").file("examples/test.parquet"))
    shapes: dict[str, tuple[list[int], list[int], list[int]]] = {}
    for tensor in job.artifact("source").manifest.inputs:
        sizes = sorted(value.shape for value in test.columns[tensor.name])
        low, middle, high = (
            [int(n) for n in part] for part in (_ends(sizes, min), sizes[len(sizes) // 2], _ends(sizes, max))
        )
        fixed = tensor.shape[0] if isinstance(tensor.shape[0], int) else None
        shapes[tensor.name] = ([fixed or 1, *low], [fixed or 1, *middle], [fixed or LARGEST_BATCH, *high])
    return shapes


def _ends(sizes: list[tuple[int, ...]], pick: Any) -> list[int]:
    return [pick(size[axis] for size in sizes) for axis in range(len(sizes[0]))]
