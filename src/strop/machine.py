"""The machine: what it is, and the versions of what is installed: facts for ids and manifests."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from strop.ids import digest

INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "asimddp", "sve")
VNNI = frozenset({"avx512_vnni", "avx_vnni"})  # x86: sums of int8 products in 32 bits


@lru_cache
def machine_facts() -> dict[str, Any]:
    """Return what the machine is: CPU model, cores, memory [byte], instruction sets, kernel, Python. No host name."""
    import psutil

    info = _cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    return {
        "cpu": info.get("model name", platform.processor() or platform.machine()),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return {}
    pairs = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines() if ":" in line)
    info: dict[str, str] = {}
    for key, _, value in pairs:
        info.setdefault(key.strip(), value.strip())
    return info


def fingerprint(device: dict[str, Any]) -> str:
    """Return the id of a device: its settings, on this machine. Engines and measurements carry it in their ids.

    Memory is rounded to GiB: the kernel's own share differs from boot to boot.
    """
    facts = machine_facts()
    kept = {key: facts[key] for key in ("cpu", "architecture", "cores", "instruction_sets")}
    return digest({"device": device, "machine": kept, "memory_gib": round(facts["memory_bytes"] / 2**30)})


@lru_cache
def version(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those of `packages` that are installed, by the name to import."""
    found: dict[str, str] = {}
    for package in packages:
        numbers = filter(None, map(version, DISTRIBUTIONS.get(package, (package,))))
        if number := next(numbers, None):
            found[package] = number
    return found


# Where the name to import is not the name to install; the first of several is the one that strop asks for.
DISTRIBUTIONS = {
    "PIL": ("pillow",),
    "sklearn": ("scikit-learn",),
    "torch_pruning": ("torch-pruning",),
    "onnx_ir": ("onnx-ir",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"),
    "tensorrt": ("tensorrt-cu13", "tensorrt-cu12", "tensorrt"),
}
