"""Files of the user's own that settings name: their content belongs to the ids of the steps that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strop.ids import digest, sha256_file
from strop.sources import local_path

Stamps = dict[str, list[float]]


def local_content(settings: dict[str, Any], project: Path, stamps: Stamps, stage: str) -> dict[str, str]:
    """Return setting -> digest of the local file or folder that it names.

    Args:
        settings: of one step; `source.path`, `sensitivity_file` and `factory` may name files.
        project: folder that relative paths start from.
        stamps: filled with path -> [size in bytes, modification time in s], by which a stored plan knows its age.
        stage: for the message.

    Raises:
        StropError: the file is not there, or outside of the project's folder.
    """
    found: dict[str, str] = {}
    if path := (settings.get("source") or {}).get("path"):
        found["source.path"] = _content(project, str(path), stamps, f"{stage}.source.path")
    if path := settings.get("sensitivity_file"):
        found["sensitivity_file"] = _content(project, str(path), stamps, f"{stage}.sensitivity_file")
    factory = str(settings.get("factory") or "")
    if ".py:" in factory:
        found["factory"] = _content(project, factory.rpartition(":")[0], stamps, f"{stage}.factory")
    return found


def _content(project: Path, name: str, stamps: Stamps, setting: str) -> str:
    path = local_path(project, name, setting)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        stamps[str(file)] = stamp(file)
    return digest([[file.relative_to(path.parent).as_posix(), sha256_file(file)] for file in files])


def stamp(file: Path) -> list[float]:
    """Return size [byte] and modification time [s] of a file, or [-1, -1] if it is not there."""
    try:
        status = file.stat()
    except OSError:
        return [-1, -1]
    return [status.st_size, status.st_mtime]
