"""Labels that are cut to integers, and test rows that calibrate, make numbers that nobody notices."""

import numpy as np
import pytest

from strop.examples import Examples

SIZES = {"calibration_size": 10, "test_size": 20}


@pytest.mark.parametrize(
    ("labels", "shown"), [(np.arange(30) / 2, "0.5"), (np.where(np.arange(30) == 1, np.nan, 1.0), "nan")]
)
def test_labels_that_are_no_integers_are_refused_not_cut(bench, row, labels, shown):
    np.savez(bench.project / "data.npz", x=np.random.default_rng(0).normal(size=(30, 2)), labels=labels)
    made = bench.do("dataset", "arrays", source={"path": "data.npz"}, **SIZES)
    row("labels", f"dataset=arrays, label {shown}", made.status, made.error)
    assert made.status == "build_failed"
    assert made.error == f"data.npz: row 1: label '{shown}' is not an integer"


def test_whole_numbers_and_their_signs_are_kept(bench):
    labels = np.where(np.arange(30) % 3 == 0, -100.0, 2.0)
    np.savez(bench.project / "data.npz", x=np.random.default_rng(0).normal(size=(30, 2)), labels=labels)
    made = bench.do("dataset", "arrays", source={"path": "data.npz"}, **SIZES)
    assert made.status == "ok", made.error
    test = Examples.read(bench.artifact(made).file("test.parquet"))
    assert {test.labels.dtype.kind, *test.labels.tolist()} == {"i", -100, 2}


def test_a_table_of_floats_is_refused_at_the_row_that_is_none(bench):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, 1.5]}), bench.project / "t.parquet")
    made = bench.do("dataset", "texts", source={"path": "t.parquet"}, calibration_size=0, test_size=2)
    assert made.error == "t.parquet: row 1: label '1.5' is not an integer"


def test_one_hot_labels_are_refused(bench):
    np.savez(bench.project / "data.npz", x=np.random.default_rng(0).normal(size=(30, 2)), labels=np.eye(30))
    made = bench.do("dataset", "arrays", source={"path": "data.npz"}, **SIZES)
    assert made.status == "build_failed"
    assert "row 0: label" in made.error


LINEAR = "import torch\ndef build():\n    return Net()\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
LINEAR += "        super().__init__()\n        self.fc = torch.nn.Linear(4, 3)\n"
LINEAR += "    def forward(self, x):\n        return self.fc(x)\n"


def test_calibration_rows_that_are_test_rows_are_dropped_and_counted(bench, row):
    rows = np.random.default_rng(33).normal(size=(40, 4)).astype(np.float32)
    rows[:5] = rows[20:25]  # as two texts become one when they are cut to one length
    model = bench.model(LINEAR, bench.dataset({"x": list(rows)}))
    assert model.details["calibration_dropped"] == 5
    artifact = bench.artifact(model)
    calibration, test = (Examples.read(artifact.file(f"examples/{name}.parquet")) for name in ("calibration", "test"))
    assert (len(calibration), len(test)) == (3, 32)
    assert not set(calibration.contents()) & set(test.contents())
    rows[:8] = rows[20:28]
    model = bench.model(LINEAR, bench.dataset({"x": list(rows)}))
    onnx = bench.step("export", "onnx", model, model, min_cosine=0.999)
    made = bench.step("quantize", "ort_int8_static", onnx, model)
    row("labels", "quantize=ort_int8_static, all calibration rows are test rows", made.status, made.error)
    assert made.status == "calibration_failed"


def test_labels_below_zero_are_counted_and_classes_that_are_not_there_are_named(bench, row):
    rows = np.random.default_rng(33).normal(size=(40, 4)).astype(np.float32)
    labels = np.where(np.arange(40) % 4 == 0, -100, np.arange(40) % 3)
    model = bench.model(LINEAR, bench.dataset({"x": list(rows)}, labels))
    scores = bench.do("evaluate", "classification", {"source": model.key, "model": model.key}, batch_size=7)
    row("labels", "evaluate=classification, label -100", scores.status, f"{scores.details['ignored']} rows left out")
    assert (scores.details["examples"], scores.details["ignored"]) == (24, 8)
    labels[20] = 7
    model = bench.model(LINEAR, bench.dataset({"x": list(rows)}, labels))
    made = bench.do("evaluate", "classification", {"source": model.key, "model": model.key})
    row("labels", "evaluate=classification, label 7 of 3 classes", made.status, made.error)
    assert made.error == "test example row:20: label 7, but the model has 3 classes"
