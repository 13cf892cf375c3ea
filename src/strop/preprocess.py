"""From raw examples (texts, photos) to a model's inputs. The same inputs go to the reference and to every variant.

What a model cannot take is refused here, before anything is timed: runtimes differ in what they make of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from strop.artifact import Tensor
from strop.errors import StropError
from strop.examples import Examples


def tokenize(raw: Examples, folder: Path, max_length: int) -> Examples:
    """Return token ids and attention mask of texts, int64, shape (tokens,), without padding.

    Args:
        raw: examples with a column `text`.
        folder: holds the tokenizer's files; no code of it is run.
        max_length: longest text [token]; what is longer is cut.
    """
    from transformers import AutoTokenizer

    texts = [str(text) for text in _column(raw, "text")]
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    encoded = tokenizer(texts, truncation=True, max_length=max_length) if texts else {"input_ids": []}
    ids = [np.asarray(row, dtype=np.int64) for row in encoded["input_ids"]]
    mask = [np.ones(row.shape, dtype=np.int64) for row in ids]
    columns = {"input_ids": ids, "attention_mask": mask}
    padding = {"input_ids": float(tokenizer.pad_token_id or 0), "attention_mask": 0.0}
    return Examples(raw.ids, columns, raw.labels, padding)


def photographs(raw: Examples, name: str, size: int, crop: float, mean: float, std: float) -> Examples:
    """Return images as a model takes them: float32, shape (3, size, size).

    The centre square of `crop` of the short side, resized with bicubic interpolation, RGB, (x - mean) / std.

    Args:
        raw: examples with a column `image`: uint8, shape (height, width, 3).
        name: the model's input.
        size: height and width [pixel].
        crop: share of the short side [1].
        mean: is subtracted from pixel values 0 to 255.
        std: divides what is left.
    """
    images = [_photograph(image, size, crop, mean, std) for image in _column(raw, "image")]
    return Examples(raw.ids, {name: images}, raw.labels)


def _photograph(image: np.ndarray, size: int, crop: float, mean: float, std: float) -> np.ndarray:
    from PIL import Image

    height, width = image.shape[:2]
    side = crop * min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    box = (round(left), round(top), round(left + side), round(top + side))
    resized = Image.fromarray(image).crop(box).resize((size, size), Image.Resampling.BICUBIC)
    scaled = (np.asarray(resized, dtype=np.float32) - np.float32(mean)) / np.float32(std)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _column(raw: Examples, name: str) -> list[np.ndarray]:
    if name not in raw.columns:
        raise StropError(f"the model takes a '{name}' per example, but the dataset has {sorted(raw.columns)}")
    return raw.columns[name]


def check_inputs(examples: Examples, inputs: tuple[Tensor, ...], split: str) -> None:
    """Refuse examples that a graph cannot take.

    Raises:
        StropError: an input has no batch axis or no column, or an example's type or shape is another; it is named.
    """
    for tensor in inputs:
        if not tensor.shape:
            raise StropError(
                f"the model's input '{tensor.name}' has no axis (a scalar): strop feeds batches, one value an example; "
                "give it a first axis for the batch, or make it a constant of the model"
            )
        if tensor.name not in examples.columns:
            raise StropError(
                f"the model's input '{tensor.name}' is not in the dataset, which has {list(examples.columns)}"
            )
        for row, value in enumerate(examples.columns[tensor.name]):
            where = f"{split} example {row}: '{tensor.name}'"
            dtype = "str" if value.dtype.kind in "US" else str(value.dtype)
            if dtype != tensor.dtype:
                raise StropError(f"{where} is {dtype}, the model takes {tensor.dtype}")
            fixed = list(tensor.shape[1:])
            if len(fixed) != value.ndim or any(
                isinstance(want, int) and want != got for want, got in zip(fixed, value.shape, strict=False)
            ):
                raise StropError(f"{where} has shape {list(value.shape)}, the model takes {fixed}")


def check_ids(examples: Examples, ranges: dict[str, tuple[int, int]], split: str) -> None:
    """Refuse ids that a model's table has no row for: PyTorch raises there, OpenVINO reads zeros.

    Args:
        examples: a split.
        ranges: input -> smallest and largest id.
        split: its name, for the message.

    Raises:
        StropError: an id is out of range; the input and the example are named.
    """
    for name, (low, high) in ranges.items():
        for row, value in enumerate(examples.columns.get(name, [])):
            wrong = value[(value < low) | (value > high)]
            if wrong.size:
                raise StropError(
                    f"{split} example {row} ({examples.ids[row]}): '{name}' holds the id {wrong.flat[0]}, the model's "
                    f"table has {low} to {high}; make ids with the model's own tokenizer"
                )
