"""Energy counters of the machine: RAPL for CPUs, NVML for NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import one_line
from strop.measure.nvml import first_device, open_nvml


@dataclass
class Counter:
    """A counter that only grows, but for its wrap-around.

    Attributes:
        read: returns the counter's value; raises OSError if it cannot.
        unit_j: energy of one step [J].
        wraps_at: value at which it starts again from 0, if it does.
    """

    read: Callable[[], int]
    unit_j: float
    wraps_at: int = 0


class EnergyMeter:
    """Energy since the meter was made.

    The counters are of a whole CPU package or a whole GPU: what others use meanwhile, and what the machine uses at
    rest, is in them. Compare arms that were measured in turns, on a machine of one's own.

    RAPL's counters move about every millisecond (Haehnel et al. 2012, Measuring energy consumption for short code paths
    using RAPL), NVML's more rarely, so a block of less than about 20 ms must not be used alone: sum over many
    blocks. A package's counter starts again after a range of minutes to an hour of full load; read at least once in it.

    Args:
        counters: all that are summed; none if there is a reason.
        reason: why there is no energy, or None.

    Raises:
        OSError: a counter cannot be read.
    """

    def __init__(self, counters: list[Counter], reason: str | None = None) -> None:
        self.reason = reason
        self._counters = counters
        self._last = [counter.read() for counter in counters]
        self._sum_j = 0.0

    def read_j(self) -> float | None:
        """Return the energy since the meter was made [J], or None, and then `reason` says why."""
        if self.reason is None:
            try:
                now = [counter.read() for counter in self._counters]
            except OSError as error:
                self.reason = f"the counter failed during the run: {one_line(error)}"
        if self.reason is not None:
            return None
        for counter, before, after in zip(self._counters, self._last, now, strict=True):
            grown = after - before + (counter.wraps_at if after < before else 0)
            self._sum_j += grown * counter.unit_j
        self._last = now
        return self._sum_j


def open_meter(kind: str, root: Path = Path("/")) -> EnergyMeter:
    """Return a meter of the device; where there is no counter to read, one that knows the reason.

    Args:
        kind: of the device: `cpu` (all packages, their cores and caches, not the memory of servers) or `cuda` (the
            device that CUDA calls 0, its memory included).
        root: where /sys is.
    """
    return _open_nvml() if kind == "cuda" else _open_rapl(root)


def _open_rapl(root: Path) -> EnergyMeter:
    """Sum the package domains of powercap; the domains within a package are parts of it, psys is more than it."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    try:
        packages = [zone for zone in zones if (zone / "name").read_text().startswith("package-")]
        if not packages:
            return EnergyMeter([], "no package domain in /sys/class/powercap (virtual machines seldom have one)")
        return EnergyMeter([_rapl_counter(zone) for zone in packages])
    except PermissionError as error:
        return EnergyMeter(
            [],
            f"{error.filename} is readable by root only (since CVE-2020-8694); "
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj allows it until the next boot",
        )
    except (OSError, ValueError) as error:
        return EnergyMeter([], f"RAPL cannot be read: {one_line(error)}")


def _rapl_counter(zone: Path) -> Counter:
    return Counter(lambda: int((zone / "energy_uj").read_text()), 1e-6, int((zone / "max_energy_range_uj").read_text()))


def _open_nvml() -> EnergyMeter:
    nvml, reason = open_nvml()
    if reason is not None:
        return EnergyMeter([], reason)
    try:
        return EnergyMeter([Counter(_nvml_reader(nvml, first_device(nvml)), 1e-3)])
    except (OSError, nvml.NVMLError) as error:
        return EnergyMeter([], f"NVML gives no energy: {error}")


def _nvml_reader(nvml: Any, device: Any) -> Callable[[], int]:
    """Return a reader of the energy since the driver was loaded [mJ], which GPUs have since Volta."""

    def read() -> int:
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(device))
        except nvml.NVMLError as error:
            raise OSError(str(error)) from error

    return read
