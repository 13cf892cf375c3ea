"""Attention heads of models of the transformers library, removed by the library itself."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def prune_heads(module: torch.nn.Module, amount: float, scope: str, keep: set[str]) -> dict[str, list[int]]:
    """Remove the heads whose weights have the smallest norm, and leave each attention at least one.

    Args:
        module: changed in place.
        amount: share of the heads to remove [1].
        scope: `layer`: of each attention; `global`: of all, each head by its norm over the mean in its attention.
        keep: names of layers that stay as they are.

    Returns:
        Name of the attention -> heads before and after, for those that lost some.
    """
    found = {name: item for name, item in _attentions(module).items() if name not in keep}
    scores = {name: scored for name, item in found.items() if (scored := _scores(*item))}
    left: dict[str, list[int]] = {}
    for name, heads in _smallest(scores, amount, scope).items():
        found[name][0].prune_heads(heads)
        left[name] = [len(scores[name]), len(scores[name]) - len(heads)]
    return left


def _attentions(module: torch.nn.Module) -> dict[str, tuple[Any, int]]:
    """Return name -> attention and number of its heads, for classes of transformers that can remove heads."""
    from transformers import PreTrainedModel

    found: dict[str, tuple[Any, int]] = {}
    for prefix, model in module.named_modules():
        heads = getattr(getattr(model, "config", None), "num_attention_heads", None)
        if not isinstance(model, PreTrainedModel) or not isinstance(heads, int):
            continue
        for name, layer in model.named_modules(prefix=prefix):
            if hasattr(layer, "prune_heads") and not isinstance(layer, PreTrainedModel):
                found[name] = (layer, heads)
    return found


def _scores(attention: Any, heads: int) -> list[float]:
    """Return each head's sum of squares over the mean of all heads' [1]; none if its class refuses to remove heads.

    What a head weighs is seen on a copy without it, so that no layer's name has to be known.
    """
    norms = []
    for head in range(heads):
        without = copy.deepcopy(attention)
        try:
            without.prune_heads({head})
        except NotImplementedError:
            return []
        norms.append(_squares(attention) - _squares(without))
    mean = sum(norms) / heads
    return [norm / mean for norm in norms]


def _squares(module: torch.nn.Module) -> float:
    return sum(float(parameter.detach().double().square().sum()) for parameter in module.parameters())


def _smallest(scores: dict[str, list[float]], amount: float, scope: str) -> dict[str, set[int]]:
    """Return name -> places of the smallest scores: the share `amount` of all or of each, but never the largest one."""
    rows = sorted(
        (score, name, place)
        for name, found in scores.items()
        for place, score in enumerate(found)
        if place != found.index(max(found))
    )
    if scope == "global":
        wanted = round(amount * sum(len(found) for found in scores.values()))
        chosen = rows[:wanted]
    else:
        chosen = []
        for name, found in scores.items():
            chosen += [row for row in rows if row[1] == name][: round(amount * len(found))]
    result: dict[str, set[int]] = {}
    for _, name, place in chosen:
        result.setdefault(name, set()).add(place)
    return result
