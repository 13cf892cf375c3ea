"""A small network of convolutions, trained on the 1,797 scanned digits (8x8 pixels) that scikit-learn carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support import Bench

TRAIN, CALIBRATION = 1200, 16
CODE = """
import torch
from torch import nn


class Digits(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.beside = nn.Conv2d(width, width, 1)
        self.wide = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.inner, self.head = nn.Linear(2 * width * 16, 32), nn.Linear(32, 10)

    def forward(self, image):
        x = torch.relu(self.norm(self.stem(image)))
        x = x + self.beside(torch.relu(self.depthwise(x)))
        x = torch.relu(self.wide(x)).flatten(1)
        return self.head(torch.relu(self.inner(x)))


def build():
    return Digits()
"""


def make_digits(folder: Path) -> Bench:
    """Return a bench with the data as `data` and the trained network as `model`."""
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (pixels[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), labels[order]
    bench = Bench(folder)
    scope: dict = {}
    exec(CODE, scope)
    torch.manual_seed(0)
    module = scope["build"]()
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    x = torch.from_numpy(images[CALIBRATION : CALIBRATION + TRAIN])
    y = torch.from_numpy(labels[CALIBRATION : CALIBRATION + TRAIN])
    for _ in range(5):
        for rows in torch.randperm(TRAIN).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
    torch.save(module.state_dict(), folder / "digits.pth")
    bench.data = bench.dataset({"image": list(images)}, labels, CALIBRATION, TRAIN)
    bench.torch = bench.model(CODE, bench.data, source={"path": "digits.pth"})
    assert bench.torch.status == "ok", bench.torch.error
    return bench
