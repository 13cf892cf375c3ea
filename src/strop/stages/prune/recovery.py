"""Train what pruning left, on the train split, so that it answers as the whole model did.

Source of distillation: G. Hinton, O. Vinyals, J. Dean, "Distilling the Knowledge in a Neural Network", 2015
(arXiv:1503.02531). On the CPU, with the step's threads: with as many of them it ends in the same weights each time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.errors import StageFailure, StropError
from strop.examples import Examples
from strop.job import Job
from strop.runtimes.modules import load_module, read_spec
from strop.stages.prune.checkpoint import Checkpoint, State, copied
from strop.stages.prune.training import NO_LABEL, Lesson, Progress, Trainer, answers

if TYPE_CHECKING:
    import torch

TRAIN = "examples/train.parquet"


def recovered(
    job: Job, module: torch.nn.Module, masks: dict[str, torch.Tensor], recover: dict[str, Any]
) -> dict[str, Any]:
    """Train a pruned module in place, and keep the weights of the epoch that does best on examples held out.

    Args:
        job: the step; `model` is the reference, and carries the train split.
        module: what `load_module` gave, pruned.
        masks: parameter name -> bool mask of the weights that may be other than zero.
        recover: `strop.settings.Recover` as a dict.

    Returns:
        JSON values: `examples` and `held_out` (how many of the train split), `epochs` (what each reached; the first is
        of before the training), `best_epoch` (number in that list), `resumed_after` (epoch, or None).

    Raises:
        StropError: the settings make no sense, or there is nothing to learn from.
        StageFailure: the loss is not finite.
    """
    import torch

    _check(recover)
    torch.set_num_threads(job.threads)
    lesson = _lesson(job, labelled=recover["distill"] < 1)
    order = np.random.default_rng(recover["seed"]).permutation(len(lesson.examples))
    held = min(max(round(recover["held_out"] * len(order)), 1), len(order) - 1)
    test, train = lesson.take(order[:held]), lesson.take(order[held:])
    trainer = Trainer(module, masks, recover, read_spec(job.artifact("source"))["outputs"])
    state, resumed_after = _trained(trainer, train, test, Checkpoint(job))
    module.load_state_dict(state.best)
    module.eval().requires_grad_(False)
    return {
        "examples": len(train.examples),
        "held_out": held,
        "epochs": state.history,
        "best_epoch": state.best_epoch,
        "resumed_after": resumed_after,
    }


def _trained(trainer: Trainer, train: Lesson, test: Lesson, checkpoint: Checkpoint) -> tuple[State, int | None]:
    """Return the state after the last epoch, and the epoch whose checkpoint the training started from, if one did."""
    epochs = trainer.recover["epochs"]
    state = checkpoint.read()
    resumed_after = state.epoch if state else None
    if state is None:
        weights = copied(trainer.module)
        state = State([trainer.evaluate(test)], 0, weights, weights, {})
    else:
        print(f"recovery: goes on after epoch {state.epoch}", flush=True)
        trainer.restore(state.module, state.optimizer)
    progress = Progress((epochs - state.epoch) * trainer.steps(train))
    for epoch in range(state.epoch + 1, epochs + 1):
        began = time.monotonic()
        found = {"loss": trainer.epoch(train, epoch, progress), **trainer.evaluate(test)}
        weights = copied(trainer.module)
        better = found["held_out_loss"] < state.history[state.best_epoch]["held_out_loss"]
        state = State(
            [*state.history, {**found, "seconds": round(time.monotonic() - began, 3)}],
            epoch if better else state.best_epoch,
            weights,
            weights if better else state.best,
            trainer.optimizer.state_dict()["state"],
        )
        words = ", ".join(f"{name} {value:.4g}" for name, value in state.history[-1].items())
        print(f"recovery: epoch {epoch} ended: {words}", flush=True)
        if epoch < epochs:
            checkpoint.write(state)
    checkpoint.remove()
    return state, resumed_after


def _check(recover: dict[str, Any]) -> None:
    limits = {
        "epochs": (recover["epochs"] >= 0, "a whole number from 0"),
        "learning_rate": (recover["learning_rate"] > 0, "above 0"),
        "batch_size": (recover["batch_size"] >= 1, "a whole number from 1"),
        "distill": (0 <= recover["distill"] <= 1, "a share from 0 to 1"),
        "temperature": (recover["temperature"] > 0, "above 0"),
        "held_out": (0 < recover["held_out"] < 1, "a share between 0 and 1"),
    }
    for name, (fits, meaning) in limits.items():
        if not fits:
            raise StropError(f"prune.recover.{name}={recover[name]}: {meaning}")


def _lesson(job: Job, *, labelled: bool) -> Lesson:
    """Return the train split with the reference's answers to it.

    Raises:
        StropError: there is none, or `labelled` is asked for and nothing is.
        StageFailure: `build_failed`: the reference gives no logits.
    """
    import torch

    model = job.artifact("model")
    if TRAIN not in {file.path for file in model.manifest.files}:
        raise StropError("prune.recover.epochs: the dataset has no train split; set dataset.train_size")
    examples = Examples.read(model.file(TRAIN))
    labels = np.full(len(examples), NO_LABEL) if examples.labels is None else np.maximum(examples.labels, NO_LABEL)
    if len(examples) < 2 or (labelled and not (labels > NO_LABEL).any()):
        reason = f"{len(examples)} training examples" + (" without labels; set prune.recover.distill=1" * labelled)
        raise StropError(f"prune.recover.epochs: nothing to learn from {reason}")
    reference, names = load_module(model), read_spec(model)["outputs"]
    order = np.argsort(examples.lengths(), kind="stable")
    parts = np.array_split(order, -(-len(order) // 64))
    with torch.inference_mode():
        found = torch.cat([answers(reference, examples, rows, names) for rows in parts])
    if found.ndim != 2 or not found.is_floating_point():
        raise StageFailure("build_failed", f"recovery learns from logits [examples, classes], not {list(found.shape)}")
    logits = torch.empty_like(found)
    logits[order.tolist()] = found
    return Lesson(examples, logits, torch.from_numpy(labels.astype(np.int64)))
