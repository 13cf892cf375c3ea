"""Where a training stands, in one file beside the results: a job that is killed goes on after its last whole epoch.

Safetensors with JSON in its metadata, written by rename, so tensors and numbers are always of the same epoch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.ids import source_digest
from strop.job import Job

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
CODE = "strop.stages.prune.recovery"


@dataclass(frozen=True)
class State:
    """A training after an epoch.

    Attributes:
        history: one dict of JSON values an epoch; the first is of before the training.
        best_epoch: the one with the least loss on what is held out; 0: before the training.
        module: state dict of the module.
        best: state dict of the module after the best epoch.
        optimizer: number of the parameter -> name -> tensor, as in the `state` of the optimizer's own state dict.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    module: Tensors
    best: Tensors
    optimizer: dict[int, Tensors]

    @property
    def epoch(self) -> int:
        """Epochs that are done [1]."""
        return len(self.history) - 1


def copied(module: torch.nn.Module) -> Tensors:
    """Return a module's state dict with tensors of its own, which the training does not change."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class Checkpoint:
    """The file that keeps a job's training.

    Args:
        job: its id and the folder of all results name the file, out of the job's own folder, which each try empties.
    """

    def __init__(self, job: Job) -> None:
        import torch

        self.path = job.results / ".checkpoints" / f"{job.stage}-{job.id}.safetensors"
        self.made_by = {"code": source_digest(CODE), "torch": torch.__version__, "threads": job.threads}

    def read(self) -> State | None:
        """Return what was written last; None if nothing was, or by another version, or if the file is damaged."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                about = json.loads(file.metadata()["strop"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        except (OSError, SafetensorError, ValueError, KeyError):
            return None
        if about["made_by"] != self.made_by:
            return None
        optimizer: dict[int, Tensors] = {}
        for name, value in _part(tensors, "optimizer").items():
            number, _, key = name.partition(".")
            optimizer.setdefault(int(number), {})[key] = value
        return State(about["history"], about["best_epoch"], _part(tensors, "module"), _part(tensors, "best"), optimizer)

    def write(self, state: State) -> None:
        """Write a state in the place of the last one."""
        from safetensors.torch import save_file

        tensors = {f"module.{name}": value for name, value in state.module.items()}
        tensors |= {f"best.{name}": value for name, value in state.best.items()}
        for number, values in state.optimizer.items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
        about = {"made_by": self.made_by, "history": state.history, "best_epoch": state.best_epoch}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        save_file({name: value.clone() for name, value in tensors.items()}, temporary, {"strop": json.dumps(about)})
        temporary.replace(self.path)

    def remove(self) -> None:
        """Delete the file, if there is one: the training is done."""
        self.path.unlink(missing_ok=True)


def _part(tensors: Tensors, name: str) -> Tensors:
    return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
