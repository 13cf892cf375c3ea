"""What the machine was like during a measurement, and whether that makes the numbers doubtful."""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

FOREIGN_CORES = 0.4  # the workflow's own processes use up to 0.2
STEAL_SHARE = 0.02


class Watch:
    """Reads counters when it is made, and again at `conditions`."""

    def __init__(self) -> None:
        self._times = psutil.cpu_times()
        self._wall_s = time.monotonic()
        self._own_s = time.process_time()

    def conditions(self, workers_cpu_s: float) -> dict[str, Any]:
        """Return the conditions since the watch was made.

        Args:
            workers_cpu_s: CPU time of the workers [s]; what else was used is foreign.
        """
        now, wall_s = psutil.cpu_times(), time.monotonic() - self._wall_s
        spent = {name: getattr(now, name) - getattr(self._times, name) for name in now._fields}
        idle = {"idle", "iowait", "steal", "guest", "guest_nice"}  # guest time is part of user time
        busy_s = sum(value for name, value in spent.items() if name not in idle)
        own_s = workers_cpu_s + time.process_time() - self._own_s
        frequency = psutil.cpu_freq()
        return {
            "wall_s": round(wall_s, 3),
            "foreign_cores": round(max(0.0, busy_s - own_s) / wall_s, 3),
            "steal_share": round(spent.get("steal", 0.0) / max(sum(spent.values()), 1e-9), 4),
            "load_1min": os.getloadavg()[0],
            "frequency_hz": frequency.current * 1e6 if frequency else None,
        }


def noise(conditions: dict[str, Any], half_width: float, precision: float, threads: int) -> str | None:
    """Return why a measurement is noisy, or None.

    Args:
        conditions: of a `Watch`.
        half_width: of the speedup's interval, relative [1].
        precision: half-width that was wanted [1].
        threads: of one call [1].
    """
    cores = len(os.sched_getaffinity(0))
    reasons = []
    if conditions["foreign_cores"] > FOREIGN_CORES:
        reasons.append(f"other processes used {conditions['foreign_cores']:.1f} cores")
    if conditions["steal_share"] > STEAL_SHARE:
        reasons.append(f"the hypervisor took {conditions['steal_share']:.0%} of the time")
    if half_width > 2 * precision:
        reasons.append(f"the interval is +-{half_width:.1%}, wanted +-{precision:.1%}")
    if threads > cores:
        reasons.append(f"{threads} threads on {cores} CPUs")
    return "; ".join(reasons) or None
