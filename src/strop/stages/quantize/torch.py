"""Fewer bits in the torch module itself: torchao's tensors, or bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.job import Job, Made
from strop.runtimes.modules import load_module, save_like

if TYPE_CHECKING:
    import torch


def torchao_int8_dynamic(job: Job) -> Made:
    """PyTorch (torchao): integer weights of linear layers, activations scaled at run time, a scale for each row."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    source = job.artifact("source")
    module = load_module(source)
    linear = _linear_names(module)
    if not linear:
        return Made("torch", details={"status": "no_effect", "status_reason": "the model has no linear layer"})
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    save_like(source, module, job.folder, quantize="torchao_int8_dynamic")
    changed = sum(type(module.get_submodule(name).weight).__name__ != "Parameter" for name in linear)
    return Made("torch", details={"quantized_share": changed / len(linear)})


def _linear_names(module: torch.nn.Module) -> list[str]:
    import torch

    return [name for name, layer in module.named_modules() if isinstance(layer, torch.nn.Linear)]


def bf16(job: Job) -> Made:
    """PyTorch: all weights and operations in bfloat16; inputs and outputs stay float32."""
    source = job.artifact("source")
    module = load_module(source)
    save_like(source, module.bfloat16(), job.folder, dtype="bfloat16")
    return Made("torch")
