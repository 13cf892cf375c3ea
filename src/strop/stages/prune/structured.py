"""Remove whole channels, neurons and attention heads, so that every dense runtime has less to do."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure, StropError, nearest, one_line
from strop.job import Job, Made
from strop.runtimes.modules import load_module, named_outputs, read_spec
from strop.stages.export import example_feeds
from strop.stages.prune.common import check_amount, finish, weights_of
from strop.stages.prune.heads import prune_heads

if TYPE_CHECKING:
    import torch

PRODUCTS = ("Bmm", "ScaledDotProduct")  # of activations: attention, in torch's names of gradients


def structured(job: Job, *, amount: float, scope: str, round_to: int, keep: list[str], recover: dict[str, Any]) -> Made:
    """Remove channels of convolutions, neurons of linear layers, and attention heads of models of transformers.

    Those go whose weights, in all layers that they run through, have the smallest L2 norm. Sources: G. Fang et al.,
    "DepGraph: Towards Any Structural Pruning", CVPR 2023 (arXiv:2301.12900); of the heads P. Michel et al., "Are
    Sixteen Heads Really Better than One?", NeurIPS 2019 (arXiv:1905.10650), who rank them by gradients.
    """
    check_amount(amount)
    if round_to < 1:
        raise StropError(f"prune.round_to={round_to}: a whole number from 1")
    source = job.artifact("source")
    module = load_module(source).requires_grad_(True)
    kept = _matching(module, keep)
    heads = prune_heads(module, amount, scope, kept)
    call = Call(example_feeds(job, source.manifest.inputs), read_spec(source)["outputs"])
    pruned, left = without_channels(module, call, {"amount": amount, "scope": scope, "round_to": round_to}, kept)
    details = {"heads": heads, "channels": _narrowed(module, pruned), "left": left}
    nothing = f"nothing could be removed (amount {amount}); left as they are: {', '.join(left) or 'no layers'}"
    return finish(job, pruned.requires_grad_(False), recover, details, masks={}, nothing=nothing)


@dataclass(frozen=True)
class Call:
    """A call of a module: its inputs, and the names of its outputs as in its spec."""

    feeds: dict[str, Any]
    names: list[str] | None

    def __call__(self, module: torch.nn.Module, _: Any = None) -> list[torch.Tensor]:
        """Return the outputs of a module."""
        import torch

        feeds = {name: torch.from_numpy(value) for name, value in self.feeds.items()}
        return list(named_outputs(module(**feeds), self.names).values())

    def shapes(self, module: torch.nn.Module) -> list[list[int]]:
        """Return the shapes of the outputs of a module."""
        import torch

        with torch.no_grad():
            return [list(output.shape) for output in self(module)]


def without_channels(
    module: torch.nn.Module, call: Call, how: dict[str, Any], kept: set[str]
) -> tuple[torch.nn.Module, dict[str, str]]:
    """Return a copy of a module without some of its channels, and name of layer -> why its channels all stayed.

    A layer whose loss of channels changes the shape of an output, or makes the call fail, is left as it is: then the
    library did not see where its channels go, or they are the output.
    """
    left = _bound(module, call)
    while True:
        pruned = copy.deepcopy(module)
        wrong = _prune_channels(pruned, call, how, {*kept, *left})
        if wrong is None:
            return pruned, left
        left[wrong[0]] = wrong[1]


def _prune_channels(module: torch.nn.Module, call: Call, how: dict[str, Any], kept: set[str]) -> tuple[str, str] | None:
    """Remove channels in place; return the first layer after which the module fails or answers in other shapes."""
    import torch_pruning

    wanted = call.shapes(module)
    layers = [module.get_submodule(name) for name in sorted(kept)]
    names = {layer: name for name, layer in module.named_modules()}
    with _followed():
        pruner = torch_pruning.BasePruner(
            module,
            call.feeds,
            torch_pruning.importance.GroupMagnitudeImportance(p=2),
            global_pruning=how["scope"] == "global",
            pruning_ratio=how["amount"],
            ignored_layers=layers,
            round_to=how["round_to"],
            in_channel_groups={},  # the library's own defaults are shared by all of its pruners
            out_channel_groups={},
            num_heads={},
            root_module_types=_kinds(),
            forward_fn=call,
        )
        for group in pruner.step(interactive=True):
            root = names[group[0].dep.target.module]
            try:
                group.prune()
                found = call.shapes(module)
            except Exception as error:
                return root, one_line(error, 160)
            if found != wanted:
                return root, "they are an output's"
    return None


def _bound(module: torch.nn.Module, call: Call) -> dict[str, str]:
    """Return name of layer -> why its channels stay, for the layers whose channels can be seen to mean more."""
    import torch
    import torch_pruning

    names = {layer: name for name, layer in module.named_modules()}
    found: dict[str, str] = {}
    if not any(output.requires_grad for output in call(module)):
        raise StageFailure(
            "build_failed", "torch-pruning follows gradients: no output has one (torch.no_grad in forward?)"
        )
    with _followed():
        graph = torch_pruning.DependencyGraph().build_dependency(module, call.feeds, forward_fn=call)
        for group in graph.get_all_groups(root_module_types=_kinds()):
            through = [dep.target.module for dep, _ in group]
            norms = sum(isinstance(layer, torch.nn.LayerNorm) for layer in through)
            if norms > 1 or any(isinstance(layer, torch.nn.Embedding) for layer in through):
                found[names[through[0]]] = "the width that all blocks share"
            elif any(word in str(layer) for layer in through for word in PRODUCTS):
                found[names[through[0]]] = "attention: whole heads go or none, and only where transformers removes them"
    return found


def _kinds() -> list[type]:
    """Return the kinds of layers whose channels may be removed."""
    import torch

    return [torch.nn.modules.conv._ConvNd, torch.nn.Linear]


@contextlib.contextmanager
def _followed() -> Iterator[None]:
    """Let the library trace a module: it needs gradients, warns of what it guesses, and we look at what it did."""
    import torch

    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:
            raise StageFailure("build_failed", f"torch-pruning cannot follow this module: {one_line(error)}") from error


def _narrowed(before: torch.nn.Module, after: torch.nn.Module) -> dict[str, list[int]]:
    """Return name of layer -> its channels before and after, for layers that lost some."""
    widths = [{name: int(weight.shape[0]) for name, weight in weights_of(module).items()} for module in (before, after)]
    return {
        name.removesuffix(".weight"): [width, widths[1][name]]
        for name, width in widths[0].items()
        if width != widths[1][name]
    }


def _matching(module: torch.nn.Module, patterns: list[str]) -> set[str]:
    """Return the names of the submodules that patterns match.

    Raises:
        StropError: one matches nothing.
    """
    names = [name for name, _ in module.named_modules() if name]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise StropError(f"prune.keep: no layer is named '{pattern}'; {nearest(pattern, names)}")
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}
