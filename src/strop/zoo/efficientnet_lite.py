"""EfficientNet-Lite0, with the parameter names of its published PyTorch weights.

Source: M. Tan, Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019
(arXiv:1905.11946); the Lite variants drop squeeze-and-excitation and use ReLU6.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

EPSILON = 1e-3  # of batch normalization, as the weights were trained
# Kernel size, repeats, input and output channels, expansion, stride: one row a stage of the network.
STAGES = (
    (3, 1, 32, 16, 1, 1),
    (3, 2, 16, 24, 6, 2),
    (5, 2, 24, 40, 6, 2),
    (3, 3, 40, 80, 6, 2),
    (5, 3, 80, 112, 6, 1),
    (5, 4, 112, 192, 6, 2),
    (3, 1, 192, 320, 6, 1),
)


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's "SAME" padding: the output has ceil(input / stride) pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pad at the right and the bottom by the odd pixel, as TensorFlow does, and convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:])
        padded = F.pad(x, [width // 2, width - width // 2, height // 2, height - height // 2])
        return F.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=0.01)


class Block(nn.Module):
    """Inverted residual: expand, convolve each channel, project; added to its input where the shapes allow."""

    def __init__(self, kernel: int, before: int, after: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = before * expansion
        self._adds = stride == 1 and before == after
        self._expands = expansion != 1
        if self._expands:
            self._expand_conv = SameConv2d(before, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = SameConv2d(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = _norm(wide)
        self._project_conv = SameConv2d(wide, after, 1, bias=False)
        self._bn2 = _norm(after)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's features."""
        out = F.relu6(self._bn0(self._expand_conv(x))) if self._expands else x
        out = F.relu6(self._bn1(self._depthwise_conv(out)))
        out = self._bn2(self._project_conv(out))
        result: torch.Tensor = out + x if self._adds else out
        return result


class EfficientNetLite0(nn.Module):
    """`image`: float32 [batch, 3, height, width] to ImageNet logits [batch, classes]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, 2, bias=False)
        self._bn0 = _norm(32)
        blocks: list[nn.Module] = []
        for kernel, repeats, before, after, expansion, stride in STAGES:
            blocks.append(Block(kernel, before, after, expansion, stride))
            blocks += [Block(kernel, after, after, expansion, 1) for _ in range(repeats - 1)]
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(320, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        self._fc = nn.Linear(1280, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = F.relu6(self._bn0(self._conv_stem(image)))
        for block in self._blocks:
            x = block(x)
        x = F.relu6(self._bn1(self._conv_head(x)))
        logits: torch.Tensor = self._fc(x.mean(dim=(2, 3)))
        return logits


def efficientnet_lite0(classes: int = 1000) -> EfficientNetLite0:
    """Return the network, untrained."""
    return EfficientNetLite0(classes)
