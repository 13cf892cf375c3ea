"""Write a torch module as an ONNX graph with free batch and sequence axes."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.artifact import Tensor
from strop.check import fixed_batch
from strop.errors import StageFailure, one_line
from strop.examples import Examples
from strop.graph import load_graph, node_counts, tensors
from strop.job import Job, Made
from strop.runtimes.modules import load_module, read_spec

if TYPE_CHECKING:
    pass

MODEL = "model.onnx"


def onnx(job: Job, *, opset: int) -> Made:
    """Export with torch's dynamo exporter; axes that are symbols in the model's manifest stay free."""
    import torch

    source = job.artifact("source")
    module = load_module(source)
    manifest = source.manifest
    feeds = example_feeds(job, manifest.inputs)
    shapes = dynamic_shapes(manifest.inputs)
    with _quiet():
        try:
            program = torch.onnx.export(
                module,
                kwargs={name: torch.from_numpy(value) for name, value in feeds.items()},
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=shapes if any(shapes.values()) else None,
                input_names=[tensor.name for tensor in manifest.inputs],
                output_names=[tensor.name for tensor in manifest.outputs],
                verbose=False,
            )
        except Exception as error:
            raise StageFailure("export_unsupported", export_reason(error, manifest.inputs)) from error
        assert program is not None
        program.save(str(job.folder / MODEL))
    return made(job.folder, manifest.inputs)


def export_reason(error: BaseException, inputs: tuple[Tensor, ...]) -> str:
    """Return in one line why torch.export gave up: its own texts begin with advice, and end with what was wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    if found := re.search(r"inferred a static shape of (\d+) for dimension inputs\['(\w+)'\]\.shape\[(\d+)\]", text):
        return _baked_in(found[2], int(found[3]), found[1])
    specialized = r"\[(\d+)\]\.size\(\)\[(\d+)\] as dynamic but your code specialized it to be a constant \((\d+)\)"
    if found := re.search(specialized, text):
        return _baked_in(inputs[int(found[1])].name, int(found[2]), found[3])
    if "data-dependent" in text:
        return (
            f"the model's code decides by a value inside of a tensor, which no graph can follow: {one_line(error, 120)}"
        )
    return one_line(error)


def _baked_in(name: str, axis: int, length: str) -> str:
    return (
        f"the exporter fixed axis {axis} of '{name}' to the example's {length}; the model's code reads this length as "
        "a Python number"
    )


def dynamic_shapes(inputs: tuple[Tensor, ...]) -> dict[str, dict[int, Any]]:
    """Return input -> axis -> torch.export dimension for the axes that are symbols in the manifest."""
    import torch

    return {
        tensor.name: {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(tensor.shape) if isinstance(size, str)}
        for tensor in inputs
    }


def example_feeds(job: Job, inputs: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return a batch to trace with: two rows of unlike lengths, so that no axis has length 1 and is taken as fixed."""
    test = Examples.read(job.artifact("model").file("examples/test.parquet"))
    order = sorted(range(len(test)), key=lambda row: int(test.lengths()[row]))
    wanted = fixed_batch(inputs) or 2
    rows = ([order[-1], order[len(order) // 2]] * wanted)[:wanted]
    return test.batch(rows)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn about their own future; what matters is checked on the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def made(folder: Path, inputs: tuple[Tensor, ...]) -> Made:
    """Describe an exported file; the export must have all inputs, with their axes as free as before."""
    graph = load_graph(folder / MODEL)
    found = {tensor.name: tensor for tensor in tensors(graph.graph.input)}
    for tensor in inputs:
        if tensor.name not in found:
            continue  # an input that nothing reads may be dropped
        fixed = [axis for axis, size in enumerate(found[tensor.name].shape) if isinstance(size, int)]
        baked = [axis for axis in fixed if isinstance(tensor.shape[axis], str)]
        if baked:
            raise StageFailure(
                "export_unsupported",
                _baked_in(tensor.name, baked[0], str(found[tensor.name].shape[baked[0]])),
            )
    return Made(
        "onnx",
        tuple(tensor for tensor in inputs if tensor.name in found),
        tensors(graph.graph.output),
        {"nodes": node_counts(graph), "opset": graph.opset_import[0].version},
    )


def optimum(job: Job, *, opset: int) -> Made:
    """Export with Hugging Face Optimum, for models of the transformers library with a head of their own."""
    from optimum.exporters.onnx import export as write
    from optimum.exporters.tasks import TasksManager

    source = job.artifact("source")
    spec = read_spec(source)
    task = _optimum_task(spec)
    model: Any = load_module(source).model
    config = TasksManager.get_exporter_config_constructor("onnx", model, task=task)(model.config)
    with _quiet():
        try:
            write(model, config, job.folder / MODEL, opset=opset)
        except (ValueError, NotImplementedError, KeyError) as error:
            raise StageFailure("export_unsupported", f"Optimum does not export it: {one_line(error)}") from error
    _fill_token_types(job.folder / MODEL)
    return made(job.folder, source.manifest.inputs)


def _fill_token_types(path: Path) -> None:
    """Optimum makes token types an input; a single text has zeros there, as the module assumes without them."""
    import onnx as library

    model = library.load(str(path))
    kept = [value for value in model.graph.input if value.name != "token_type_ids"]
    if len(kept) == len(model.graph.input):
        return
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.node.insert(0, library.helper.make_node("Sub", ["input_ids"] * 2, ["token_type_ids"]))
    library.save(model, str(path))


def _optimum_task(spec: dict[str, Any]) -> str:
    tasks = {"sequence_classification": "text-classification", "image_classification": "image-classification"}
    where, _, name = spec["factory"].rpartition(":")
    if where != "strop.zoo.transformers_models" or name not in tasks:
        raise StageFailure(
            "export_unsupported", f"Optimum knows models of transformers only, not '{spec['factory']}'; use export=onnx"
        )
    return tasks[name]
