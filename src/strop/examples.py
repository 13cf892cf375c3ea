"""Examples as a model takes them: arrays without the batch axis, of any length, with ids and labels.

Stored as Parquet (`<input>` flat, `<input>.shape`), so that nothing is unpickled and strings are strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strop.errors import StropError
from strop.ids import digest

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Examples:
    """A split's examples.

    Attributes:
        ids: one name an example, unique over all splits.
        columns: input name -> one array an example, without the batch axis.
        labels: int64, shape (examples,), or None for unlabelled data; a label below 0 means "no label".
        padding: input name -> value that fills up shorter examples of a batch.
    """

    ids: list[str]
    columns: dict[str, list[np.ndarray]]
    labels: np.ndarray | None = None
    padding: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: list[int] | np.ndarray) -> Feeds:
        """Return the examples `rows` as one batch: input name -> array of shape (len(rows), ...).

        Examples of different shapes are padded at the end of each axis, up to the largest of this batch.
        """
        return {
            name: _stack([values[row] for row in rows], self.padding.get(name, 0))
            for name, values in self.columns.items()
        }

    def lengths(self) -> np.ndarray:
        """Return the number of elements of each example's first input, int64, shape (examples,)."""
        first = next(iter(self.columns.values()))
        return np.asarray([value.size for value in first], dtype=np.int64)

    def take(self, rows: list[int] | np.ndarray) -> Examples:
        """Return the examples `rows` as examples."""
        return Examples(
            [self.ids[row] for row in rows],
            {name: [values[row] for row in rows] for name, values in self.columns.items()},
            None if self.labels is None else self.labels[np.asarray(rows, dtype=np.int64)],
            self.padding,
        )

    def contents(self) -> list[str]:
        """Return one text an example, equal for equal inputs; ids and labels do not count."""
        parts = [[values[row] for values in self.columns.values()] for row in range(len(self))]
        return [digest([[str(part.shape), part.tobytes().hex()] for part in row]) for row in parts]

    def without(self, other: Examples) -> Examples:
        """Return the examples whose inputs are not among those of `other`."""
        known = set(other.contents())
        return self.take([row for row, content in enumerate(self.contents()) if content not in known])

    def write(self, path: Path) -> None:
        """Write as one Parquet file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        columns: dict[str, pa.Array] = {"id": pa.array(self.ids, pa.string())}
        if self.labels is not None:
            columns["label"] = pa.array(self.labels, pa.int64())
        metadata: dict[str, str] = {}
        for name, values in self.columns.items():
            columns[name] = _flat(values)
            columns[f"{name}.shape"] = pa.array([list(v.shape) for v in values], pa.list_(pa.int64()))
            metadata[f"dtype.{name}"] = str(values[0].dtype) if values else "float32"
            metadata[f"padding.{name}"] = repr(float(self.padding.get(name, 0)))
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)

    @classmethod
    def read(cls, path: Path) -> Examples:
        """Read what `write` wrote.

        Raises:
            StropError: the file is missing or damaged.
        """
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise StropError(f"{path}: examples cannot be read ({error})") from None
        metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        names = [key.removeprefix("dtype.") for key in metadata if key.startswith("dtype.")]
        columns = {name: _arrays(table, name, metadata[f"dtype.{name}"]) for name in names}
        labels = table["label"].to_numpy() if "label" in table.column_names else None
        padding = {name: float(metadata[f"padding.{name}"]) for name in names}
        return cls(table["id"].to_pylist(), columns, labels, padding)


def _flat(values: list[np.ndarray]) -> pa.Array:
    if values and values[0].dtype.kind in "US":
        texts = [np.char.decode(value, "utf-8") if value.dtype.kind == "S" else value for value in values]
        return pa.array([[str(x) for x in value.ravel()] for value in texts], pa.list_(pa.string()))
    flat = np.concatenate([value.ravel() for value in values]) if values else np.zeros(0, np.float32)
    offsets = np.concatenate([[0], np.cumsum([value.size for value in values], dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat))


def _arrays(table: pa.Table, name: str, dtype: str) -> list[np.ndarray]:
    shapes = table[f"{name}.shape"].to_pylist()
    column = table[name].combine_chunks()
    if dtype.startswith(("<U", "|S", "str")):
        return [np.asarray(v, dtype=str).reshape(s) for v, s in zip(column.to_pylist(), shapes, strict=True)]
    flat = column.values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    offsets = column.offsets.to_numpy()
    return [flat[offsets[i] : offsets[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]


def _stack(values: list[np.ndarray], fill: float) -> np.ndarray:
    shapes = {value.shape for value in values}
    if len(shapes) == 1:
        return np.stack(values)
    if len({value.ndim for value in values}) != 1:
        raise StropError(f"examples of one input differ in their number of axes: {sorted(map(len, shapes))}")
    full = np.max([value.shape for value in values], axis=0)
    text = values[0].dtype.kind in "US"
    out = np.full((len(values), *full), "" if text else fill, dtype=np.result_type(*values))  # the longest text fits
    for row, value in enumerate(values):
        place: tuple[int | slice, ...] = (row, *(slice(0, n) for n in value.shape))
        out[place] = value
    return out
