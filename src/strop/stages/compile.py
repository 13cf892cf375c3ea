"""Compile the torch module for the device: by tracing, just in time, ahead of time, or no further than its program.

Each manifest says what became of the graph, where that can be told: `nodes_before`, `nodes` and `fusions`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.artifact import Artifact
from strop.check import fixed_batch
from strop.errors import StageFailure, one_line
from strop.graph import compared
from strop.job import Job, Made
from strop.runtimes.modules import copy_module, in_float32, load_module, named_outputs, precision_of, read_spec
from strop.runtimes.torch import CACHE_FILE, COMPILE_FILE, PACKAGE_FILE, SCRIPT_FILE, compiled
from strop.stages.export import dynamic_shapes, example_feeds, export_reason

if TYPE_CHECKING:
    import torch

NO_WORK = frozenset({"prim::Constant", "prim::GetAttr", "prim::ListConstruct", "prim::TupleConstruct"})
LAUNCH = re.compile(r"^\s+(?:\w+\s*=\s*)?(?:call_)?(?:cpp_fused|triton_)\w*(?:\.run)?\(", re.MULTILINE)


def torchscript(job: Job, *, optimize_for_inference: bool) -> Made:
    """TorchScript: traced on a batch and frozen; optimized for inference when it is loaded, as that cannot be saved."""
    import torch

    module, feeds = _module(job), _feeds(job)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the tracer warns of constants that the check then tries with other inputs
        try:
            traced = torch.jit.trace(module, tuple(feeds.values()), check_trace=False)
            program = torch.jit.freeze(traced)
            program.save(str(job.folder / SCRIPT_FILE))
            program = torch.jit.optimize_for_inference(program) if optimize_for_inference else program
        except Exception as error:
            raise StageFailure("build_failed", f"torch.jit: {one_line(error)}") from error
    changes = compared(_script_nodes(traced.inlined_graph), _script_nodes(program.graph))
    details = {"precision": _precision(job), "optimize_for_inference": optimize_for_inference, **changes}
    return Made("torchscript", details=details)


def _script_nodes(graph: Any) -> dict[str, int]:
    kinds = (node.kind() for node in graph.nodes())
    return dict(Counter(kind for kind in kinds if kind not in NO_WORK).most_common())


def inductor(job: Job, *, dynamic: bool, mode: str) -> Made:
    """torch.compile with Inductor; what it compiled here is kept, so that a session need not compile it again."""
    import torch
    from torch._inductor.utils import fresh_cache

    source = job.artifact("source")
    how = {"backend": "inductor", "mode": mode, "dynamic": dynamic}
    copy_module(source, job.folder)
    (job.folder / COMPILE_FILE).write_text(json.dumps(how) + "\n", encoding="utf-8")
    torch.set_num_threads(job.threads)
    torch._dynamo.reset()
    run = compiled(in_float32(load_module(source).to(job.device["kind"]), read_spec(source)), how)
    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder, delete=False):
        _forget_counts()
        with torch.inference_mode():
            for feeds in _batches(job):
                run(**feeds)
        cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        details = {"precision": _precision(job), **how, **_compiled_details(cache)}
        _pack(cache, job.folder / CACHE_FILE)
    return Made("torch_compile", details=details)


def _forget_counts() -> None:
    import torch._inductor.metrics
    from torch._dynamo.utils import counters

    counters.clear()
    torch._inductor.metrics.reset()


def _compiled_details(cache: Path) -> dict[str, Any]:
    """Return how torch.compile cut the module up, why, and how many of Inductor's operators became how many kernels."""
    import torch._inductor.metrics
    from torch._dynamo.utils import counters

    breaks = counters["graph_break"]
    kernels = {"kernel": _launches(cache), "library call": counters["inductor"]["extern_calls"]}
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(breaks.values()),
        "graph_break_reasons": [one_line(str(reason), 200) for reason in breaks],
        **compared({"operator": torch._inductor.metrics.ir_nodes_pre_fusion}, kernels),
    }


