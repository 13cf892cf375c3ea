"""Whole channels, neurons and heads go, the outputs keep their shapes, and what follows takes the smaller model."""

import numpy as np
import pytest

from strop.errors import StageFailure
from strop.examples import Examples
from strop.runtimes import open_session
from strop.runtimes.modules import load_module
from strop.runtimes.rewrites import resized, rewrite
from strop.runtimes.session import run


def pruned(bench, model=None, **settings):
    model = model or bench.torch
    settings = {"amount": 0.5, "scope": "layer", "round_to": 1, "min_cosine": -1.0, **settings}
    return bench.step("prune", "structured", model, model, **settings)


def answers(bench, manifest, model, rows=range(5)):
    examples = Examples.read(bench.artifact(model).file("examples/test.parquet"))
    return next(iter(run(open_session(bench.artifact(manifest), threads=1), examples.batch(list(rows))).values()))


def test_channels_of_convolutions_go_and_every_runtime_takes_the_rest(digits_bench):
    made = pruned(digits_bench)
    assert made.status == "ok", made.error
    channels = made.details["channels"]
    # A sum binds the channels of its two terms, and a depthwise convolution has those of its input.
    assert channels == {name: [16, 8] for name in ("stem", "depthwise", "beside")} | {
        "wide": [32, 16],
        "inner": [32, 16],
    }
    assert made.details["left"] == {"head": "they are an output's"}
    module = load_module(digits_bench.artifact(made))
    assert tuple(module.inner.weight.shape) == (16, 16 * 16)  # the flattened image: 16 pixels of each channel
    assert module.depthwise.groups == 8
    assert made.details["parameters"] == sum(p.numel() for p in module.parameters())
    assert made.details["parameters"] < 0.4 * made.details["parameters_before"]
    exported = digits_bench.step("export", "onnx", made, digits_bench.torch, min_cosine=-1.0)
    assert exported.status == "ok", exported.error
    small = next(file.bytes for file in made.files if file.path == "weights.safetensors")
    assert small < 0.5 * next(f.bytes for f in digits_bench.torch.files if f.path == "weights.safetensors")
    same = (answers(digits_bench, m, digits_bench.torch) for m in (made, exported))
    np.testing.assert_allclose(*same, atol=1e-4)


def test_the_channels_of_least_norm_go(digits_bench):
    made = pruned(digits_bench, amount=0.25)
    before, after = (load_module(digits_bench.artifact(m)) for m in (digits_bench.torch, made))
    norms = (before.inner.weight.square().sum(1) + before.head.weight.square().sum(0)).tolist()
    kept = sorted(sorted(range(32), key=lambda channel: norms[channel])[8:])
    assert (after.head.weight == before.head.weight[:, kept]).all()


def test_channels_stay_a_multiple_of_what_is_asked(digits_bench):
    made = pruned(digits_bench, amount=0.3, round_to=8)
    assert {after % 8 for _, after in made.details["channels"].values()} == {0}
    wrong = pruned(digits_bench, round_to=0)
    assert wrong.error == "prune.round_to=0: a whole number from 1"


def test_layers_can_be_kept_by_name(digits_bench):
    made = pruned(digits_bench, keep=["wi*"])
    assert "wide" not in made.details["channels"]
    assert "inner" in made.details["channels"]
    wrong = pruned(digits_bench, keep=["wid"])
    assert wrong.error == "prune.keep: no layer is named 'wid'; did you mean 'wide'?"


def test_one_threshold_for_all_layers_takes_more_of_some(digits_bench):
    made = pruned(digits_bench, amount=0.3, scope="global")
    shares = {1 - after / before for before, after in made.details["channels"].values()}
    assert len(shares) > 1


def test_removing_nothing_has_no_effect(digits_bench):
    made = pruned(digits_bench, amount=0.0)
    assert made.status == "no_effect"
    assert "nothing could be removed (amount 0.0); left as they are: head" in made.error or "no layers" in made.error


def test_attention_of_unknown_make_and_the_width_of_the_blocks_stay(text_bench):
    made = pruned(text_bench)
    assert made.status == "ok", made.error
    assert made.details["channels"] == {"wide": [128, 64]}
    reasons = made.details["left"]
    assert {"head": "they are an output's"}.items() <= reasons.items()
    assert set(reasons.values()) >= {"the width that all blocks share"}
    for option, stage in (("torchao_int8_dynamic", "quantize"), ("torchscript", "compile")):
        after = text_bench.step(stage, option, made, text_bench.torch, min_cosine=-1.0)
        assert after.status == "ok", after.error


