"""A model artifact needs nothing but its folder, and says if it is no reference."""

import numpy as np
import pytest
from support import TEXT_MODEL

from strop.examples import Examples
from strop.runtimes import open_session
from strop.runtimes.session import run


@pytest.fixture
def points(bench):
    rng = np.random.default_rng(0)
    return bench.dataset({"x": list(rng.normal(size=(24, 4)).astype(np.float32))}, rng.integers(0, 2, 24))


LINEAR = """
import torch
def build(classes=2):
    return torch.nn.Sequential({"0": torch.nn.Linear(4, classes)}) if False else Net(classes)
class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = torch.nn.Linear(4, classes)
    def forward(self, x):
        return self.fc(x)
"""


def test_a_factory_from_a_file_is_copied_and_gives_the_same_outputs(bench, points):
    model = bench.model(LINEAR, points, factory_args={"classes": 3})
    assert model.status == "ok", model.error
    assert model.inputs[0].shape == ("batch", 4)
    assert model.outputs[0].shape == ("batch", 3)
    (bench.project / "user_model.py").unlink()  # the artifact has its own copy
    artifact = bench.artifact(model)
    examples = Examples.read(artifact.file("examples/test.parquet"))
    first, again = (run(open_session(artifact, threads=1), examples.batch([0, 1])) for _ in range(2))
    assert np.array_equal(first["output_0"], again["output_0"])
    assert not list(artifact.folder.rglob("*.pyc"))  # Python would write it anew, and the artifact's bytes would change
    assert not any("pycache" in file.path for file in model.files)


def test_a_state_dict_gives_the_weights(bench, points):
    import torch

    torch.save({"fc.weight": torch.ones(2, 4), "fc.bias": torch.zeros(2)}, bench.project / "w.pth")
    model = bench.model(LINEAR, points, source={"path": "w.pth"})
    artifact = bench.artifact(model)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.allclose(run(open_session(artifact, threads=1), {"x": x})["output_0"], x.sum(1, keepdims=True))
    torch.save({"fc.weight": torch.ones(2, 5), "fc.bias": torch.zeros(2)}, bench.project / "w.pth")
    wrong = bench.model(LINEAR, points, source={"path": "w.pth"})
    assert wrong.status == "build_failed"
    assert "w.pth: its weights do not load" in wrong.error


def test_weights_are_never_unpickled(bench, points):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(bench.project / "opened"), "w"))

    (bench.project / "w.pth").write_bytes(pickle.dumps(Evil()))
    model = bench.model(LINEAR, points, source={"path": "w.pth"})
    assert model.status == "build_failed"
    assert not (bench.project / "opened").exists()


STATEFUL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return self.fc(x) + self.calls
def build():
    return Net()
class Random(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x) + torch.rand(x.shape[0], 2)
def build_random():
    return Random()
class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
    def forward(self, x):
        return lambda: self.fc(x)
def build_lazy():
    return Lazy()
"""


@pytest.mark.parametrize(
    ("factory", "status", "words"),
    [
        ("build", "unstable", "the reference is stateful: called twice on the same input"),
        ("build_random", "unstable", "the reference is random"),
        ("build_lazy", "wrong_output", "output 'output_0' is a function, not a tensor"),
        ("build_nothing", "build_failed", "has no attribute 'build_nothing'"),
    ],
)
def test_what_is_no_reference_is_said(bench, points, factory, status, words):
    model = bench.model(STATEFUL, points, factory=factory)
    assert model.status == status
    assert words in model.error


def test_inputs_that_the_model_does_not_take_are_named(bench):
    data = bench.dataset({"y": [np.zeros(4, np.float32)] * 12})
    assert "the dataset gives 'y', but the model's forward takes ['x']" in bench.model(LINEAR, data).error


def test_axes_that_vary_together_share_a_name(text_bench):
    shapes = {tensor.name: tensor.shape for tensor in text_bench.torch.inputs}
    assert shapes == {"input_ids": ("batch", "sequence"), "attention_mask": ("batch", "sequence")}


def bert(folder, labels=3):
    """Write a tiny BERT with a head as save_pretrained does, with a tokenizer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *["the", "a", "film", "was", "good", "bad", "very", "not"]]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32, num_labels=labels)  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)


