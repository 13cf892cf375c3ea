"""Optimizers say what they fused, change no output, and are `no_effect` where there is nothing for them."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.errors import StageFailure
from strop.examples import Examples
from strop.graph import compared
from strop.runtimes.modules import load_module, read_spec
from strop.runtimes.rewrites import rewrite

TINY_BERT = {
    "model_type": "bert", "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
FUSED = {
    "onnxscript_fusions": {"Attention": 2, "SkipLayerNormalization": 4, "BiasGelu": 2},
    "ort_transformers": {"SkipLayerNormalization": 4, "BiasGelu": 2},
}

CONVOLUTIONS = """
import torch
from torch import nn


class Own(nn.Conv2d):
    '''A convolution of a class that no library knows.'''

    def forward(self, x):
        return super().forward(nn.functional.pad(x, [0, 1, 0, 1]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.first = Own(3, 8, 2, bias=False), nn.BatchNorm2d(8)
        self.up, self.second = nn.ConvTranspose2d(8, 4, 2), nn.BatchNorm2d(4, affine=False)
        self.fork, self.third = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.twice, self.shared = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.head, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6)
        for norm in (self.first, self.second, self.third, self.shared, self.last):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            if norm.affine:
                nn.init.uniform_(norm.weight)
                nn.init.uniform_(norm.bias)

    def forward(self, x):
        x = torch.relu(self.first(self.stem(x)))
        x = self.second(self.up(x))
        forked = self.fork(x)
        x = self.third(forked) + forked
        x = self.shared(self.twice(self.shared(self.twice(x))))
        return self.last(self.head(x.mean((2, 3))))


def build():
    return Net()


class Plain(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1))


def plain():
    return Plain(75, 4)
"""


@pytest.fixture
def images(bench):
    rng = np.random.default_rng(0)
    return bench.dataset({"x": list(rng.normal(size=(20, 3, 5, 5)).astype(np.float32))})


@pytest.fixture(scope="module")
def bert(text_bench):
    """A BERT of two layers on the text bench's ids, in torch and in ONNX."""
    factory = "strop.zoo.transformers_models:sequence_classification"
    args = {"config": TINY_BERT}
    model = text_bench.do("model", "factory", {"dataset": text_bench.data.key}, factory=factory, factory_args=args)
    assert model.status == "ok", model.error
    exported = text_bench.step("export", "onnx", model, model, min_cosine=0.999)
    assert exported.status == "ok", exported.error
    return model, exported


@pytest.mark.parametrize("option", sorted(FUSED))
def test_transformers_are_fused_and_still_right(text_bench, bert, option):
    model, exported = bert
    made = text_bench.step("optimize", option, exported, model, min_cosine=0.99999)
    assert made.status == "ok", made.error
    gained = {name: count for name, count in made.details["fusions"].items() if name in FUSED[option]}
    assert gained == FUSED[option]
    assert made.details["fusions"]["LayerNormalization"] == -FUSED[option]["SkipLayerNormalization"]
    assert made.details["nodes"].get("Attention", 0) == FUSED[option].get("Attention", 0)
    engine = text_bench.step("engine", "onnxruntime", made, model, min_cosine=0.99999)
    assert engine.status == "ok", engine.error


def test_ort_transformers_reads_the_models_own_configuration(text_bench, bert):
    model, exported = bert
    made = text_bench.step("optimize", "ort_transformers", exported, model, level="disabled")
    told = {name: made.details[name] for name in ("model_type", "num_heads", "hidden_size")}
    assert told == {"model_type": "bert", "num_heads": 4, "hidden_size": 32}
    given = text_bench.step("optimize", "ort_transformers", exported, model, model_type="vit", num_heads=8)
    assert (given.details["model_type"], given.details["num_heads"]) == ("vit", 8)


