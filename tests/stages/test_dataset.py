"""Splits do not overlap, equal examples count once, and what is wrong with the data is said."""

import numpy as np
import pytest
from support import full_settings

from strop.errors import StropError
from strop.examples import Examples
from strop.stages import dataset

SPLITS = {"train_size": 5, "calibration_size": 10, "test_size": 20}


def splits_of(bench, manifest):
    return {
        file.path.removesuffix(".parquet"): Examples.read(bench.artifact(manifest).file(file.path))
        for file in manifest.files
    }


def test_blobs_are_split_without_overlap_and_the_seed_makes_them(bench):
    first, again, other = (bench.do("dataset", "blobs", seed=seed, **SPLITS) for seed in (1, 1, 2))
    splits = splits_of(bench, first)
    assert {name: len(examples) for name, examples in splits.items()} == {"train": 5, "calibration": 10, "test": 20}
    ids = [name for examples in splits.values() for name in examples.ids]
    assert len(set(ids)) == 35
    assert first.files == again.files != other.files


def test_equal_examples_are_one_so_that_no_test_row_calibrates(bench):
    values = np.arange(40, dtype=np.float32).reshape(20, 2)
    np.savez(bench.project / "data.npz", x=np.concatenate([values, values]), labels=np.arange(40) % 3)
    sizes = {"calibration_size": 10, "test_size": 10}
    manifest = bench.do("dataset", "arrays", source={"path": "data.npz"}, **sizes)
    assert manifest.details["duplicates_dropped"] == 20
    rows = [tuple(row) for examples in splits_of(bench, manifest).values() for row in examples.columns["x"]]
    assert len(set(rows)) == len(rows) == 20
    short = bench.do("dataset", "arrays", source={"path": "data.npz"}, calibration_size=10, test_size=11)
    assert "20 distinct examples, 21 asked for" in short.error


def test_texts_keep_their_characters_and_missing_labels(bench):
    lines = ["text,label", '"größe, it\'s [fine]",1', "plain,0", "unlabelled,"]
    (bench.project / "reviews.csv").write_text("\n".join(lines), encoding="utf-8")
    sizes = {"calibration_size": 0, "test_size": 3}
    test = splits_of(bench, bench.do("dataset", "texts", source={"path": "reviews.csv"}, **sizes))["test"]
    found = {str(text): int(label) for text, label in zip(test.columns["text"], test.labels, strict=True)}
    assert found == {"größe, it's [fine]": 1, "plain": 0, "unlabelled": -1}
    wrong = bench.do("dataset", "texts", source={"path": "reviews.csv"}, text_column="txt", **sizes)
    assert wrong.error == "dataset.text_column=txt: reviews.csv has no such column; did you mean 'text'?"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 2)), "labels": np.zeros(2)}, "the same number of rows"),
        ({"x": np.asarray([{"a": 1}], dtype=object)}, "not an .npz file of plain arrays"),
    ],
)
def test_wrong_arrays_are_named(bench, arrays, words):
    np.savez(bench.project / "data.npz", **arrays)
    assert words in bench.do("dataset", "arrays", source={"path": "data.npz"}).error


def test_photos_have_their_label_in_the_name(bench):
    from PIL import Image

    folder = bench.project / "photos"
    folder.mkdir()
    for number, label in enumerate((7, 9)):
        Image.new("RGB", (30 + number, 20), (number, 0, 0)).save(folder / f"imagenet_{number:02}_{label}.jpg")
    (folder / "notes_x.jpg").write_text("no label, so no photo of the set")
    manifest = bench.do("dataset", "photos", source={"path": "photos"}, calibration_size=0, test_size=2)
    test = splits_of(bench, manifest)["test"]
    assert sorted(test.labels) == [7, 9]
    assert sorted(image.shape for image in test.columns["image"]) == [(20, 30, 3), (20, 31, 3)]


def test_reviews_leave_out_what_people_were_unsure_of(bench):
    folder = bench.project / "reviews"
    folder.mkdir()
    for name in ("movieReviewSnippets", "amazonReviewSnippets"):
        rows = [f"{number}\t{valence}\t{name} text {number}" for number, valence in enumerate((2.5, -1.0, 0.3, -0.5))]
        (folder / f"{name}_GroundTruth.txt").write_text("\n".join(rows), encoding="latin-1")
    sizes = {"train_size": 0, "calibration_size": 0, "test_size": 6}
    test = splits_of(bench, bench.do("dataset", "reviews", source={"path": "reviews"}, **sizes))["test"]
    labels = dict(zip(test.ids, test.labels, strict=True))
    assert labels["movieReviewSnippets:0"] == 1
    assert labels["movieReviewSnippets:1"] == 0
    assert len(labels) == 6


def test_a_test_split_is_needed(bench):
    job = bench.job("dataset", "blobs", {}, {})
    with pytest.raises(StropError, match="test_size"):
        dataset.blobs(job, **full_settings("dataset", "blobs", {"test_size": 0}))
