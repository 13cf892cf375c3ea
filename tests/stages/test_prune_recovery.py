"""Training after pruning: from the train split alone, to the same weights each time, from where a killed job stood."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from support import full_settings

from strop.settings import Recover
from strop.stages.__main__ import attempt
from strop.stages.prune.checkpoint import Checkpoint
from strop.stages.prune.training import Progress, Trainer, batches

SETTINGS = {**dataclasses.asdict(Recover()), "epochs": 3, "learning_rate": 2e-3, "batch_size": 64}


def recovery(bench, model=None, option="magnitude", changes=None, **settings):
    model = model or bench.torch
    settings = {"min_cosine": -1.0, **({"amount": 0.8} if option == "magnitude" else {}), **settings}
    return bench.step("prune", option, model, model, recover={**SETTINGS, **(changes or {})}, **settings)


def weights(bench, manifest):
    from strop.runtimes.modules import load_module

    return {name: value.numpy() for name, value in load_module(bench.artifact(manifest)).state_dict().items()}


def quality(bench, manifest):
    upstream = {"source": manifest.key, "model": bench.torch.key}
    return bench.do("evaluate", "classification", upstream).details["quality"]


def test_training_takes_back_what_pruning_lost_and_removed_weights_stay_removed(digits_bench):
    plain = digits_bench.step("prune", "magnitude", digits_bench.torch, digits_bench.torch, amount=0.8, min_cosine=-1.0)
    made = recovery(digits_bench)
    assert made.status == "ok", made.error
    assert quality(digits_bench, made) > quality(digits_bench, plain)
    assert made.details["sparsity"] == plain.details["sparsity"]
    before, after = weights(digits_bench, plain), weights(digits_bench, made)
    for name in ("stem", "depthwise", "beside", "wide", "inner", "head"):
        kept = before[f"{name}.weight"] != 0
        assert (after[f"{name}.weight"][~kept] == 0).all()
        assert (after[f"{name}.weight"] != before[f"{name}.weight"]).any()
    found = made.details["recovery"]
    assert (found["examples"], found["held_out"]) == (1080, 120)  # the train split and nothing else
    losses = [epoch["held_out_loss"] for epoch in found["epochs"]]
    assert len(losses) == 4
    assert losses[found["best_epoch"]] == min(losses)
    assert found["epochs"][-1]["held_out_accuracy"] > found["epochs"][0]["held_out_accuracy"]


def test_the_pattern_and_the_smaller_sizes_outlive_the_training(digits_bench):
    pattern = recovery(digits_bench, option="two_four", changes={"epochs": 1})
    for weight in (weights(digits_bench, pattern)[f"{name}.weight"] for name in ("wide", "inner")):
        groups = np.moveaxis(weight, 1, -1).reshape(-1, 4)
        assert ((groups != 0).sum(1) <= 2).all()
    small = recovery(digits_bench, option="structured", changes={"epochs": 1}, amount=0.5, scope="layer")
    assert small.status == "ok", small.error
    assert small.details["recovery"]["best_epoch"] == 1
    assert weights(digits_bench, small)["wide.weight"].shape == (16, 8, 3, 3)


def test_the_same_training_ends_in_the_same_weights(digits_bench):
    one, same, other = (recovery(digits_bench, changes={"epochs": 1, "seed": seed}) for seed in (0, 0, 1))
    digests = [{file.path: file.sha256 for file in made.files}["weights.safetensors"] for made in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_a_training_that_makes_it_worse_is_not_kept(digits_bench):
    made = recovery(digits_bench, changes={"epochs": 1, "learning_rate": 3.0})
    assert made.details["recovery"]["best_epoch"] == 0
    plain = digits_bench.step("prune", "magnitude", digits_bench.torch, digits_bench.torch, amount=0.8, min_cosine=-1.0)
    before, after = weights(digits_bench, plain), weights(digits_bench, made)
    assert all((before[name] == after[name]).all() for name in before)


@pytest.fixture
def job(digits_bench):
    key = digits_bench.torch.key
    settings = full_settings("prune", "magnitude", {"amount": 0.8, "recover": SETTINGS})
    made = digits_bench.job("prune", "magnitude", {"source": key, "model": key}, settings, min_cosine=-1.0)
    yield made
    Checkpoint(made).remove()


def again(job):
    """Do a step anew, as the workflow does: in an empty folder."""
    shutil.rmtree(job.folder)
    job.folder.mkdir()
    return json.loads(json.dumps(attempt(job)))


def killed_after(monkeypatch, epochs):
    real = Trainer.epoch

    def epoch(self, lesson, epoch, progress):
        if epoch > epochs:
            raise KeyboardInterrupt
        return real(self, lesson, epoch, progress)

    monkeypatch.setattr(Trainer, "epoch", epoch)


def test_a_killed_training_goes_on_after_its_last_epoch_to_the_same_weights(job, monkeypatch):
    whole = again(job)
    assert whole["status"] == "ok", whole["error"]
    wanted = (job.folder / "weights.safetensors").read_bytes()
    assert not Checkpoint(job).path.exists()
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        assert again(job)["status"] != "ok"
    assert Checkpoint(job).path.exists()
    resumed = again(job)
    assert resumed["details"]["recovery"]["resumed_after"] == 2
    assert len(resumed["details"]["recovery"]["epochs"]) == 4
    assert (job.folder / "weights.safetensors").read_bytes() == wanted
    assert not Checkpoint(job).path.exists()


def test_a_checkpoint_that_is_damaged_or_of_other_code_is_not_used(job, monkeypatch):
    checkpoint = Checkpoint(job)
    with monkeypatch.context() as patch:
        killed_after(patch, 1)
        again(job)
    assert checkpoint.read().epoch == 1
    other = Checkpoint(dataclasses.replace(job, device={**job.device, "threads": 2}))
    assert other.read() is None  # other threads add in another order
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:100])
    assert checkpoint.read() is None
    assert again(job)["details"]["recovery"]["resumed_after"] is None


def test_examples_without_labels_teach_by_the_reference_alone(bench):
    from digits import CODE

    rng = np.random.default_rng(0)
    data = bench.dataset({"image": list(rng.normal(size=(60, 1, 8, 8)).astype(np.float32))}, None, 8, 32)
    model = bench.model(CODE, data)
    wrong = recovery(bench, model)
    assert "nothing to learn from 32 training examples without labels; set prune.recover.distill=1" in wrong.error
    made = recovery(bench, model, changes={"distill": 1.0})
    assert made.status == "ok", made.error
    first, *_, last = made.details["recovery"]["epochs"]
    assert "held_out_accuracy" not in first
    assert last["held_out_loss"] < first["held_out_loss"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distill": 1.5}, "prune.recover.distill=1.5: a share from 0 to 1"),
        ({"held_out": 0.0}, "prune.recover.held_out=0.0: a share between 0 and 1"),
        ({"epochs": -1}, "prune.recover.epochs=-1: a whole number from 0"),
        ({"learning_rate": 1e30, "epochs": 1}, "the loss of epoch 1 is not finite; lower prune.recover.learning_rate"),
    ],
)
def test_settings_without_sense_are_named(digits_bench, changes, message):
    assert message in recovery(digits_bench, changes=changes).error


def test_no_train_split_is_named(text_bench):
    wrong = recovery(text_bench)
    assert wrong.error == "prune.recover.epochs: the dataset has no train split; set dataset.train_size"


def test_batches_hold_each_row_once_and_near_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    found = batches(lengths, 8, np.random.default_rng(1))
    assert sorted(np.concatenate(found)) == list(range(1000))
    assert {len(rows) for rows in found} <= {7, 8}
    assert np.mean([np.ptp(lengths[rows]) for rows in found]) < 20
    again = batches(lengths, 8, np.random.default_rng(2))
    assert any((one[:3] != other[:3]).any() for one, other in zip(found, again, strict=True))


def test_progress_is_said_every_few_seconds_with_the_time_left(capsys):
    now = 0.0
    progress = Progress(10, clock=lambda: now)
    for _ in range(4):
        now += 3
        progress.step(1, 0.5)
    assert capsys.readouterr().out.splitlines() == [
        "recovery: epoch 1, 20% done, loss 0.5, about 24 s left",
        "recovery: epoch 1, 40% done, loss 0.5, about 18 s left",
    ]
