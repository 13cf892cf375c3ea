"""NVIDIA's management library through `pynvml` (package nvidia-ml-py), where there is one: it is no dependency."""

from __future__ import annotations

import importlib
import os
from typing import Any


def open_nvml() -> tuple[Any, str | None]:
    """Return the initialized `pynvml` and None, or None and the reason why there is none."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None, "the package 'pynvml' is not installed; pip install nvidia-ml-py"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return nvml, None


def first_device(nvml: Any) -> Any:
    """Return the handle of the device that CUDA calls 0.

    CUDA's order is NVML's (by PCI bus) unless the machine has GPUs of several kinds and CUDA_DEVICE_ORDER is unset.

    Raises:
        pynvml.NVMLError: there is none, or CUDA_VISIBLE_DEVICES shortens its UUID, which only CUDA understands.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    return nvml.nvmlDeviceGetHandleByIndex(int(first)) if first.isdigit() else nvml.nvmlDeviceGetHandleByUUID(first)


def own_memory_bytes(nvml: Any) -> int | None:
    """Return what this process holds on all devices now [byte]; None if NVML does not list it.

    It lists no process without a CUDA context, and none by this process's own id in another PID namespace (containers).
    """
    held: list[int] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            held += [entry.usedGpuMemory for entry in processes if entry.pid == os.getpid() and entry.usedGpuMemory]
    except nvml.NVMLError:
        return None
    return sum(held) if held else None