def _launches(cache: Path) -> int:
    """Return how often Inductor's programs call kernels of their own, summed over the programs [1]."""
    files = (path for ending in ("py", "wrapper.cpp") for path in cache.rglob(f"*.{ending}"))
    return sum(len(LAUNCH.findall(path.read_text(encoding="utf-8"))) for path in files)


def _pack(cache: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(cache.rglob("*")):
            if path.is_file() and path.suffix != ".lock":
                archive.write(path, path.relative_to(cache))


def aot_inductor(job: Job, *, dynamic: bool) -> Made:
    """AOTInductor: torch.export and Inductor into one package with a shared library; no Python when it runs."""
    import torch
    from torch._inductor.utils import fresh_cache

    torch.set_num_threads(job.threads)
    program = _program(job, dynamic)
    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder, delete=False):
        _forget_counts()
        try:
            torch._inductor.aoti_compile_and_package(program, package_path=str(job.folder / PACKAGE_FILE))
        except Exception as error:
            raise StageFailure("build_failed", f"AOTInductor: {one_line(error)}") from error
        details = _compiled_details(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
    return Made("aot_inductor", details={"precision": _precision(job), **details})


def torch_export(job: Job, *, dynamic: bool) -> Made:
    """torch.export: the module's program of PyTorch's core operators in one file, which runs without its code."""
    import torch

    program = _program(job, dynamic)
    torch.export.save(program, job.folder / PACKAGE_FILE)
    return Made("torch_export", details={"precision": _precision(job), "nodes": operators(program)})


def _program(job: Job, dynamic: bool) -> Any:
    """Return the source as a `torch.export.ExportedProgram`, with its axes free if `dynamic`."""
    import torch

    shapes = tuple(dynamic_shapes(job.artifact("source").manifest.inputs).values()) if dynamic else None
    try:
        return torch.export.export(_module(job), tuple(_feeds(job).values()), dynamic_shapes={"values": shapes})
    except Exception as error:
        inputs = job.artifact("source").manifest.inputs
        raise StageFailure("build_failed", f"torch.export: {export_reason(error, inputs)}") from error


def operators(program: Any) -> dict[str, int]:
    """Return operator -> number of its calls in an exported program, most frequent first."""
    calls = (node.target for node in program.graph.nodes if node.op == "call_function")
    return dict(Counter(str(target).removeprefix("aten.").partition(".")[0] for target in calls).most_common())


def _module(job: Job) -> torch.nn.Module:
    """Return the source's module on the device, see `by_place`."""
    source = job.artifact("source")
    return by_place(load_module(source).to(job.device["kind"]), source)


def by_place(module: torch.nn.Module, source: Artifact) -> torch.nn.Module:
    """Return an artifact's module with inputs by place, and outputs as a tuple in the manifest's order."""
    import torch

    spec = read_spec(source)
    run = in_float32(module, spec)
    names = [tensor.name for tensor in source.manifest.inputs]
    outputs = [tensor.name for tensor in source.manifest.outputs]

    class ByPlace(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module  # its weights belong to what is traced

        def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = named_outputs(run(**dict(zip(names, values, strict=True))), spec["outputs"])
            return tuple(found[name] for name in outputs)

    return ByPlace().eval()


def _feeds(job: Job) -> dict[str, torch.Tensor]:
    """Return a batch on the device: two examples of unlike lengths, or as many as the model insists on."""
    import torch

    inputs = job.artifact("source").manifest.inputs
    feeds = example_feeds(job, inputs)
    return {tensor.name: torch.from_numpy(feeds[tensor.name]).to(job.device["kind"]) for tensor in inputs}


def _batches(job: Job) -> list[dict[str, torch.Tensor]]:
    """Return that batch and, where it may be, one of a single example: torch compiles size 1 by itself."""
    feeds = _feeds(job)
    if fixed_batch(job.artifact("source").manifest.inputs) is not None:
        return [feeds]
    return [feeds, {name: value[:1].contiguous() for name, value in feeds.items()}]


def _precision(job: Job) -> str:
    source = job.artifact("source")
    return precision_of(load_module(source), read_spec(source))
