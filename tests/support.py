"""Does real steps on tiny inputs in a folder, for tests of stages, workers and checks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from strop.artifact import Artifact, Manifest, Tensor, list_files, write_manifest
from strop.examples import Examples
from strop.job import Job
from strop.options import reads
from strop.settings import STAGE_SETTINGS
from strop.stages.__main__ import attempt

DEVICE = {"kind": "cpu", "threads": 1, "affinity": None, "huge_pages": False}
QUICK = {"instances": 2, "min_time_s": 0.2, "max_time_s": 8.0, "min_calls": 20, "precision": 0.5}


class Bench:
    """Does single steps in a folder, as the workflow does, in this process: `do("quantize", "bf16", source=...)`."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "results"
        self.project = folder
        self.device = DEVICE
        self.count = 0

    def job(self, stage: str, option: str, upstream: dict[str, str], settings: dict, **context) -> Job:
        self.count += 1
        identity = f"{self.count:012x}"
        folder = self.results / stage / identity
        folder.mkdir(parents=True)
        return Job(stage, option, identity, settings, upstream, self.results, self.project, self.device, context)

    def do(self, stage: str, option: str, upstream: dict[str, str] | None = None, min_cosine: float = 0.9, **settings):
        """Do a step and return its manifest, which is on disk."""
        job = self.job(stage, option, upstream or {}, full_settings(stage, option, settings), min_cosine=min_cosine)
        result = json.loads(json.dumps(attempt(job)))
        tensors = {
            side: tuple(Tensor(t["name"], t["dtype"], tuple(t["shape"])) for t in result.get(side, []))
            for side in ("inputs", "outputs")
        }
        manifest = Manifest(
            job.id, stage, option, job.settings, job.upstream, status=result["status"], error=result.get("error"),
            format=result.get("format"), files=list_files(job.folder), check=result.get("check", {}),
            details=result.get("details", {}), **tensors,
        )  # fmt: skip
        write_manifest(manifest, job.folder)
        return manifest

    def artifact(self, manifest: Manifest) -> Artifact:
        return Artifact(self.results / manifest.key)

    def dataset(
        self, columns: dict[str, list[np.ndarray]], labels=None, calibration: int = 8, train: int = 0
    ) -> Manifest:
        """Write examples as a dataset artifact: the first rows calibrate, the next `train`, the others test."""
        total = len(next(iter(columns.values())))
        examples = Examples(
            [f"row:{row}" for row in range(total)], columns, None if labels is None else np.asarray(labels)
        )
        job = self.job("dataset", "arrays", {}, {})
        ends = {"calibration": range(calibration), "train": range(calibration, calibration + train)}
        for name, rows in {**ends, "test": range(calibration + train, total)}.items():
            if rows:
                examples.take(list(rows)).write(job.folder / f"{name}.parquet")
        manifest = Manifest(job.id, "dataset", "arrays", {}, {}, files=list_files(job.folder))
        write_manifest(manifest, job.folder)
        return manifest

    def model(self, code: str, dataset: Manifest, factory: str = "build", **settings) -> Manifest:
        """Make a model of a user's factory file."""
        (self.project / "user_model.py").write_text(code)
        return self.do("model", "factory", {"dataset": dataset.key}, factory=f"user_model.py:{factory}", **settings)

    def step(self, stage: str, option: str, source: Manifest, model: Manifest, **settings) -> Manifest:
        """Do a step of a chain."""
        return self.do(stage, option, {"source": source.key, "model": model.key}, **settings)

    def measured(self, option: str, source: Manifest, reference: Manifest, model: Manifest, **settings) -> Manifest:
        """Do a short benchmark."""
        upstream = {"source": source.key, "reference": reference.key, "model": model.key}
        return self.do("benchmark", option, upstream, **{**QUICK, **settings})


def full_settings(stage: str, option: str, changes: dict) -> dict:
    """Return an option function's settings: the types' defaults, with changes."""
    defaults = dataclasses.asdict(STAGE_SETTINGS[stage]())
    known = reads(stage, option)
    assert changes.keys() <= set(known), f"{stage}={option} does not read {changes.keys() - set(known)}"
    return {name: changes.get(name, defaults[name]) for name in known}


TEXT_MODEL = """
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width=32, classes=3):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        scores = scores.masked_fill(attention_mask[:, None, :] == 0, -1e4)
        x = x + torch.softmax(scores, -1) @ self.value(x)
        x = x + self.narrow(torch.relu(self.wide(x)))
        mask = attention_mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * mask).sum(1) / mask.sum(1))


def build():
    return Classifier()
"""
