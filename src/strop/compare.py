"""Comparison of a model's outputs with the reference's: each output by itself, never an average over outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """How far one output is from the reference's.

    Attributes:
        output: its name.
        cosine: of both outputs, flattened [1]; 1 if both are all zeros; 0 if either is not finite.
        max_abs: largest absolute difference, in the output's unit.
        relative_l2: norm of the difference over the reference's norm [1].
        top1_agreement: share of rows whose largest value is at the same place; None unless there are rows of classes.
        problem: why it is wrong whatever the numbers say (shape, not finite, missing), or None.
    """

    output: str
    cosine: float
    max_abs: float
    relative_l2: float
    top1_agreement: float | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values (infinities become None)."""
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in asdict(self).items()}


def compare(reference: Outputs, found: Outputs) -> list[Difference]:
    """Compare each output of the reference with the one of the same name.

    Args:
        reference: output name -> array.
        found: output name -> array; further outputs are ignored.
    """
    return [_difference(name, value, found.get(name)) for name, value in reference.items()]


def worst(differences: list[Difference]) -> Difference:
    """Return the difference with a problem, or else the one with the lowest cosine."""
    return min(differences, key=lambda d: (d.problem is None, d.cosine))


def _difference(name: str, a: np.ndarray, b: np.ndarray | None) -> Difference:
    def wrong(problem: str) -> Difference:
        return Difference(name, 0.0, float("inf"), float("inf"), None, problem)

    if b is None:
        return wrong(f"output '{name}' is missing")
    if a.shape != b.shape:
        return wrong(f"output '{name}' has shape {list(b.shape)}, the reference {list(a.shape)}")
    if a.dtype.kind in "USO" or b.dtype.kind in "USO":
        same = bool(np.array_equal(a.astype(str), b.astype(str)))
        return Difference(name, float(same), 0.0 if same else float("inf"), 0.0 if same else float("inf"))
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    bad = ~np.isfinite(y) & np.isfinite(x)
    if bad.any():
        return wrong(f"output '{name}' has {int(bad.sum())} values that are not finite where the reference's are")
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if x.size == 0:
        return Difference(name, 1.0, 0.0, 0.0)
    return Difference(
        name,
        _cosine(x, y),
        float(np.max(np.abs(x - y))),
        float(np.linalg.norm(x - y) / max(np.linalg.norm(x), np.finfo(np.float64).tiny)),
        _top1(a, b),
    )


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    norm = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norm == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(np.clip(np.dot(x, y) / norm, -1.0, 1.0))


def _top1(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.ndim < 2 or a.shape[-1] < 2 or a.dtype.kind != "f":
        return None
    return float(np.mean(np.argmax(a, axis=-1) == np.argmax(b, axis=-1)))
