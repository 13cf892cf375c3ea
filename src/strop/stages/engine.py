"""Build what a runtime loads on this device. Precision is the model's own: an engine only builds.

Each manifest says what became of the graph, where the runtime tells: `nodes_before`, `nodes`, and `fusions`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from strop.artifact import Artifact
from strop.graph import compared, graph_precision, load_graph, node_counts
from strop.job import Job, Made
from strop.runtimes import openvino as ov
from strop.runtimes.onnxruntime import create, model_path
from strop.runtimes.onnxruntime_providers import (
    CPU_PROVIDER,
    CUDA_PROVIDER,
    OPENVINO_PROVIDER,
    TENSORRT_PROVIDER,
    nodes_by_provider,
    tensorrt_options,
)

MODEL = "model.onnx"
SMALL_MODEL = "model.ort"
ENGINE_FILE = "model.engine"
LARGEST_BATCH = 64  # of TensorRT's profile: larger calls need an engine with a larger one


def onnxruntime(job: Job, *, graph_optimization: str, file_format: str, spinning: bool, execution: str) -> Made:
    """ONNX Runtime on the CPU: the graph as its optimizers leave it for this machine."""
    source = job.artifact("source").verify()
    path = model_path(source)
    before = load_graph(path)
    details: dict[str, Any] = {
        "providers": [CPU_PROVIDER],
        "precision": graph_precision(before),
        "spinning": spinning,
        "execution": execution,
    }
    if file_format == "ort":
        create(path, job.threads, graph_optimization, details, save_to=job.folder / SMALL_MODEL)
        after = _optimized_nodes(path, job.threads, graph_optimization, details)
    else:
        create(path, job.threads, graph_optimization, details, save_to=job.folder / MODEL)
        after = node_counts(load_graph(job.folder / MODEL))
    return Made("ort", details=details | compared(node_counts(before), after))


def _optimized_nodes(path: Path, threads: int, level: str, details: dict[str, Any]) -> dict[str, int]:
    """Return the nodes of a graph as a session optimizes it, where what is kept of it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        create(path, threads, level, details, save_to=Path(folder) / MODEL)
        return node_counts(load_graph(Path(folder) / MODEL))


def onnxruntime_cuda(job: Job, *, graph_optimization: str) -> Made:
    """ONNX Runtime on CUDA."""
    details = _provided(job, {"providers": [CUDA_PROVIDER, CPU_PROVIDER], "level": graph_optimization})
    path = model_path(job.artifact("source"))
    after = _optimized_nodes(path, job.threads, graph_optimization, details)
    return Made("ort", details=details | compared(node_counts(load_graph(path)), after))


def onnxruntime_tensorrt(job: Job, *, graph_optimization: str, workspace_bytes: int) -> Made:
    """ONNX Runtime with TensorRT for the parts that it takes, CUDA for the rest; engines are cached in the folder."""
    from strop.runtimes.tensorrt import timing_folder

    told = tensorrt_options(job.folder, timing_folder(job.results), profile(job), workspace_bytes)
    details = {
        "providers": [TENSORRT_PROVIDER, CUDA_PROVIDER, CPU_PROVIDER],
        "provider_options": {TENSORRT_PROVIDER: told},
        "level": graph_optimization,
    }
    return Made("ort", details=_provided(job, details))


def onnxruntime_openvino(job: Job, *, graph_optimization: str, precision: str) -> Made:
    """ONNX Runtime with OpenVINO on the CPU for the parts that it takes."""
    details = {"providers": [OPENVINO_PROVIDER, CPU_PROVIDER], "hint": precision, "level": graph_optimization}
    return Made("ort", details=_provided(job, details))


def _provided(job: Job, details: dict[str, Any]) -> dict[str, Any]:
    """Open a session, and keep the model as it came: providers make nodes of their own that no file holds."""
    source = job.artifact("source").verify()
    path = model_path(source)
    details |= {"precision": graph_precision(load_graph(path))}
    session = create(path, job.threads, details["level"], details)
    _copy(source, job)
    return details | {"nodes_by_provider": nodes_by_provider(session)}


def _copy(source: Artifact, job: Job) -> None:
    for file in source.manifest.files:
        target = job.folder / (MODEL if file.path.endswith(".onnx") else file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.file(file.path).read_bytes())


def openvino(job: Job, *, precision: str, performance_hint: str, streams: int) -> Made:
    """OpenVINO on the CPU. Left to itself it computes float models in bfloat16 where the CPU can: so it is told."""
    import openvino as library

    model, details = _openvino_model(job, precision, performance_hint, streams)
    before = ov.node_counts(model)
    library.save_model(model, str(job.folder / ov.MODEL_FILE), compress_to_fp16=False)
    compiled = ov.compile_model(job.folder / ov.MODEL_FILE, ov.properties(details, job.threads))
    return Made("openvino", details=details | compared(before, ov.node_counts(compiled.get_runtime_model())))


def openvino_blob(job: Job, *, precision: str, performance_hint: str, streams: int) -> Made:
    """OpenVINO on the CPU, compiled now: a session imports the blob instead of compiling the model."""
    import openvino as library

    model, details = _openvino_model(job, precision, performance_hint, streams)
    before = ov.node_counts(model)
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # from a file, as engine=openvino: what is timed there is compiled here
        path = Path(folder) / ov.MODEL_FILE
        library.save_model(model, str(path), compress_to_fp16=False)
        compiled = ov.compile_model(path, ov.properties(details, job.threads))
        (job.folder / ov.BLOB_FILE).write_bytes(compiled.export_model().getvalue())
    details |= {"made_by": ov.made_by()} | compared(before, ov.node_counts(compiled.get_runtime_model()))
    return Made("openvino", details=details)


def _openvino_model(job: Job, precision: str, performance_hint: str, streams: int) -> tuple[Any, dict[str, Any]]:
    """Return the source as OpenVINO reads it, and the details that a session needs."""
    source = job.artifact("source").verify()
    manifest = source.manifest
    path = model_path(source) if manifest.format == "onnx" else source.file(ov.MODEL_FILE)
    int8 = manifest.details.get("precision") == "int8" or (
        manifest.format == "onnx" and graph_precision(load_graph(path)) == "int8"
    )
    details = {
        "hint": precision,
        "performance_hint": performance_hint,
        "streams": streams,
        "precision": "int8" if int8 else None,
    }
    return ov.read_model(path), details


def tensorrt(job: Job, *, workspace_bytes: int, tf32: bool) -> Made:
    """TensorRT: a strongly typed engine with one optimization profile over the test examples' shapes."""
    from strop.runtimes.tensorrt import Recipe, build, timing_folder

    path = model_path(job.artifact("source").verify())
    recipe = Recipe(profile(job), workspace_bytes, tf32, timing_folder(job.results))
    details = build(path, job.folder / ENGINE_FILE, recipe)
    graph = load_graph(path)
    details |= {"precision": graph_precision(graph), "nodes_before": node_counts(graph), "tf32": tf32}
    return Made("tensorrt", details=details)


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
