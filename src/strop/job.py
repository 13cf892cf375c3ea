"""What a stage function gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.artifact import Artifact, Tensor


@dataclass(frozen=True)
class Job:
    """One step of the plan, to be done now.

    Attributes:
        stage, option, id: the step; its folder is `<results>/<stage>/<id>`.
        settings: keyword arguments of the option's function.
        upstream: role -> `<stage>/<id>`. `source` is the step before in the chain, `model` the model artifact
            (which carries prepared examples and the reference's outputs), `dataset` the raw examples.
        results: folder of all results. project: folder that paths in settings are relative to.
        device: the device's settings (`strop.settings.Device`) as a dict.
        context: what follows from the steps before and the study: `min_cosine`, the lowest floor of agreement among
            them and this; of a benchmark `limits`, those of the study that its calls decide, if there are any.
    """

    stage: str
    option: str
    id: str
    settings: dict[str, Any]
    upstream: dict[str, str]
    results: Path
    project: Path
    device: dict[str, Any] = field(default_factory=lambda: {"kind": "cpu", "threads": 1, "huge_pages": False})
    context: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Folder to write into."""
        return self.results / self.stage / self.id

    @property
    def threads(self) -> int:
        """Threads of one call [1]."""
        return int(self.device["threads"])

    def artifact(self, role: str) -> Artifact:
        """Return the upstream artifact of `role`."""
        return Artifact(self.results / self.upstream[role])


@dataclass(frozen=True)
class Made:
    """What a stage function gives back; the files are in the job's folder by then.

    Attributes:
        format: one of `strop.artifact.FORMATS`, or None for stages that make no model.
        inputs, outputs: what the model takes and gives; None: as the source's.
        details: what only this stage knows (JSON values).
    """

    format: str | None = None
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None
    details: dict[str, Any] = field(default_factory=dict)
