"""Changes of a module's layers that its factory does not know of: `model.json` names them, and loading repeats them.

Only the layers are made here; their weights are in the artifact, as all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure

if TYPE_CHECKING:
    import torch


def fold_norms(module: torch.nn.Module, pairs: list[list[str]]) -> None:
    """Give each layer a bias, and put nothing in the place of the normalization after it.

    Args:
        module: changed in place.
        pairs: names of a convolution or linear layer and of its normalization.
    """
    import torch

    for layer_name, norm_name in pairs:
        layer = module.get_submodule(layer_name)
        norm: Any = module.get_submodule(norm_name)
        if getattr(layer, "bias", None) is None:
            layer.bias = torch.nn.Parameter(torch.zeros(norm.num_features, dtype=norm.running_mean.dtype))
        parent, _, own = norm_name.rpartition(".")
        setattr(module.get_submodule(parent), own, torch.nn.Identity())


def resize(module: torch.nn.Module, layers: dict[str, dict[str, Any]]) -> None:
    """Give layers other sizes, whatever their classes; their weights are zeros.

    Args:
        module: changed in place.
        layers: name of a submodule -> what `sizes` says of it.
    """
    import torch

    for name, sizes_of in layers.items():
        layer = module.get_submodule(name)
        for key, value in sizes_of["attributes"].items():
            setattr(layer, key, tuple(value) if isinstance(value, list) else value)
        for key, shape in sizes_of["tensors"].items():
            old = getattr(layer, key)
            new = old.new_zeros(shape)
            setattr(layer, key, torch.nn.Parameter(new) if isinstance(old, torch.nn.Parameter) else new)


def sizes(layer: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Return what tells a layer's size: `attributes`, its integers and tuples of them; `tensors`, their shapes."""
    own = {**dict(layer.named_parameters(recurse=False)), **dict(layer.named_buffers(recurse=False))}
    numbers = {name: value for name, value in vars(layer).items() if not name.startswith("_") and _is_size(value)}
    return {
        "attributes": {name: list(value) if isinstance(value, tuple) else value for name, value in numbers.items()},
        "tensors": {name: list(value.shape) for name, value in own.items()},
    }


def _is_size(value: Any) -> bool:
    """Return whether a value counts something: bool is an int in Python, and counts nothing."""
    if isinstance(value, tuple):
        return all(_is_size(item) for item in value)
    return isinstance(value, int) and not isinstance(value, bool)


def resized(before: torch.nn.Module, after: torch.nn.Module) -> dict[str, Any]:
    """Return the rewrite that gives the layers of `before` the sizes that those of the same names have in `after`."""
    layers: dict[str, dict[str, Any]] = {}
    for name, layer in after.named_modules():
        old, new = sizes(before.get_submodule(name)), sizes(layer)
        changed = {
            kind: {key: value for key, value in new[kind].items() if old[kind].get(key) != value}
            for kind in ("attributes", "tensors")
        }
        if any(changed.values()):
            layers[name] = changed
    return {"name": "resize", "layers": layers}


REWRITES: dict[str, Callable[..., None]] = {"fold_norms": fold_norms, "resize": resize}


def rewrite(module: torch.nn.Module, rewrites: list[dict[str, Any]]) -> None:
    """Change a module as its spec says: `name` of the rewrite, and its arguments.

    Raises:
        StageFailure: `build_failed`: an unknown name; the artifact is of a newer strop.
    """
    for item in rewrites:
        arguments = dict(item)
        name = arguments.pop("name")
        if name not in REWRITES:
            raise StageFailure("build_failed", f"model.json: the rewrite '{name}' is not known; update strop")
        REWRITES[name](module, **arguments)
