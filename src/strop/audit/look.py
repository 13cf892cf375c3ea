"""What an audit sees in a model, whatever its format: its products, its weights, and what only moves values about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FLOATS = frozenset({"f64", "f32", "bf16", "f16"})
BITS = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}


@dataclass(frozen=True)
class Product:
    """One matrix product or convolution.

    Attributes:
        name, operator: of the node or layer.
        precision: the one that its numbers are multiplied in: `f32`, `bf16`, `f16`, `int8`, ...
        weights: numbers of its constant factor [1]; 0 where both factors are computed.
        kept: precision that this factor is kept in; None without one.
        macs: multiplications, each with its addition, for one example [1]; None where the shapes are not known.
    """

    name: str
    operator: str
    precision: str
    weights: int = 0
    kept: str | None = None
    macs: int | None = None


@dataclass
class Look:
    """What was seen.

    Attributes:
        products: in the order of the graph.
        weights: precision -> numbers of the weights kept in it [1]; weights are constants of two axes or more.
        zeros, counted: how many weights of products are zero, of those that tell [1].
        paired: how many of them stand in a group of four along the sum with at most two that are not zero [1].
        moves: operator -> number, of those that only change a type, a scale or a layout.
    """

    products: list[Product] = field(default_factory=list)
    weights: Counter[str] = field(default_factory=Counter)
    zeros: int = 0
    counted: int = 0
    paired: int = 0
    moves: Counter[str] = field(default_factory=Counter)

    def note_zeros(self, nonzero: Any, axis: int) -> None:
        """Count zeros of a product's weight, and groups of four along `axis`, the one that it adds over.

        Args:
            nonzero: numpy array of bool, the weight's shape.
            axis: of `nonzero`.
        """
        import numpy as np

        self.zeros += int(nonzero.size - np.count_nonzero(nonzero))
        self.counted += int(nonzero.size)
        if nonzero.shape[axis] % 4 == 0:
            groups = np.moveaxis(nonzero, axis, -1).reshape(-1, 4)
            self.paired += 4 * int(np.count_nonzero(groups.sum(1) <= 2))

    def as_dict(self) -> dict[str, Any]:
        """Return the audit's numbers as JSON values: shares [1], counts [1], and `weights_bytes` [byte] by precision.

        `work` is None where no product's shapes are known.
        """
        known = [product for product in self.products if product.macs is not None]
        work: Counter[str] = Counter()
        for product in known:
            work[product.precision] += product.macs or 0
        return {
            "parameters": sum(self.weights.values()),
            "weights": _shares(self.weights),
            "macs": sum(work.values()) if known else None,
            "work": _shares(work) if known else None,
            "products": len(self.products),
            "moves": dict(self.moves.most_common()),
            "sparsity": self.zeros / self.counted if self.counted else None,
            "two_four": self.paired / self.counted if self.counted else None,
            "weights_bytes": sum(count * BITS.get(kind, 32) // 8 for kind, count in self.weights.items()),
        }


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {kind: count / total for kind, count in sorted(counts.items(), key=lambda at: -at[1]) if count}