def test_onnxslim_merges_a_normalization_and_then_finds_nothing(bench):
    rng = np.random.default_rng(0)
    data = bench.dataset({"x": list(rng.normal(size=(20, 3, 4, 4)).astype(np.float32))})
    ones = np.ones(5, np.float32)
    main = graph(
        "conv",
        [
            ("Conv", ["x", "w"], ["c"], {}),
            ("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"], {}),
        ],
        [value("x", "float32", "n", 3, 4, 4)],
        [value("y", "float32", "n", 5, 2, 2)],
        {
            "w": rng.normal(size=(5, 3, 3, 3)).astype(np.float32),
            "scale": 2 * ones, "bias": ones, "mean": -ones, "var": 3 * ones,
        },
    )  # fmt: skip
    model = onnx_model(bench, main, data)
    made = bench.step("optimize", "onnxslim", model, model, min_cosine=0.99999)
    assert made.status == "ok", made.error
    assert made.details["fusions"] == {"BatchNormalization": -1}
    again = bench.step("optimize", "onnxslim", made, model)
    assert (again.status, again.details["fusions"]) == ("no_effect", {})
    assert "nothing to change" in again.error


def test_weights_beside_the_file_stay_beside_it(bench, text_bench, bert):
    import onnx

    model, exported = bert
    path = bench.project / "big.onnx"
    loaded = onnx.load(str(text_bench.artifact(exported).file("model.onnx")))
    onnx.save(loaded, str(path), save_as_external_data=True, location="big.bin", size_threshold=1024)
    test = Examples.read(text_bench.artifact(model).file("examples/test.parquet"))
    given = bench.do("model", "onnx", {"dataset": bench.dataset(test.columns).key}, source={"path": path.name})
    assert given.status == "ok", given.error
    for option in ("onnxslim", "onnxscript_fusions", "ort_transformers"):
        made = bench.step("optimize", option, given, given, min_cosine=0.99999)
        assert made.status in ("ok", "no_effect"), made.error
        sizes = {file.path: file.bytes for file in made.files}
        assert sizes["model.onnx.data"] > 50_000  # [byte], of 84,000 that the weights of this size take


def test_normalizations_are_folded_where_nobody_else_reads(bench, images):
    model = bench.model(CONVOLUTIONS, images)
    assert model.status == "ok", model.error
    made = bench.step("optimize", "conv_bn", model, model, min_cosine=0.99999)
    assert made.status == "ok", made.error
    (rewritten,) = read_spec(bench.artifact(made))["rewrites"]
    assert rewritten["pairs"] == [["stem", "first"], ["up", "second"], ["head", "last"]]
    assert (made.details["folded"], made.details["norms"]) == (3, 5)
    assert made.details["fusions"] == {"batch_norm": -3}
    module = load_module(bench.artifact(made))
    assert type(module.first).__name__ == "Identity"
    assert module.stem.bias is not None
    exported = bench.step("export", "onnx", made, model, min_cosine=0.9999)
    assert exported.status == "ok", exported.error
    again = bench.step("optimize", "conv_bn", made, model)
    assert again.status == "no_effect"
    assert again.error == "none of 2 batch normalizations follows a layer of its own"


def test_without_normalizations_folding_has_no_effect(bench, images):
    model = bench.model(CONVOLUTIONS, images, factory="plain")
    assert model.status == "ok", model.error
    made = bench.step("optimize", "conv_bn", model, model)
    assert (made.status, made.error) == ("no_effect", "it has none to fold")


def test_an_unknown_rewrite_is_refused():
    with pytest.raises(StageFailure, match=r"the rewrite 'later' is not known; update strop"):
        rewrite(None, [{"name": "later"}])


def test_what_was_fused_is_the_difference_of_counts():
    found = compared({"Add": 3, "Erf": 1, "MatMul": 2}, {"Gelu": 1, "Add": 1, "MatMul": 2})
    assert list(found["fusions"].items()) == [("Gelu", 1), ("Erf", -1), ("Add", -2)]
