"""What all ways of pruning share: to say what was taken, to train what is left, and to write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.errors import StropError
from strop.job import Job, Made
from strop.runtimes.modules import load_module, read_spec, save_like
from strop.runtimes.rewrites import resized
from strop.stages.prune.recovery import recovered

if TYPE_CHECKING:
    import torch

Weights = dict[str, "torch.Tensor"]


def check_amount(amount: float) -> None:
    """Refuse a share that takes all, or less than nothing.

    Raises:
        StropError: it is not from 0 to below 1.
    """
    if not 0 <= amount < 1:
        raise StropError(f"prune.amount={amount}: a share from 0 to below 1")


def weights_of(module: torch.nn.Module) -> Weights:
    """Return parameter name -> weight of each linear and convolution layer; a shared weight counts once."""
    import torch

    kinds = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    named = ((f"{name}.weight" if name else "weight", layer) for name, layer in module.named_modules())
    found = {name: layer.weight for name, layer in named if isinstance(layer, kinds)}
    first = {id(weight): name for name, weight in reversed(found.items())}
    return {name: found[name] for name in found if first[id(found[name])] == name}


def zeros(module: torch.nn.Module) -> float:
    """Return the share of zeros in the weights of a module's linear and convolution layers [1]; 0 if there are none."""
    weights = weights_of(module).values()
    return sum(int((weight == 0).sum()) for weight in weights) / max(sum(weight.numel() for weight in weights), 1)


def finish(
    job: Job,
    module: torch.nn.Module,
    recover: dict[str, Any],
    details: dict[str, Any],
    *,
    masks: Weights,
    nothing: str,
) -> Made:
    """Train a pruned module if that is asked for, write it, and describe it.

    Args:
        job: the step; `source` is what was pruned.
        module: pruned, with the names of the source's layers.
        recover: `strop.settings.Recover` as a dict.
        details: what else the manifest says.
        masks: parameter name -> bool mask of the weights that may be other than zero.
        nothing: why nothing changed, should that be so.
    """
    source = job.artifact("source")
    before = load_module(source)
    counts = [sum(parameter.numel() for parameter in item.parameters()) for item in (before, module)]
    shares = [zeros(before), zeros(module)]
    details |= {
        "parameters_before": counts[0],
        "parameters": counts[1],
        "sparsity_before": shares[0],
        "sparsity": shares[1],
    }
    if counts[1] == counts[0] and shares[1] <= shares[0]:
        return Made("torch", details=details | {"status": "no_effect", "status_reason": nothing})
    rewrite = resized(before, module)
    rewrites = [*read_spec(source)["rewrites"], *([rewrite] if rewrite["layers"] else [])]
    del before  # training needs the memory
    if recover["epochs"]:
        details["recovery"] = recovered(job, module, masks, recover)
        details["sparsity"] = zeros(module)
    save_like(source, module, job.folder, rewrites=rewrites)
    return Made("torch", details=details)