ODD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = torch.nn.Linear(8, 8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.fourth = torch.nn.Linear(4, 3)
    def forward(self, x):
        beside = x + self.first(x)          # bound to the input's width
        features = self.third(torch.relu(self.second(beside)))
        return {"logits": self.fourth(features), "features": features}
def build():
    return Net()
"""


def test_what_is_bound_to_inputs_and_outputs_is_found_by_trying(bench):
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))})
    model = bench.model(ODD, data)
    made = pruned(bench, model)
    assert made.status == "ok", made.error
    assert made.details["channels"] == {"second": [16, 8]}
    assert sorted(made.details["left"]) == ["first", "fourth", "third"]
    assert [tensor.shape for tensor in made.outputs] == [("batch", 3), ("batch", 4)]


@pytest.fixture(scope="module")
def encoder():
    """A small BERT with random weights of unlike size."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    return BertModel(config).eval()


def test_heads_of_least_norm_go_and_each_attention_keeps_one(encoder):
    import copy

    import torch

    from strop.stages.prune.heads import prune_heads

    module = copy.deepcopy(encoder)
    with torch.no_grad():
        for layer in module.encoder.layer:
            layer.attention.self.value.weight[4:8] *= 0.01  # of the second head
            layer.attention.output.dense.weight[:, 4:8] *= 0.01
    value = module.encoder.layer[0].attention.self.value.weight
    wanted = torch.cat([value[:4], value[8:]])
    assert prune_heads(module, 0.25, "layer", set()) == {f"encoder.layer.{at}.attention": [4, 3] for at in (0, 1)}
    assert torch.equal(module.encoder.layer[0].attention.self.value.weight, wanted)
    module = copy.deepcopy(encoder)
    assert prune_heads(module, 0.99, "global", set()) == {f"encoder.layer.{at}.attention": [4, 1] for at in (0, 1)}
    assert prune_heads(copy.deepcopy(encoder), 0.25, "layer", {"encoder.layer.0.attention"}).keys() == {
        "encoder.layer.1.attention"
    }


BERT = """
from strop.zoo.transformers_models import encoder_classifier
def build():
    return encoder_classifier({"model_type": "bert", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "intermediate_size": 32}, 3)
"""


def test_heads_and_neurons_of_transformers_go_and_what_is_left_exports(text_bench):
    model = text_bench.model(BERT, text_bench.data)
    made = pruned(text_bench, model)
    assert made.status == "ok", made.error
    assert made.details["heads"] == {f"encoder.encoder.layer.{at}.attention": [4, 2] for at in (0, 1)}
    assert made.details["channels"] == {f"encoder.encoder.layer.{at}.intermediate.dense": [32, 16] for at in (0, 1)}
    exported = text_bench.step("export", "onnx", made, model, min_cosine=-1.0)
    assert exported.status == "ok", exported.error
    int8 = text_bench.step("quantize", "ort_int8_dynamic", exported, model, min_cosine=-1.0)
    assert int8.status == "ok", int8.error
    np.testing.assert_allclose(*(answers(text_bench, m, model) for m in (made, exported)), atol=1e-4)


def test_sizes_are_described_without_knowing_the_layer():
    import torch

    class Own(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size, self.sizes, self.named, self.on = size, (size, 2), "name", True
            self.table = torch.nn.Parameter(torch.ones(size, 2))
            self.register_buffer("count", torch.ones(size, dtype=torch.int64))
            self.norm = torch.nn.BatchNorm1d(size)

    change = resized(Own(4), Own(3))
    assert change["layers"].keys() == {"", "norm"}
    assert change["layers"][""] == {
        "attributes": {"size": 3, "sizes": [3, 2]},
        "tensors": {"table": [3, 2], "count": [3]},
    }
    module = Own(4)
    rewrite(module, [change])
    module.load_state_dict(Own(3).state_dict())
    assert module.sizes == (3, 2)
    assert module.count.dtype == torch.int64
    assert isinstance(module.table, torch.nn.Parameter)
    with pytest.raises(StageFailure, match="the rewrite 'melt' is not known"):
        rewrite(module, [{"name": "melt"}])


def test_a_module_that_is_called_without_gradients_cannot_be_followed(bench):
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))})
    model = bench.model(ODD.replace("    def forward", "    @torch.no_grad()\n    def forward"), data)
    made = pruned(bench, model)
    assert made.status == "build_failed"
    assert "torch-pruning follows gradients: no output has one" in made.error
