"""Labelled examples in three splits without overlap: train, calibration, test."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from strop.errors import StropError, nearest
from strop.examples import Examples
from strop.job import Job, Made
from strop.sources import fetch

SPLITS = ("train", "calibration", "test")
UNSURE = 0.5  # reviews rated nearer to 0 than this are neither positive nor negative


def reviews(
    job: Job, *, source: dict[str, Any], train_size: int, calibration_size: int, test_size: int, seed: int
) -> Made:
    """Sentences of film and product reviews with the mean valence that people gave them, -4 to 4; label 1: positive.

    Source: C. Hutto, E. Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media
    Text", ICWSM 2014. `source` is the folder with the `*_GroundTruth.txt` files (tab: id, valence, text).
    """
    folder = _fetch(job, source)
    ids, texts, labels = [], [], []
    for name in ("movieReviewSnippets", "amazonReviewSnippets"):
        for line in (folder / f"{name}_GroundTruth.txt").read_text(encoding="latin-1").splitlines():
            number, valence, text = line.split("\t", 2)
            if abs(float(valence)) >= UNSURE:
                ids.append(f"{name}:{number}")
                texts.append(np.asarray(text.strip()))
                labels.append(int(float(valence) > 0))
    examples = Examples(ids, {"text": texts}, np.asarray(labels))
    return _write(job, examples, (train_size, calibration_size, test_size), seed)


def photos(
    job: Job, *, source: dict[str, Any], train_size: int, calibration_size: int, test_size: int, seed: int
) -> Made:
    """Photos named `<anything>_<number>_<label>.jpg` in a folder: uint8 RGB, shape (height, width, 3), any size."""
    from PIL import Image

    files = sorted(path for path in _fetch(job, source).glob("*.jpg") if path.stem.rpartition("_")[2].isdigit())
    images = []
    for file in files:
        with Image.open(file) as image:
            images.append(np.asarray(image.convert("RGB")))
    labels = np.asarray([int(file.stem.rpartition("_")[2]) for file in files], dtype=np.int64)
    examples = Examples([file.stem for file in files], {"image": images}, labels)
    return _write(job, examples, (train_size, calibration_size, test_size), seed)


def blobs(
    job: Job, *, train_size: int, calibration_size: int, test_size: int, seed: int, features: int, classes: int
) -> Made:
    """Points around one random centre for each class, float32 [features]: made from the seed, for quick studies."""
    rng = np.random.default_rng(seed)
    total = train_size + calibration_size + test_size
    labels = rng.integers(0, classes, total)
    centres = rng.normal(0.0, 2.0, (classes, features))
    points = (centres[labels] + rng.normal(0.0, 1.0, (total, features))).astype(np.float32)
    examples = Examples([f"blob:{row}" for row in range(total)], {"x": list(points)}, labels)
    return _write(job, examples, (train_size, calibration_size, test_size), seed)


def arrays(
    job: Job, *, source: dict[str, Any], train_size: int, calibration_size: int, test_size: int, seed: int
) -> Made:
    """Arrays of an `.npz` file: one for each of the model's inputs, first axis: examples; `labels` are optional."""
    path = _fetch(job, source)
    try:
        with np.load(path, allow_pickle=False) as data:
            columns = {name: data[name] for name in data.files}
    except (OSError, ValueError) as error:
        raise StropError(f"dataset.source.path: {path.name} is not an .npz file of plain arrays ({error})") from None
    labels = columns.pop("labels", None)
    counts = {name: len(values) for name, values in {**columns, "labels": labels}.items() if values is not None}
    if len(set(counts.values())) != 1 or not columns:
        raise StropError(f"dataset.source.path: {path.name}: all arrays need the same number of rows, not {counts}")
    ids = [f"{path.stem}:{row}" for row in range(next(iter(counts.values())))]
    examples = Examples(
        ids,
        {name: list(values) for name, values in columns.items()},
        None if labels is None else np.asarray([_label(label, row, path) for row, label in enumerate(labels)]),
    )
    return _write(job, examples, (train_size, calibration_size, test_size), seed)


def texts(
    job: Job,
    *,
    source: dict[str, Any],
    train_size: int,
    calibration_size: int,
    test_size: int,
    seed: int,
    text_column: str,
    label_column: str,
) -> Made:
    """Texts and integer labels of a CSV or Parquet file; an empty label means that there is none."""
    path = _fetch(job, source)
    table = _read_table(path)
    for setting, column in (("text_column", text_column), ("label_column", label_column)):
        if column not in table:
            raise StropError(f"dataset.{setting}={column}: {path.name} has no such column; {nearest(column, table)}")
    examples = Examples(
        [f"{path.stem}:{row}" for row in range(len(table[text_column]))],
        {"text": [np.asarray(str(text)) for text in table[text_column]]},
        np.asarray([_label(value, row, path) for row, value in enumerate(table[label_column])], dtype=np.int64),
    )
    return _write(job, examples, (train_size, calibration_size, test_size), seed)


def _fetch(job: Job, source: dict[str, Any]) -> Path:
    return fetch(source, project=job.project, results=job.results, setting="dataset.source")


def _read_table(path: Path) -> dict[str, list[Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
        return columns
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        found: dict[str, list[Any]] = {name: [] for name in rows.fieldnames or ()}
        for row in rows:
            for name, values in found.items():
                values.append(row[name])
    return found


def _label(value: Any, row: int, path: Path) -> int:
    """Return a label as an integer; a float that is none is refused, not cut."""
    if value is None or (isinstance(value, str) and value == ""):
        return -1
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        number = None
    if number is None or (not isinstance(value, str) and number != value):
        raise StropError(f"{path.name}: row {row}: label '{value}' is not an integer")
    return number


def _write(job: Job, examples: Examples, sizes: tuple[int, int, int], seed: int) -> Made:
    """Write the splits. Equal examples count once, so that no test example is also one of calibration."""
    kept = _distinct(examples)
    if sum(sizes) > len(kept):
        words = " + ".join(f"{name}_size {size}" for name, size in zip(SPLITS, sizes, strict=True))
        raise StropError(f"dataset: {len(kept)} distinct examples, {sum(sizes)} asked for ({words}); ask for fewer")
    if sizes[2] < 1:
        raise StropError("dataset.test_size: at least one example is needed to check and time a model")
    order = np.random.default_rng(seed).permutation(kept)
    ends = np.cumsum([0, *sizes])
    for name, start, end in zip(SPLITS, ends[:-1], ends[1:], strict=True):
        if end > start:
            examples.take(order[start:end]).write(job.folder / f"{name}.parquet")
    return Made(
        details={
            "examples": dict(zip(SPLITS, sizes, strict=True)),
            "available": len(kept),
            "duplicates_dropped": len(examples) - len(kept),
        }
    )


def _distinct(examples: Examples) -> np.ndarray:
    """Return the first row of each set of equal examples, int64."""
    seen: dict[str, int] = {}
    for row, content in enumerate(examples.contents()):
        seen.setdefault(content, row)
    return np.asarray(sorted(seen.values()), dtype=np.int64)