@pytest.fixture
def texts(bench):
    words = ["the", "a", "film", "was", "good", "bad", "very", "not"]
    rng = np.random.default_rng(1)
    rows = [np.asarray(" ".join(rng.choice(words, rng.integers(1, 9)))) for _ in range(40)]
    return bench.dataset({"text": rows}, [int("good" in str(row)) for row in rows])


def test_a_transformers_folder_becomes_a_module_that_exports_with_optimum(bench, texts):
    bert(bench.project / "bert")
    model = bench.do("model", "transformers", {"dataset": texts.key}, source={"path": "bert"}, max_length=16)
    assert model.status == "ok", model.error
    assert [tensor.name for tensor in model.inputs] == ["input_ids", "attention_mask"]
    assert model.outputs[0].shape == ("batch", 3)
    assert "vocab.txt" in {file.path for file in model.files}
    exported = bench.step("export", "optimum", model, model, min_cosine=0.999)
    assert exported.status == "ok", exported.error
    assert [tensor.name for tensor in exported.inputs] == ["input_ids", "attention_mask"]
    assert {entry["batch_size"] for entry in exported.check["outputs"]} == {1, 2, 4, 8}


def test_a_head_is_fitted_to_the_train_split(bench, texts):
    bert(bench.project / "bert")
    untrained = bench.do(
        "model", "transformers", {"dataset": texts.key}, source={"path": "bert"}, head="logistic", max_length=16
    )
    assert untrained.error == "model.head=logistic: needs labelled training examples; set dataset.train_size"
    dataset = bench.artifact(texts)
    train = Examples.read(dataset.file("test.parquet"))
    train.write(dataset.folder / "train.parquet")
    import dataclasses

    from strop.artifact import list_files, write_manifest

    write_manifest(dataclasses.replace(texts, files=list_files(dataset.folder)), dataset.folder)
    model = bench.do(
        "model", "transformers", {"dataset": texts.key}, source={"path": "bert"}, head="logistic", max_length=16
    )
    assert model.status == "ok", model.error
    assert model.details["head_train_accuracy"] > 0.5
    assert model.details["train_dropped"] == len(train)  # they are the test's, and who trains later must not see them
    assert len(Examples.read(bench.artifact(model).file("examples/train.parquet"))) == 0


def test_a_folder_without_a_config_is_named(bench, texts):
    (bench.project / "empty").mkdir()
    model = bench.do("model", "transformers", {"dataset": texts.key}, source={"path": "empty"})
    assert "holds no config.json" in model.error


def test_an_onnx_file_keeps_its_side_car_and_refuses_other_inputs(bench, text_bench):
    import onnx

    graph = onnx.load(str(text_bench.artifact(text_bench.onnx).file("model.onnx")))
    onnx.save(
        graph, str(bench.project / "big.onnx"), save_as_external_data=True, location="big.bin", size_threshold=1024
    )
    test = Examples.read(text_bench.artifact(text_bench.torch).file("examples/test.parquet"))
    data = bench.dataset(test.columns, test.labels, calibration=4)
    model = bench.do("model", "onnx", {"dataset": data.key}, source={"path": "big.onnx"})
    assert model.status == "ok", model.error
    assert {"big.bin", "model.onnx"} <= {file.path for file in model.files}
    assert model.size_bytes > (bench.project / "big.bin").stat().st_size
    floats = bench.dataset({name: [row.astype(np.float32) for row in rows] for name, rows in test.columns.items()})
    wrong = bench.do("model", "onnx", {"dataset": floats.key}, source={"path": "big.onnx"})
    assert "'input_ids' is float32, the model takes int64" in wrong.error


def test_the_text_model_is_what_other_tests_think(text_bench):
    assert "class Classifier" in TEXT_MODEL
    assert text_bench.torch.check["same_twice"] == 0.0
