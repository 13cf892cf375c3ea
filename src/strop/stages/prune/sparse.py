"""Set weights to zero. The file stays as it is in size and, without kernels that skip zeros, in speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.job import Job, Made
from strop.runtimes.modules import load_module
from strop.stages.prune.common import Weights, check_amount, finish, weights_of

if TYPE_CHECKING:
    import torch

GROUP = 4
KEPT = 2  # of each group


def magnitude(job: Job, *, amount: float, scope: str, recover: dict[str, Any]) -> Made:
    """Set the smallest weights of linear and convolution layers to zero.

    Source: S. Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NIPS 2015
    (arXiv:1506.02626).
    """
    check_amount(amount)
    module = load_module(job.artifact("source"))
    weights = weights_of(module)
    together = [weights] if scope == "global" else [{name: weight} for name, weight in weights.items()]
    masks = {name: mask for some in together for name, mask in _largest(some, amount).items()}
    _apply(weights, masks)
    nothing = f"no weight was set to zero (amount {amount})"
    return finish(job, module, recover, {"layers": len(weights)}, masks=masks, nothing=nothing)


def two_four(job: Job, *, recover: dict[str, Any]) -> Made:
    """Of each four weights in a row along a layer's input, set the two smallest to zero: the 2:4 pattern.

    Source: A. Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021 (arXiv:2104.08378). Layers whose input
    size is not divisible by four stay as they are.
    """
    module = load_module(job.artifact("source"))
    weights = weights_of(module)
    fitting = {name: weight for name, weight in weights.items() if weight.shape[1] % GROUP == 0}
    masks = {name: _two_largest(weight) for name, weight in fitting.items()}
    _apply(weights, masks)
    details = {
        "layers": len(fitting),
        "left": sorted(weights.keys() - fitting.keys()),
        "two_four_share": _two_four_share(weights),
    }
    nothing = "all weights are in the 2:4 pattern" if fitting else "no layer's input size is divisible by 4"
    return finish(job, module, recover, details, masks=masks, nothing=nothing)


def _apply(weights: Weights, masks: Weights) -> None:
    import torch

    with torch.no_grad():
        for name, mask in masks.items():
            weights[name].mul_(mask)


def _largest(weights: Weights, amount: float) -> Weights:
    """Return masks without the share `amount` of smallest magnitude over all `weights`, exactly that many."""
    import torch

    if not weights:
        return {}
    sizes = [weight.numel() for weight in weights.values()]
    magnitudes = torch.cat([weight.detach().abs().flatten() for weight in weights.values()])
    smallest = torch.topk(magnitudes, round(amount * sum(sizes)), largest=False).indices
    keep = torch.ones(sum(sizes), dtype=torch.bool)
    keep[smallest] = False
    parts = zip(weights.items(), keep.split(sizes), strict=True)
    return {name: mask.view_as(weight) for (name, weight), mask in parts}


def _groups(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight [out, in, ...] as groups of four along its input, shape [groups, 4]."""
    return weight.detach().movedim(1, -1).reshape(-1, GROUP)


def _two_largest(weight: torch.Tensor) -> torch.Tensor:
    """Return a mask that keeps the two largest of each group; the first of equal ones."""
    import torch

    groups = _groups(weight)
    kept = groups.abs().argsort(dim=1, descending=True, stable=True)[:, :KEPT]
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, kept, True)
    return mask.view(weight.movedim(1, -1).shape).movedim(-1, 1).contiguous()


def _two_four_share(weights: Weights) -> float:
    """Return the share of the weights that lie in a group with at most two that are not zero [1]."""
    total = sum(weight.numel() for weight in weights.values())
    fitting = [weight for weight in weights.values() if weight.shape[1] % GROUP == 0]
    valid = sum(int(((_groups(weight) != 0).sum(1) <= KEPT).sum()) * GROUP for weight in fitting)
    return valid / max(total, 1)
