"""One training: batches, loss, steps of the optimizer, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.errors import StageFailure
from strop.examples import Examples
from strop.runtimes.modules import named_outputs

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
POOL = 16  # batches that are sorted by length together: little padding, and still other neighbours in each epoch
WARM_UP = 0.1  # share of all steps in which the learning rate rises
SAY_EVERY_S = 5.0
NO_LABEL = -1


@dataclass(frozen=True)
class Lesson:
    """Examples to learn from.

    Attributes:
        logits: the reference's answers, float32 [examples, classes].
        labels: int64 [examples], `NO_LABEL` where there is none.
    """

    examples: Examples
    logits: torch.Tensor
    labels: torch.Tensor

    def take(self, rows: np.ndarray) -> Lesson:
        """Return the examples `rows` as a lesson."""
        return Lesson(self.examples.take(rows), self.logits[rows.tolist()], self.labels[rows.tolist()])


class Progress:
    """Says every few seconds how far a training is, and how long it takes yet.

    Args:
        steps: of all epochs that are to come.
        clock: monotonic clock [s].
    """

    def __init__(self, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps, self.done, self.clock = steps, 0, clock
        self.began = self.said = clock()

    def step(self, epoch: int, loss: float) -> None:
        """Note a step, and print a line if the last one is a while ago."""
        self.done += 1
        now = self.clock()
        if now - self.said >= SAY_EVERY_S:
            self.said = now
            left = (now - self.began) / self.done * (self.steps - self.done)
            share = self.done / self.steps
            print(f"recovery: epoch {epoch}, {share:.0%} done, loss {loss:.4g}, about {left:.0f} s left", flush=True)


def batches(lengths: np.ndarray, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return rows in random batches of about `size`, those of near lengths together: padding costs time."""
    order = rng.permutation(len(lengths))
    found: list[np.ndarray] = []
    for start in range(0, len(order), POOL * size):
        pool = order[start : start + POOL * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        found += np.array_split(pool, -(-len(pool) // size))
    return [found[at] for at in rng.permutation(len(found))]


def answers(module: torch.nn.Module, examples: Examples, rows: np.ndarray, names: list[str] | None) -> torch.Tensor:
    """Return a module's first output for the examples `rows`."""
    import torch

    feeds = {name: torch.from_numpy(value) for name, value in examples.batch(rows).items()}
    return next(iter(named_outputs(module(**feeds), names).values()))


class Trainer:
    """Trains a pruned module in place.

    Args:
        module: what `load_module` gave, pruned.
        masks: parameter name -> bool mask of the weights that may be other than zero.
        recover: `strop.settings.Recover` as a dict.
        names: of the module's outputs, as in its spec.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        masks: Tensors,
        recover: dict[str, Any],
        names: list[str] | None,
    ) -> None:
        import torch

        self.module, self.recover, self.names = module.requires_grad_(True), recover, names
        self.masks = [(module.get_parameter(name), mask) for name, mask in masks.items()]
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=recover["learning_rate"])

    def restore(self, weights: Tensors, optimizer: dict[int, Tensors]) -> None:
        """Go back to a state that was kept: of the module, and of the optimizer (parameter's number -> its tensors)."""
        self.module.load_state_dict(weights)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": optimizer})

    def steps(self, lesson: Lesson) -> int:
        """Return the steps of an epoch [1]."""
        return len(batches(lesson.examples.lengths(), self.recover["batch_size"], np.random.default_rng(0)))

    def epoch(self, lesson: Lesson, epoch: int, progress: Progress) -> float:
        """Go once through a lesson, in an order that follows from seed and epoch, and return the mean loss.

        Raises:
            StageFailure: `build_failed`: the loss is not finite.
        """
        import torch

        rng = np.random.default_rng([self.recover["seed"], epoch])
        torch.manual_seed(int(rng.integers(2**31)))  # dropout
        parts = batches(lesson.examples.lengths(), self.recover["batch_size"], rng)
        self.module.train()
        total = 0.0
        for at, rows in enumerate(parts):
            loss = self._step(lesson, rows, self._rate((epoch - 1) * len(parts) + at, len(parts)))
            total += loss * len(rows)
            progress.step(epoch, loss)
        mean = total / len(lesson.examples)
        if not np.isfinite(mean):
            reason = f"recovery: the loss of epoch {epoch} is not finite; lower prune.recover.learning_rate"
            raise StageFailure("build_failed", reason)
        return mean

    def _rate(self, step: int, steps_an_epoch: int) -> float:
        """Return the learning rate of a step: it rises at first, then falls in a straight line to 0."""
        total = self.recover["epochs"] * steps_an_epoch
        rising = max(WARM_UP * total, 1.0)
        share = min((step + 1) / rising, (total - step) / max(total - rising, 1.0), 1.0)
        return float(self.recover["learning_rate"] * share)

    def _step(self, lesson: Lesson, rows: np.ndarray, rate: float) -> float:
        import torch

        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss = self._losses(self._answers(lesson, rows), lesson, rows).mean()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for parameter, mask in self.masks:
                parameter.mul_(mask)
        return float(loss.detach())

    def _losses(self, found: torch.Tensor, lesson: Lesson, rows: np.ndarray) -> torch.Tensor:
        """Return the loss of each example: against the reference's answers, and against the label if it has one."""
        import torch
        import torch.nn.functional as F

        share, heat = self.recover["distill"], self.recover["temperature"]
        total = torch.zeros(len(rows))
        if share > 0:
            wanted = F.softmax(lesson.logits[rows.tolist()] / heat, dim=-1)
            apart = F.kl_div(F.log_softmax(found / heat, dim=-1), wanted, reduction="none").sum(-1)
            total = total + share * heat**2 * apart  # gradients fall with the square of the temperature
        if share < 1:
            total = total + (1 - share) * F.cross_entropy(
                found, lesson.labels[rows.tolist()], ignore_index=NO_LABEL, reduction="none"
            )
        return total

    def evaluate(self, lesson: Lesson) -> dict[str, float]:
        """Return how the module does on examples that it does not learn from: loss, and shares of like answers."""
        import torch

        self.module.eval()
        order = np.argsort(lesson.examples.lengths(), kind="stable")
        losses, same, right = 0.0, 0, 0
        with torch.no_grad():
            for rows in np.array_split(order, -(-len(order) // self.recover["batch_size"])):
                found = self._answers(lesson, rows)
                losses += float(self._losses(found, lesson, rows).sum())
                same += int((found.argmax(-1) == lesson.logits[rows.tolist()].argmax(-1)).sum())
                right += int((found.argmax(-1) == lesson.labels[rows.tolist()]).sum())
        result = {"held_out_loss": losses / len(order), "held_out_agreement": same / len(order)}
        if known := int((lesson.labels >= 0).sum()):
            result["held_out_accuracy"] = right / known
        return result

    def _answers(self, lesson: Lesson, rows: np.ndarray) -> torch.Tensor:
        return answers(self.module, lesson.examples, rows, self.names)
