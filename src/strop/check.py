"""Is an artifact right? Its outputs on real examples are held against the reference's, one output at a time.

The same eight examples go through alone, in pairs, in fours and as one batch, the shortest and the longest among
them: a length, a batch size or a neighbour that was baked in or leaks shows as a difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strop.artifact import Artifact, Manifest, Tensor
from strop.compare import Outputs, compare, problem_of
from strop.errors import StageFailure, one_line
from strop.examples import Examples
from strop.job import Job
from strop.runtimes.cuda import CudaOptions
from strop.runtimes.session import Session, open_session, run

PROBES = 8
BATCH_SIZES = (1, 2, 4, 8)
PROBE_FILE = "probes.npz"
SAME = 1e-5  # relative difference of two calls of one model, which may add in another order


def probe_rows(examples: Examples) -> list[int]:
    """Return up to 8 rows: spread over the lengths from the shortest to the longest, and the row of largest values."""
    order = np.argsort(examples.lengths(), kind="stable")
    picked = [int(order[at]) for at in np.linspace(0, len(order) - 1, min(PROBES, len(order))).round().astype(int)]
    largest = int(np.argmax(_largest(examples)))
    if largest not in picked and len(picked) > 2:
        picked[len(picked) // 2] = largest
    return picked


def _largest(examples: Examples) -> np.ndarray:
    """Return each row's largest float, over what is usual for that input [1], so that no input hides another's."""
    found = np.zeros(len(examples))
    for column in examples.columns.values():
        if column[0].dtype.kind == "f":
            sizes = np.asarray([np.max(np.abs(value), initial=0.0) for value in column], dtype=np.float64)
            usual = np.median(sizes[np.isfinite(sizes)]) if np.isfinite(sizes).any() else 0.0
            found = np.maximum(found, sizes / (usual or 1.0))
    return found


def fixed_batch(inputs: tuple[Tensor, ...]) -> int | None:
    """Return the number of rows that a model insists on, or None if it takes any."""
    return next((tensor.shape[0] for tensor in inputs if tensor.shape and isinstance(tensor.shape[0], int)), None)


def groups(rows: list[int], batch: int | None) -> list[list[list[int]]]:
    """Return the rows cut into batches of each size; each list of batches holds the same rows in the same order."""
    if batch is not None:
        rows = (rows * batch)[: max(len(rows) // batch, 1) * batch]
        return [[rows[at : at + batch] for at in range(0, len(rows), batch)]]
    sizes = [size for size in BATCH_SIZES if size <= len(rows)]
    return [[rows[at : at + size] for at in range(0, len(rows), size)] for size in sizes]


def answers(session: Session, examples: Examples, batches: list[list[int]]) -> list[Outputs]:
    """Return the outputs of each batch."""
    return [run(session, examples.batch(rows)) for rows in batches]


def write_reference(job: Job, draft: Manifest) -> tuple[dict[str, Any], str | None]:
    """Call a model twice, keep its outputs for later checks, and return (check, why it is no reference or None)."""
    artifact = Artifact.draft(job.folder, draft)
    examples = Examples.read(artifact.file("examples/test.parquet"))
    batches = groups(probe_rows(examples), fixed_batch(draft.inputs))
    once, again = (_all_answers(artifact, job, examples, batches) for _ in range(2))
    repeated = _largest_difference(once[0], once[1])
    fresh = _largest_difference(once[0], again[0])
    _write_probes(job.folder / PROBE_FILE, batches, once[0])
    check = {"rows": batches[0], "same_twice": repeated, "same_in_a_fresh_session": fresh}
    if repeated > SAME:
        kind = "random" if fresh > SAME else "stateful"
        return check, (
            f"the reference is {kind}: called twice on the same input, its outputs differ by {repeated:.3g} "
            "of their norm; nothing can be compared with it"
        )
    if not any(_tells(value) for outputs in once[0] for value in outputs.values()):
        return check, (
            "the reference gives no finite number on the test examples, or nothing at all: "
            "empty outputs are always equal; give it examples that have an answer"
        )
    return check, None


def _tells(output: np.ndarray) -> bool:
    """Return whether an output holds a value that another could differ from."""
    return bool(np.isfinite(output).any()) if output.dtype.kind in "fc" else output.size > 0


def _all_answers(
    artifact: Artifact, job: Job, examples: Examples, batches: list[list[list[int]]]
) -> list[list[Outputs]]:
    """Return what a fresh session answers to all batches, and what it answers to them a second time."""
    session = _open(artifact, job)
    flat = [rows for group in batches for rows in group]
    return [answers(session, examples, flat) for _ in range(2)]


def _open(artifact: Artifact, job: Job) -> Session:
    """Open a session as it is timed: what is checked must be what is measured."""
    cuda = CudaOptions.from_settings(job.device)
    return open_session(artifact, threads=job.threads, device=job.device["kind"], cuda=cuda)


def _largest_difference(first: list[Outputs], second: list[Outputs]) -> float:
    """Return the largest relative difference of an output between two rounds of calls [1]; 1 if one is missing."""
    found = [item for one, other in zip(first, second, strict=True) for item in compare(one, other)]
    return max(1.0 if item.problem else min(item.relative_l2, 1.0) for item in found)


def _write_probes(path: Path, batches: list[list[list[int]]], outputs: list[Outputs]) -> None:
    flat = [rows for group in batches for rows in group]
    arrays = {f"rows_{at}": np.asarray(rows) for at, rows in enumerate(flat)}
    arrays["names"] = np.asarray(list(outputs[0]), dtype=str)
    for at, found in enumerate(outputs):
        arrays |= {f"output_{at}_{index}": value for index, value in enumerate(found.values())}
    np.savez(path, **arrays)  # type: ignore[arg-type] # numpy types its allow_pickle only


def _read_probes(path: Path) -> tuple[list[list[int]], list[Outputs]]:
    with np.load(path, allow_pickle=False) as data:
        names = [str(name) for name in data["names"]]
        rows = [data[f"rows_{at}"].tolist() for at in range(sum(key.startswith("rows_") for key in data.files))]
        return rows, [
            {name: data[f"output_{at}_{index}"] for index, name in enumerate(names)} for at in range(len(rows))
        ]


def check(job: Job, draft: Manifest, min_cosine: float) -> tuple[dict[str, Any], str | None]:
    """Compare an artifact with the reference.

    Args:
        job: the step that made it; `model` is among its upstream.
        draft: the artifact's manifest, not written yet.
        min_cosine: floor of agreement (`strop.compare.problem_of`) [1].

    Returns:
        What was compared: one entry for each batch size and output; and why the artifact is wrong, or None.

    Raises:
        StageFailure: the artifact does not load.
    """
    model = job.artifact("model")
    examples = Examples.read(model.file("examples/test.parquet"))
    batches, wanted = _read_probes(model.file(PROBE_FILE))
    session = _open(Artifact.draft(job.folder, draft), job)
    found: dict[int, list[int]] = {}
    for at, rows in enumerate(batches):
        found.setdefault(len(rows), []).append(at)
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    for size, members in found.items():
        try:
            got = answers(session, examples, [batches[at] for at in members])
        except StageFailure:
            raise
        except Exception as error:
            lengths = sorted({int(n) for at in members for n in examples.take(batches[at]).lengths()})
            problems.append(
                f"batch {size}, lengths {lengths[0]} to {lengths[-1]}: the call fails: {one_line(error, 160)}"
            )
            continue
        for difference in compare(join([wanted[at] for at in members]), join(got)):
            entries.append({"batch_size": size, **difference.as_dict()})
            if reason := problem_of(difference, min_cosine):
                problems.append(f"batch {size}: {reason}")
    return {"min_cosine": min_cosine, "facts": session.facts, "outputs": entries}, problems[0] if problems else None


def join(parts: list[Outputs]) -> Outputs:
    """Return each output of several calls as one array: rows after rows, or flat where the shapes differ."""
    joined = {}
    for name in parts[0]:
        values = [part[name] for part in parts if name in part]
        if len(values) < len(parts):
            continue  # an output that is missing in one call is missing
        same = all(value.ndim and value.shape[1:] == values[0].shape[1:] for value in values)
        joined[name] = np.concatenate(values if same else [value.ravel() for value in values])
    return joined
