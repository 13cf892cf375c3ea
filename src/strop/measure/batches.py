"""Which examples are called together: the batches of a scenario, and inputs of the same shapes that it never calls."""

from __future__ import annotations

import numpy as np

from strop.examples import Examples

MOST_BATCHES = 32  # distinct batches: fewer would flatter a variant that remembers, more cost memory
MOST_UNSEEN = 8


def random_batches(examples: Examples, batch_size: int, seed: int) -> list[list[int]]:
    """Return up to 32 batches of random rows, in order of size.

    Where examples are fewer than a batch, they come again in it.
    """
    rng = np.random.default_rng(seed)
    count = max(1, min(MOST_BATCHES, len(examples) // batch_size))
    rows = rng.permutation(len(examples))
    return _by_size(np.resize(rows, (count, batch_size)), examples)


def sorted_batches(examples: Examples, batch_size: int, seed: int) -> list[list[int]]:
    """Return up to 32 batches of near lengths, in order of size, spread over all lengths."""
    order = np.argsort(examples.lengths(), kind="stable")
    full = max(1, len(order) // batch_size)
    batches = np.resize(order, (full, batch_size))
    picked = np.random.default_rng(seed).permutation(full)[:MOST_BATCHES]
    return _by_size(batches[picked], examples)


def _by_size(batches: np.ndarray, examples: Examples) -> list[list[int]]:
    """Return batches, int64 (batches, rows), ordered by the size of the padded batch."""
    ordered: list[list[int]] = batches[np.argsort(examples.lengths()[batches].max(axis=1), kind="stable")].tolist()
    return ordered


def unseen_twins(batches: list[list[int]], examples: Examples) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Return batches that have the shapes of others, but not their content.

    A batch's twin is the batch in another order of rows, or for a single row another one of the same length.

    Returns:
        Pairs of (a batch's index, its twin's index), spread over the sizes; and the twins, whose indices follow those
        of `batches`. Both are empty where there is nothing of the kind.
    """
    seen, used = {tuple(rows) for rows in batches}, {row for rows in batches for row in rows}
    spare: dict[int, list[int]] = {}
    for row, length in enumerate(examples.lengths().tolist()):
        if row not in used:
            spare.setdefault(length, []).append(row)
    pairs: list[tuple[int, int]] = []
    twins: list[list[int]] = []
    places = np.linspace(0, len(batches) - 1, min(MOST_UNSEEN, len(batches))).round().astype(int).tolist()
    for at in places:
        rows = batches[at]
        same_length = spare.get(int(examples.lengths()[rows[0]]), [])
        turned = rows[1:] + rows[:1]
        twin = turned if tuple(turned) not in seen else [same_length.pop()] if len(rows) == 1 and same_length else None
        if twin is not None:
            pairs.append((at, len(batches) + len(twins)))
            twins.append(twin)
    return pairs, twins
