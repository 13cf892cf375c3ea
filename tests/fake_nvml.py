"""A stand-in for `pynvml` with the functions that strop calls, under the names and with the returns of the real one."""

from __future__ import annotations

from types import SimpleNamespace


class NVMLError(Exception):
    pass


class Nvml:
    """Devices are numbers; `processes` holds (pid, bytes or None) of each, `energy_mj` is the counter of all."""

    NVMLError = NVMLError

    def __init__(self, processes=((),), energy_mj=0, driver=True):
        self.processes, self.energy_mj, self.driver = list(processes), energy_mj, driver
        self.asked = None

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.processes)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index >= len(self.processes):
            raise NVMLError("Invalid Argument")
        self.asked = index
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if not uuid.startswith("GPU-"):
            raise NVMLError("Not Found")
        self.asked = uuid
        return 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes[handle]]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if self.energy_mj is None or not 0 <= handle < len(self.processes):
            raise NVMLError("Not Supported")
        return self.energy_mj
