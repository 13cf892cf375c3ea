"""Comparison of a model's outputs with the reference's: each output by itself, never an average over outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray]
INFINITE = float("inf")


@dataclass(frozen=True)
class Difference:
    """How far one output is from the reference's.

    Attributes:
        output: its name.
        cosine: of both outputs, flattened [1]; 1 if both are all zeros; 0 if either is not finite.
        max_abs: largest absolute difference, in the output's unit.
        relative_l2: norm of the difference over the reference's norm [1].
        worst_row: largest norm of a row's difference, over the row's norm or the median row's, whichever is larger [1].
        top1_agreement: share of rows whose largest value is at the same place; None unless there are rows of classes.
        problem: why it is wrong whatever the numbers say (shape, not finite, missing), or None.
    """

    output: str
    cosine: float
    max_abs: float
    relative_l2: float
    worst_row: float
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


def _difference(name: str, a: np.ndarray, b: np.ndarray | None) -> Difference:
    def wrong(problem: str) -> Difference:
        return Difference(name, 0.0, INFINITE, INFINITE, INFINITE, problem=problem)

    if b is None:
        return wrong(f"output '{name}' is missing")
    if a.shape != b.shape:
        return wrong(f"output '{name}' has shape {list(b.shape)}, the reference {list(a.shape)}")
    if a.dtype.kind in "USO" or b.dtype.kind in "USO":
        same = bool(np.array_equal(a.astype(str), b.astype(str)))
        far = 0.0 if same else INFINITE
        return Difference(name, float(same), far, far, far)
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    bad = ~np.isfinite(y) & np.isfinite(x)
    if bad.any():
        return wrong(f"output '{name}' has {int(bad.sum())} values that are not finite where the reference's are")
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if x.size == 0:
        return Difference(name, 1.0, 0.0, 0.0, 0.0)
    return Difference(
        name,
        _cosine(x, y),
        float(np.max(np.abs(x - y))),
        float(np.linalg.norm(x - y) / max(np.linalg.norm(x), np.finfo(np.float64).tiny)),
        _worst_row(a, b),
        _top1(a, b),
    )


def problem_of(difference: Difference, min_cosine: float) -> str | None:
    """Return why an output is wrong at a floor of agreement, or None.

    Two vectors of one length at cosine c differ by sqrt(2 (1 - c)) of it, so this much is allowed in all (a wrong
    scale has a cosine of 1), and twice as much in a single row: one ruined row hides among many good ones.
    """
    allowed = _allowed(min_cosine)
    name = f"output '{difference.output}'"
    if difference.problem:
        return difference.problem
    if difference.cosine < min_cosine:
        return f"{name}: cosine with the reference's is {difference.cosine:.4g}, the floor {min_cosine:g}"
    if difference.relative_l2 > allowed:
        return (
            f"{name}: differs by {difference.relative_l2:.3g} of its norm from the reference's, allowed {allowed:.3g}"
        )
    if difference.worst_row > 2 * allowed:
        return f"{name}: a row differs by {difference.worst_row:.3g} of its norm, allowed {2 * allowed:.3g}"
    return None


def floor_between(a: float, b: float) -> float:
    """Return the floor of agreement between two outputs whose floors of agreement with one reference are `a`, `b` [1].

    Each may be on another side of the reference, so they may be as far apart as both distances allowed together.
    """
    apart = min(2.0, _allowed(a) + _allowed(b))
    return 1 - apart**2 / 2


def _allowed(min_cosine: float) -> float:
    return float(np.sqrt(2 * (1 - min_cosine)))


def _worst_row(a: np.ndarray, b: np.ndarray) -> float:
    """Rows are those of the first axis; values that are not finite in the reference count as equal."""
    if a.ndim < 1 or a.size == 0:
        return 0.0
    x = np.nan_to_num(a.reshape(len(a), -1).astype(np.float64), posinf=0, neginf=0)
    y = np.nan_to_num(b.reshape(len(b), -1).astype(np.float64), posinf=0, neginf=0)
    norms = np.linalg.norm(x, axis=1)
    scale = np.maximum(np.maximum(norms, np.median(norms)), np.finfo(np.float64).tiny)
    return float(np.max(np.linalg.norm(x - y, axis=1) / scale))


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    norm = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norm == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(np.clip(np.dot(x, y) / norm, -1.0, 1.0))


def _top1(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.ndim < 2 or a.shape[-1] < 2 or a.dtype.kind != "f":
        return None
    return float(np.mean(np.argmax(a, axis=-1) == np.argmax(b, axis=-1)))
