"""One step of a plan in a child process, with a time and a memory limit: whatever happens becomes a manifest.

The child does the work (`python -m strop.stages`), this process waits. An exception, a signal, memory past the limit
and time past the limit each end as a status, an error of one line, and the path of the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from strop import machine
from strop.artifact import Artifact, File, Manifest, Tensor, list_files, read_manifest, write_manifest
from strop.errors import StropError
from strop.ids import digest
from strop.process import locked

RESULT = ".result.json"
POLL_S = 0.25  # a poll costs well under a millisecond; a benchmark's children must not be disturbed more often
PARENT_VARIABLE = "STROP_PARENT_PID"


@dataclass(frozen=True)
class Ending:
    """How a child ended. `status` is None if it ended by itself; `peak_bytes` is the peak of its resident memory."""

    status: str | None
    error: str | None
    returncode: int
    peak_bytes: int


def run_step(step: dict[str, Any], *, results: Path, project: Path) -> Manifest:
    """Do one step of a plan, and write its manifest whatever happens.

    Args:
        step: a value of the plan's `steps`, or one like it with the command that repeats it as `repeat`.
        results: folder of all results.
        project: folder that paths in settings are relative to.

    Returns:
        The manifest; `status` tells how it went. A second caller for the same step waits for the first and gets the
        first one's manifest if that has come to an end meanwhile.
    """
    key = f"{step['stage']}/{step['id']}"
    folder = results / key
    asked = time.time()
    with locked(results / ".locks" / f"{step['stage']}-{step['id']}"):
        with contextlib.suppress(StropError, OSError):
            if (folder / "manifest.json").stat().st_mtime >= asked:
                return read_manifest(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        blocker = _blocker(step["upstream"], results)
        if blocker:
            manifest = _blocked(step, blocker)
        else:
            with machine_lock(step, results):
                manifest = _work(step, folder, results, project)
        write_manifest(manifest, folder)
        return manifest


def log_of(step: dict[str, Any], results: Path) -> Path:
    """Return the path of the log that a step's process writes."""
    return results / "logs" / str(step["stage"]) / f"{step['id']}.log"


def machine_lock(step: dict[str, Any], results: Path) -> contextlib.AbstractContextManager[None]:
    """Hold this machine: a benchmark alone, the others side by side, whichever commands they belong to."""
    return locked(results / ".locks" / f"machine-{digest(platform.node())}", shared=step["stage"] != "benchmark")


def _blocker(upstream: dict[str, str], results: Path) -> Manifest | None:
    """Return the first upstream manifest that is not ok."""
    for key in upstream.values():
        manifest = Artifact(results / key).manifest
        if manifest.status != "ok":
            return manifest
    return None


def _blocked(step: dict[str, Any], by: Manifest) -> Manifest:
    root = by.details.get("root", {"step": by.key, "status": by.status, "error": by.error})
    error = f"waits for {root['step']}, which ended as {root['status']}: {root['error']}"
    return Manifest(
        **_identity(step), status="blocked", error=error, log=by.log, repeat=by.repeat, details={"root": root}
    )


def _identity(step: dict[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in ("id", "stage", "option", "settings", "upstream")}


def _work(step: dict[str, Any], folder: Path, results: Path, project: Path) -> Manifest:
    log = log_of(step, results)
    log.parent.mkdir(parents=True, exist_ok=True)
    job = {**step, "results": str(results.resolve()), "project": str(project.resolve())}
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        ending = _run_child(job, folder, out, step["timeout_s"], step["memory_bytes"])
    seconds = time.monotonic() - started
    result = _read_result(folder, ending)
    failed = result["status"] != "ok"
    return Manifest(
        **_identity(step),
        status=result["status"],
        error=result.get("error"),
        log=str(log),
        repeat=step.get("repeat", f"strop repeat {step['stage']}/{step['id']}") if failed else None,
        format=result.get("format"),
        files=_files(folder),
        inputs=_tensors(result.get("inputs", [])),
        outputs=_tensors(result.get("outputs", [])),
        seconds=round(seconds, 3),
        peak_memory_bytes=ending.peak_bytes,
        check=result.get("check", {}),
        details=result.get("details", {}),
        versions=machine.versions(("strop", *step.get("requires", ()))),
        machine=machine.machine_facts(),
    )


def _files(folder: Path) -> tuple[File, ...]:
    (folder / RESULT).unlink(missing_ok=True)
    return list_files(folder)


def _tensors(rows: list[dict[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(row["name"], row["dtype"], tuple(row["shape"])) for row in rows)


def _read_result(folder: Path, ending: Ending) -> dict[str, Any]:
    """Return what the child says of itself, unless it was stopped or died."""
    if ending.status is not None:
        return {"status": ending.status, "error": ending.error}
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"status": "crashed", "error": _death(ending.returncode)}
    return result


def _death(returncode: int) -> str:
    if returncode >= 0:
        return f"the stage's process ended with exit code {returncode} without a result; see the log"
    name = signal.Signals(-returncode).name
    hint = "; the kernel kills with it when memory runs out" if name == "SIGKILL" else ""
    return f"the stage's process was killed by {name}{hint}"


def _run_child(job: dict[str, Any], folder: Path, out: IO[str], timeout_s: float, memory_bytes: float) -> Ending:
    (folder / ".job.json").write_text(json.dumps(job), encoding="utf-8")
    child = subprocess.Popen(
        [sys.executable, "-m", "strop.stages", str(folder / ".job.json"), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=_environment(job),
    )
    try:
        return _watch(child, timeout_s, memory_bytes)
    finally:
        _kill_group(child)
        (folder / ".job.json").unlink(missing_ok=True)


def _environment(job: dict[str, Any]) -> dict[str, str]:
    """Threads are set before any library is loaded: most read them once. Nothing tells anybody that it is used."""
    threads = str(job["device"]["threads"])
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    quiet = {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", "ORT_DISABLE_TELEMETRY": "1"}
    return {**os.environ, **dict.fromkeys(names, threads), **quiet}


def _watch(child: subprocess.Popen[bytes], timeout_s: float, memory_bytes: float) -> Ending:
    """Wait for a child, and stop it when it passes a limit or when nobody waits for the study any more."""
    started = time.monotonic()
    peak = 0
    waiter = os.pidfd_open(child.pid)
    try:
        while not select.select([waiter], [], [], POLL_S)[0]:
            used = _resident(child.pid)
            peak = max(peak, used)
            if used > memory_bytes:
                error = f"used {used / 1e9:.2f} GB of memory, the limit is memory_bytes={memory_bytes:.3g}"
                return Ending("out_of_memory", error, _stop(child), peak)
            if time.monotonic() - started > timeout_s:
                error = f"took longer than timeout_s={timeout_s:g}"
                return Ending("timeout", error, _stop(child), peak)
            if _abandoned():
                _stop(child)
                raise SystemExit("the study's own process is gone; stopping")
    finally:
        os.close(waiter)
    return Ending(None, None, child.wait(), peak)


def _abandoned() -> bool:
    """Return whether the process that runs the study was killed, so that this job works for nobody."""
    pid = os.environ.get(PARENT_VARIABLE)
    return pid is not None and not psutil.pid_exists(int(pid))


def _resident(pid: int) -> int:
    """Return the resident memory of a process and its descendants [byte]."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _stop(child: subprocess.Popen[bytes]) -> int:
    _kill_group(child)
    return child.wait()


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's whole session: compilers and workers that it started go with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
