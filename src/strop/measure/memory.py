"""Peak memory of a worker over its empty self, while a session loads and while it is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from strop.measure.nvml import open_nvml, own_memory_bytes

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"


@dataclass(frozen=True)
class Memory:
    """Peaks over the empty self [byte]; what could not be found out is None.

    Attributes:
        load_bytes: while the session was loaded and prepared.
        running_bytes: after that, while it was called; the loaded session is in it.
        peak_bytes: the higher of both.
        gpu_bytes: on CUDA devices: the higher of what was held after loading and at the end, CUDA's context included.
            Runtimes keep what they once took from the device, so this is near the peak.
    """

    load_bytes: int | None
    running_bytes: int | None
    peak_bytes: int | None
    gpu_bytes: int | None


class MemoryWatch:
    """Watches this process: make it while it is empty, call `loaded`, then `report`.

    Resident memory and its high-water mark are the kernel's (VmRSS and VmHWM of proc_pid_status(5)); writing 5 to
    clear_refs sets the mark back (proc_pid_clear_refs(5), a few microseconds, no privilege needed). Where that is
    refused, load and run cannot be told apart, and only what passed the earlier mark is known.

    Make it in a new process before the first session, so that the runtime's own libraries count: memory that a process
    had freed without giving it back may be used again and is not seen (an ONNX Runtime session of 64 MiB, loaded once
    more in the same process, seemed to take 22 MiB). Huge pages make the numbers coarse (2 MiB), shared pages count in
    full, swapped ones not at all, and many-core machines may be off by some MB, as kernels since 6.2 count per CPU.

    Args:
        kind: of the device, `cpu` or `cuda`.
        status: the kernel's words on this process.
        clear_refs: where the mark is set back.
    """

    def __init__(self, kind: str, status: Path = STATUS, clear_refs: Path = CLEAR_REFS) -> None:
        self._status = status
        self._clear_refs = clear_refs
        self._nvml = open_nvml()[0] if kind == "cuda" else None
        self._gpu_empty = self._gpu() or 0
        self._gpu_loaded: int | None = None
        self._load: int | None = None
        self._apart = self._reset()
        self._empty, self._mark = self._read("VmRSS"), self._read("VmHWM")

    def forked(self, resident_bytes: int | None) -> None:
        """Note that this process is a new fork: of the files in memory it has none until it touches them.

        They count as its own all the same, as a process that was not forked would have read them.

        Args:
            resident_bytes: what `resident_bytes` of its parent gave; what both touch, some 10 MB, is counted twice.
        """
        now = self._read("VmRSS")
        if now is not None and resident_bytes is not None and self._empty is not None:
            self._empty -= resident_bytes - now

    def resident_bytes(self) -> int | None:
        """Return what is resident now [byte]; None if the kernel does not say."""
        return self._read("VmRSS")

    def loaded(self) -> None:
        """Note the peak so far: the session is loaded and prepared."""
        self._load = self._peak()
        self._gpu_loaded = self._gpu()
        self._apart = self._reset() and self._apart

    def report(self) -> Memory:
        """Return the peaks; what came after `loaded` is running."""
        running = self._peak() if self._apart else None
        known = [peak for peak in (self._load, self._peak()) if peak is not None]
        held = [gpu for gpu in (self._gpu_loaded, self._gpu()) if gpu is not None]
        return Memory(
            self._load, running, max(known, default=None), max(0, max(held) - self._gpu_empty) if held else None
        )

    def _peak(self) -> int | None:
        """Return the high-water mark over the empty self; None if it still is an earlier one."""
        peak = self._read("VmHWM")
        if peak is None or self._empty is None or self._mark is None:
            return None
        if not self._apart and peak <= self._mark:
            return None
        return max(0, peak - self._empty)

    def _reset(self) -> bool:
        try:
            self._clear_refs.write_text(RESET_PEAK, encoding="ascii")
        except OSError:
            return False
        return True

    def _read(self, name: str) -> int | None:
        """Return a field of the kernel's [byte]."""
        try:
            text = self._status.read_text(encoding="utf-8")
        except OSError:
            return None
        found = re.search(rf"^{name}:\s*(\d+) kB$", text, re.MULTILINE)
        return int(found[1]) * 1024 if found else None

    def _gpu(self) -> int | None:
        return own_memory_bytes(self._nvml) if self._nvml else None
