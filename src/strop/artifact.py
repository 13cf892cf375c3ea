"""Artifacts: what a stage makes is a folder with its files and a `manifest.json`.

The manifest is an interface: other tools read it. It is written last and at once (rename), so a folder with a
manifest is complete. Files are named in it with their sha256; `Artifact.file` refuses bytes that differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from strop.errors import StageFailure, StropError, one_line
from strop.ids import sha256_file

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
STATUSES = (
    "ok",
    "export_unsupported",
    "build_failed",
    "calibration_failed",
    "wrong_output",
    "out_of_memory",
    "timeout",
    "crashed",
    "unstable",
    "no_effect",
    "blocked",
    "skipped",
)
FORMATS = (
    "torch",
    "torch_compile",
    "torch_export",
    "torchscript",
    "aot_inductor",
    "onnx",
    "ort",
    "openvino",
    "tensorrt",
    "coreml",
)


@dataclass(frozen=True)
class Tensor:
    """One input or output: name, numpy dtype name, shape with a number or a symbol for each axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class File:
    """One file of an artifact: path relative to the folder, size [byte], sha256 in hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a stage did. `seconds` is the stage's own wall time [s]; `details` holds what only this stage knows.

    `upstream` maps a role (`source`, `dataset`, `model`, ...) to `<stage>/<id>`. `check` holds the comparison of the
    artifact's outputs with the reference's (`strop.compare`). `log` and `repeat` (a command line) matter when
    `status` is not ok.
    """

    id: str
    stage: str
    option: str
    settings: dict[str, Any]
    upstream: dict[str, str]
    status: str = "ok"
    error: str | None = None
    log: str | None = None
    repeat: str | None = None
    format: str | None = None
    files: tuple[File, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    check: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    manifest_version: int = MANIFEST_VERSION

    @property
    def key(self) -> str:
        """`<stage>/<id>`: the folder below results/."""
        return f"{self.stage}/{self.id}"

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes [byte], side-cars such as external weights included."""
        return sum(file.bytes for file in self.files)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Args:
        path: `manifest.json` or the folder that holds it.

    Raises:
        StropError: the file is missing, is not JSON, or is of a version that this strop does not know.
    """
    path = path / MANIFEST if path.is_dir() else path
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["manifest_version"]
    except FileNotFoundError:
        raise StropError(f"{path}: no manifest here; the stage has not run") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StropError(f"{path}: not a manifest ({error}); delete its folder and run the study again") from None
    if version != MANIFEST_VERSION:
        raise StropError(f"{path}: manifest version {version}, this strop reads {MANIFEST_VERSION}; update strop")
    data["files"] = tuple(File(**file) for file in data["files"])
    for name in ("inputs", "outputs"):
        data[name] = tuple(Tensor(t["name"], t["dtype"], tuple(t["shape"])) for t in data[name])
    return Manifest(**data)


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write `manifest` into `folder` by rename: readers see all of it or nothing."""
    write_atomically(folder / MANIFEST, json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a text file by rename within its folder, creating the folder.

    Raises:
        StropError: the folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise StropError(f"{path.parent}: cannot be written to ({one_line(error)}); choose another results=") from error


def list_files(folder: Path) -> tuple[File, ...]:
    """Return all files below `folder` but the manifest and hidden ones, sorted by path, with size and sha256."""
    return tuple(
        File(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_file(path))
        for path in sorted(_walk(folder))
    )


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if path.is_file() and relative.as_posix() != MANIFEST and not any(p.startswith(".") for p in relative.parts):
            yield path


@dataclass(frozen=True)
class Artifact:
    """A finished folder below results/, opened for reading."""

    folder: Path

    @cached_property
    def manifest(self) -> Manifest:
        """The folder's manifest."""
        return read_manifest(self.folder)

    @classmethod
    def draft(cls, folder: Path, manifest: Manifest) -> Artifact:
        """Return a folder whose manifest is not written yet as an artifact."""
        artifact = cls(folder)
        artifact.__dict__["manifest"] = manifest
        return artifact

    @cached_property
    def _verified(self) -> set[str]:
        return set()

    def file(self, path: str) -> Path:
        """Return the full path of one of the artifact's files, after its bytes are found to be those of the manifest.

        Raises:
            StageFailure: the file is not in the manifest, is missing, or its bytes have changed.
        """
        known = {file.path: file for file in self.manifest.files}
        full = self.folder / path
        if path not in known:
            raise StageFailure("build_failed", f"{full}: not a file of this artifact")
        if path not in self._verified:
            if not full.is_file():
                raise StageFailure("build_failed", f"{full}: missing; delete the folder and run the study again")
            if sha256_file(full) != known[path].sha256:
                raise StageFailure(
                    "build_failed", f"{full}: its bytes have changed since it was made; delete the folder and run again"
                )
            self._verified.add(path)
        return full

    def verify(self) -> Artifact:
        """Check all files against the manifest and return self; errors as in `file`."""
        for file in self.manifest.files:
            self.file(file.path)
        return self
