"""A copy of the project in which studies run as a user runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from strop import records

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


class Project:
    """A copy of the project's workflow and conf/ in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        for name in ("conf", "envs", "workflow"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "Snakefile", folder)
        (folder / "profiles").symlink_to("workflow/profiles")

    def command(self, *words: str) -> list[str]:
        return [str(BIN / words[0]), *words[1:]]

    def environment(self, **variables: str) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STROP_", "MLFLOW_TRACKING"))}
        return {**kept, "PATH": path, "COLUMNS": "160", **variables}

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment(**variables), capture_output=True, text=True,
            check=False, timeout=500,
        )  # fmt: skip

    def snakemake(self, overrides: str = "", *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        config = ["study=smoke", *([f"overrides={overrides}"] if overrides else [])]
        return self.run("snakemake", "--cores", "2", *words, "--config", *config, **variables)

    def table(self, name: str) -> list[dict]:
        return records.read(name, self.results / "studies" / "smoke" / f"{name}.parquet").to_pylist()


def copy_of(project: Project, folder: Path) -> Project:
    """Return a copy, results included, that a test may change."""
    shutil.copytree(project.folder, folder / "project", symlinks=True)
    copied = Project.__new__(Project)
    copied.folder, copied.results = folder / "project", folder / "project" / "results"
    return copied
