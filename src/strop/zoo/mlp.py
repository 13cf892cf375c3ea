"""A small multilayer perceptron, for studies that must take seconds."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class Classifier(nn.Module):
    """Linear layers with ReLU between them; `x`: float32 [batch, features] to logits [batch, classes]."""

    def __init__(self, features: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        sizes = [features, *[hidden] * layers]
        parts: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            parts += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*parts, nn.Linear(sizes[-1], classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.layers(x)
        return logits


def classifier(features: int, hidden: int, layers: int, classes: int) -> Classifier:
    """Return a perceptron with the weights that torch's seed gives."""
    return Classifier(features, hidden, layers, classes)
