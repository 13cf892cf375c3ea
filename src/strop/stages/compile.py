"""Compile the torch module: by tracing, just in time, or ahead of time."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure, one_line
from strop.job import Job, Made
from strop.runtimes.modules import copy_module, in_float32, load_module, named_outputs, precision_of, read_spec
from strop.runtimes.torch import CACHE_FILE, COMPILE_FILE, PACKAGE_FILE, SCRIPT_FILE, compiled, compiler_cache
from strop.stages.export import dynamic_shapes, example_feeds

if TYPE_CHECKING:
    import torch


def torchscript(job: Job) -> Made:
    """TorchScript: traced on a batch, frozen, and optimized for inference."""
    import torch

    module, feeds = _module(job), _feeds(job)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the tracer warns of constants that the check then tries with other inputs
        try:
            traced = torch.jit.trace(module, tuple(feeds.values()), check_trace=False)
            frozen = torch.jit.freeze(traced)
        except Exception as error:
            raise StageFailure("build_failed", f"torch.jit.trace: {one_line(error)}") from error
        frozen.save(str(job.folder / SCRIPT_FILE))
    return Made("torchscript", details={"precision": _precision(job)})


def inductor(job: Job, *, dynamic: bool, mode: str) -> Made:
    """torch.compile with Inductor; what it compiled here is kept, so that a session starts sooner."""
    import torch

    source = job.artifact("source")
    how = {"backend": "inductor", "mode": mode, "dynamic": dynamic}
    copy_module(source, job.folder)
    (job.folder / COMPILE_FILE).write_text(json.dumps(how) + "\n", encoding="utf-8")
    compiler_cache()
    torch.set_num_threads(job.threads)
    run = compiled(in_float32(load_module(source), read_spec(source)), how)
    with torch.inference_mode():
        run(**_feeds(job))
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        (job.folder / CACHE_FILE).write_bytes(saved[0])
    return Made("torch_compile", details={"precision": _precision(job), **how})


def aot_inductor(job: Job, *, dynamic: bool) -> Made:
    """AOTInductor: torch.export and Inductor into one package with a shared library; no Python when it runs."""
    import torch

    module, feeds = _module(job), _feeds(job)
    inputs = job.artifact("source").manifest.inputs
    compiler_cache()
    torch.set_num_threads(job.threads)
    shapes = tuple(dynamic_shapes(inputs).values()) if dynamic else None
    try:
        program = torch.export.export(module, tuple(feeds.values()), dynamic_shapes={"values": shapes})
        torch._inductor.aoti_compile_and_package(program, package_path=str(job.folder / PACKAGE_FILE))
    except Exception as error:
        raise StageFailure("build_failed", f"AOTInductor: {one_line(error)}") from error
    return Made("aot_inductor", details={"precision": _precision(job)})


def _module(job: Job) -> torch.nn.Module:
    """Return the source's module, with inputs by place and outputs as a tuple in the manifest's order."""
    import torch

    source = job.artifact("source")
    spec = read_spec(source)
    module = load_module(source)
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


def _feeds(job: Job) -> dict[str, Any]:
    import torch

    feeds = example_feeds(job, job.artifact("source").manifest.inputs)
    return {tensor.name: torch.from_numpy(feeds[tensor.name]) for tensor in job.artifact("source").manifest.inputs}


def _precision(job: Job) -> str:
    source = job.artifact("source")
    return precision_of(load_module(source), read_spec(source))
