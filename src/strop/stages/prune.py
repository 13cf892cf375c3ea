"""Set weights to zero. The file stays as it is in size and, without kernels that skip zeros, in speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strop.errors import StropError
from strop.job import Job, Made
from strop.runtimes.modules import load_module, save_like

if TYPE_CHECKING:
    import torch


def magnitude(job: Job, *, amount: float, scope: str) -> Made:
    """Set the smallest weights of linear and convolution layers to zero.

    Source: S. Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NIPS 2015
    (arXiv:1506.02626), without the retraining.
    """
    import torch

    if not 0 <= amount < 1:
        raise StropError(f"prune.amount={amount}: a share from 0 to below 1")
    source = job.artifact("source")
    module = load_module(source)
    weights = dict(_weights(module))
    before = _sparsity(weights)
    with torch.no_grad():
        if scope == "global":
            _zero_smallest(list(weights.values()), amount)
        else:
            for weight in weights.values():
                _zero_smallest([weight], amount)
    save_like(source, module, job.folder)
    after = _sparsity(weights)
    details: dict[str, Any] = {"sparsity_before": before, "sparsity": after, "layers": len(weights)}
    if not weights or after <= before:
        details |= {"status": "no_effect", "status_reason": f"no weight was set to zero (amount {amount})"}
    return Made("torch", details=details)


def _weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    kinds = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    for name, layer in module.named_modules():
        if isinstance(layer, kinds):
            yield name, layer.weight


def _zero_smallest(weights: list[torch.Tensor], amount: float) -> None:
    """Set the share `amount` of smallest magnitude over all `weights` to zero, exactly that many."""
    import torch

    sizes = [weight.numel() for weight in weights]
    magnitudes = torch.cat([weight.detach().abs().flatten() for weight in weights])
    smallest = torch.topk(magnitudes, round(amount * sum(sizes)), largest=False).indices
    keep = torch.ones(sum(sizes), dtype=torch.bool)
    keep[smallest] = False
    for weight, mask in zip(weights, keep.split(sizes), strict=True):
        weight.mul_(mask.view_as(weight))


def _sparsity(weights: dict[str, torch.Tensor]) -> float:
    total = sum(weight.numel() for weight in weights.values())
    return sum(int((weight == 0).sum()) for weight in weights.values()) / max(total, 1)
