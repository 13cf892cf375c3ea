"""Resolve pyproject.toml's pins for CPU into `cpu.lock.txt` (all packages), `cpu.yaml` and `cuda.yaml` (conda).

Run by `make lock` with the interpreter of the environment; it installs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "# Made by `make lock` from pyproject.toml; do not edit.\n"


def main() -> None:
    """Write the three files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core, extras = project["dependencies"], project["optional-dependencies"]
    lock = sorted(resolve([*core, *extras["cpu"], *extras["dev"]]))
    (ROOT / "envs" / "cpu.lock.txt").write_text(HEAD + "".join(f"{line}\n" for line in lock))
    for name in ("cpu", "cuda"):
        (ROOT / "envs" / f"{name}.yaml").write_text(conda(name, [*core, *extras[name]]))


def resolve(requirements: list[str]) -> list[str]:
    """Return `name==version` for all that pip would install for `requirements`; local version labels are left off."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), *requirements], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return [f"{item['name'].lower().replace('_', '-')}=={item['version'].partition('+')[0]}" for item in found]


def conda(name: str, requirements: list[str]) -> str:
    """Return a conda environment file that takes the pinned packages through pip."""
    lines = [f"name: strop-{name}", "channels:", "  - conda-forge", "dependencies:", "  - python=3.11", "  - pip"]
    lines += ["  - pip:", *(f"      - {requirement}" for requirement in requirements)]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
