"""What an audit sees in a torch module: its layers' weights as they are kept, and the work of one call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.artifact import Artifact
from strop.audit.look import FLOATS, Look, Product
from strop.runtimes.modules import in_float32, load_module, read_spec

if TYPE_CHECKING:
    import torch

Feeds = dict[str, np.ndarray]

# Products of two computed factors, such as attention's, by the names of torch's flop counter.
COMPUTED = ("bmm", "baddbmm", "_scaled_dot_product", "_flash_attention", "_efficient_attention")


def look_at_torch(artifact: Artifact, feeds: Feeds) -> Look:
    """Look at an artifact of format `torch` or `torch_compile`.

    Args:
        artifact: its module is loaded and called once.
        feeds: one example.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    spec, module = read_spec(artifact), load_module(artifact)
    names = [tensor.name for tensor in artifact.manifest.inputs]
    values = {name: torch.from_numpy(feeds[name]) for name in names}
    macs: dict[str, int] = {}
    hooks = [
        layer.register_forward_hook(_counter(macs, name))
        for name, layer in module.named_modules()
        if _sum_axis(layer) is not None
    ]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):  # the counter does not know the CPU's fused attention
        in_float32(module, spec)(**values)
    for hook in hooks:
        hook.remove()
    found = Look()
    for name, layer in module.named_modules():
        _add(found, name, layer, macs.get(name), spec)
    flops = counter.get_flop_counts().get("Global", {})
    computed = sum(count for operator, count in flops.items() if _is_computed(operator))
    if computed:
        kind = _name(next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32))
        found.products.append(Product("products of activations", "bmm", kind, macs=computed // 2))
    return found


def _is_computed(operator: Any) -> bool:
    return any(word in str(operator) for word in COMPUTED)


def _counter(macs: dict[str, int], name: str) -> Any:
    def note(layer: Any, given: Any, made: Any) -> None:
        one = math.prod(layer.weight.shape[1:])
        size = given[0].numel() if getattr(layer, "transposed", False) else made.numel()
        macs[name] = macs.get(name, 0) + size * one

    return note


def _sum_axis(layer: Any) -> int | None:
    """Return the axis of a layer's weight that its product adds over; None if it is no product."""
    import torch

    if isinstance(layer, torch.nn.modules.conv._ConvNd):
        return 0 if layer.transposed else 1
    return 1 if isinstance(layer, torch.nn.Linear) else None


def _add(found: Look, name: str, layer: Any, macs: int | None, spec: dict[str, Any]) -> None:
    """Add a layer's own tensors of two axes and more, and its product if it is one."""
    axis = _sum_axis(layer)
    for key, tensor in layer.named_parameters(recurse=False):
        if tensor.ndim < 2:
            continue
        kept = _kept(tensor)
        found.weights[kept] += tensor.numel()
        if axis is not None and key == "weight":
            if kept in FLOATS:
                found.note_zeros((tensor.detach() != 0).numpy(), axis)
            used = kept if _multiplied_as_kept(kept, spec) else _name(tensor.dtype)
            found.products.append(Product(name, type(layer).__name__, used, tensor.numel(), kept, macs))


def _multiplied_as_kept(kept: str, spec: dict[str, Any]) -> bool:
    """Return whether activations are quantized, too: weights alone are unpacked to floats before they are used."""
    return "dynamic" in str(spec["quantize"]) or kept in FLOATS


def _kept(tensor: torch.Tensor) -> str:
    """Return the precision that a weight is kept in; torchao's tensors look like floats and hold integers."""
    import torch

    if type(tensor.data) in (torch.Tensor, torch.nn.Parameter):
        return _name(tensor.dtype)
    bits = getattr(tensor, "target_dtype", None) or getattr(getattr(tensor, "qdata", None), "dtype", None)
    text = str(bits).removeprefix("torch.")
    if "int4" in text or "Int4" in type(tensor).__name__:
        return "int4"
    return "fp8" if text.startswith("float8") else "int8" if "int8" in text else text


def _name(dtype: torch.dtype) -> str:
    import torch

    names = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
    return names.get(dtype, str(dtype).removeprefix("torch."))
