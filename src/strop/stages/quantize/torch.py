"""Fewer bits in the torch module itself: torchao's tensors, or bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure
from strop.job import Job, Made
from strop.runtimes.modules import load_module, save_like
from strop.stages.quantize.common import refuse_quantized

if TYPE_CHECKING:
    import torch

FP8_CAPABILITY = (8, 9)  # Ada Lovelace, the first with products of float8


def torchao_int8_dynamic(job: Job) -> Made:
    """PyTorch (torchao): integer weights of linear layers, activations scaled at run time, a scale for each row."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return _with_torchao(job, Int8DynamicActivationInt8WeightConfig())


def torchao_int8_weights(job: Job) -> Made:
    """PyTorch (torchao): integer weights of linear layers, a scale for each row; activations stay float."""
    from torchao.quantization import Int8WeightOnlyConfig

    return _with_torchao(job, Int8WeightOnlyConfig())


def torchao_int4_weights(job: Job, *, block_size: int) -> Made:
    """PyTorch (torchao): 4-bit weights of linear layers, a scale for each block of a row; activations stay float.

    torchao's packed forms are for CUDA, or cannot be written without pickle: here each 4-bit value lies in a byte.
    Layers whose width is no multiple of the block stay in float.
    """
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    int4 = torch.int4  # type: ignore[attr-defined] # torch does not say that it has it
    config = IntxWeightOnlyConfig(weight_dtype=int4, granularity=PerGroup(block_size))
    return _with_torchao(job, config, block_size)


def torchao_fp8_weights(job: Job) -> Made:
    """PyTorch (torchao): float8 (e4m3) weights of linear layers; activations and products stay float."""
    from torchao.quantization import Float8WeightOnlyConfig

    return _with_torchao(job, Float8WeightOnlyConfig())


def torchao_fp8(job: Job) -> Made:
    """PyTorch (torchao), CUDA: products of float8 (e4m3), activations scaled at run time.

    Raises:
        StageFailure: `skipped`: the device is older than its compute capability 8.9.
    """
    import torch
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig

    if not torch.cuda.is_available():
        raise StageFailure("skipped", "this PyTorch finds no CUDA device")
    found = torch.cuda.get_device_capability()
    if found < FP8_CAPABILITY:
        raise StageFailure("skipped", f"the device has compute capability {found[0]}.{found[1]}, float8 needs 8.9")
    return _with_torchao(job, Float8DynamicActivationFloat8WeightConfig(), device="cuda")


def _with_torchao(job: Job, config: Any, multiple: int = 1, device: str = "cpu") -> Made:
    """Quantize the linear layers whose width is a multiple of `multiple` on a device, and write the module."""
    from torchao.quantization import quantize_

    source = job.artifact("source")
    refuse_quantized(source)
    module = load_module(source)
    linear = _linear(module)
    if not linear:
        return Made("torch", details={"status": "no_effect", "status_reason": "the model has no linear layer"})
    fitting = [name for name, layer in linear.items() if layer.in_features % multiple == 0]
    if not fitting:
        reason = f"the width of no linear layer is a multiple of quantize.block_size={multiple}"
        return Made("torch", details={"status": "no_effect", "status_reason": reason})
    module.to(device)
    quantize_(module, config, lambda _, name: name in fitting)
    save_like(source, module.cpu(), job.folder, quantize=job.option)
    changed = [name for name in linear if type(module.get_submodule(name).weight).__name__ != "Parameter"]
    kept = [name for name in linear if name not in changed]
    details = {"quantized_share": len(changed) / len(linear)}
    return Made("torch", details=details | ({"kept_in_float": kept} if kept else {}))


def _linear(module: torch.nn.Module) -> dict[str, torch.nn.Linear]:
    import torch

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, torch.nn.Linear)}


def bf16(job: Job) -> Made:
    """PyTorch: all weights and operations in bfloat16; inputs and outputs stay float32."""
    source = job.artifact("source")
    refuse_quantized(source)
    module = load_module(source)
    save_like(source, module.bfloat16(), job.folder, dtype="bfloat16")
    return Made("torch")
