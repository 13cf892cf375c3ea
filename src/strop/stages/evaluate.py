"""Quality on the test split, of the very artifact that is timed, in its runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from strop import records
from strop.check import fixed_batch
from strop.errors import StageFailure, StropError
from strop.examples import Examples
from strop.job import Job, Made
from strop.runtimes.cuda import CudaOptions
from strop.runtimes.session import Session, open_session, run


def classification(job: Job, *, batch_size: int) -> Made:
    """Accuracy: the share of labelled examples whose largest logit is at the label; a label below 0 is no label."""
    examples = Examples.read(job.artifact("model").file("examples/test.parquet"))
    session = open_session(
        job.artifact("source"),
        threads=job.threads,
        device=job.device["kind"],
        cuda=CudaOptions.from_settings(job.device),
    )
    predictions, classes = predict(session, examples, batch_size)
    labels = examples.labels
    _check_labels(examples, classes)
    rows: list[dict[str, Any]] = [
        {
            "example_id": name,
            "label": None if labels is None or labels[row] < 0 else int(labels[row]),
            "prediction": int(predictions[row]),
            "score": None if labels is None or labels[row] < 0 else float(predictions[row] == labels[row]),
        }
        for row, name in enumerate(examples.ids)
    ]
    records.write("predictions", rows, job.folder / "predictions.parquet")
    scores = [row["score"] for row in rows if row["score"] is not None]
    details = {
        "metric": "accuracy",
        "quality": float(np.mean(scores)) if scores else None,
        "examples": len(scores),
        "ignored": len(rows) - len(scores),
    }
    return Made(details=details)


def predict(session: Session, examples: Examples, batch_size: int) -> tuple[np.ndarray, int | None]:
    """Return the class of each example, int64, shape (examples,), and the number of classes if the outputs tell.

    Batches are of examples of near lengths, in the batch size that the model insists on if it does.
    """
    size = fixed_batch(session.inputs) or batch_size
    order = np.argsort(examples.lengths(), kind="stable")
    predictions = np.full(len(examples), -1, dtype=np.int64)
    classes = None
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        padded = np.concatenate([rows, np.full(size - len(rows), rows[-1])]) if fixed_batch(session.inputs) else rows
        outputs = run(session, examples.batch(padded))
        found, classes = classes_of(outputs[session.outputs[0].name])
        predictions[rows] = found[: len(rows)]
    return predictions, classes


def classes_of(output: np.ndarray) -> tuple[np.ndarray, int | None]:
    """Return the classes that an output means: the largest of each row's logits, or integers as they are."""
    if output.ndim == 1 and output.dtype.kind in "iu":
        return output, None
    if output.ndim != 2 or output.shape[1] < 2 or output.dtype.kind != "f":
        raise StropError(
            f"evaluate=classification: the first output has shape {list(output.shape)} and type {output.dtype}; "
            "logits of shape (batch, classes) are needed"
        )
    if np.isnan(output).any():
        raise StageFailure("wrong_output", f"{int(np.isnan(output).any(axis=1).sum())} rows of logits hold NaN")
    return output.argmax(axis=1), output.shape[1]


def _check_labels(examples: Examples, classes: int | None) -> None:
    if examples.labels is None or classes is None:
        return
    wrong = np.flatnonzero(examples.labels >= classes)
    if wrong.size:
        row = int(wrong[0])
        raise StropError(
            f"test example {examples.ids[row]}: label {examples.labels[row]}, but the model has {classes} classes"
        )
