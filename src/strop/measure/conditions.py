"""What the machine was like during a measurement, and whether that makes the numbers doubtful.

Linux says it all in small files; whatever cannot be read, there or elsewhere, is null and no reason for doubt.
`docs/measurement.md` holds the definition of `noisy` as a table.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import psutil

# Quiet runs of real models saw 0.04 to 0.2 cores: the waiting workflow and the system. One busy core is far over it.
FOREIGN_CORES = 0.4
# Quiet runs on a virtual machine saw up to 0.4 %, its own heavy load up to 1 %. Blocks of both arms suffer alike, but
# stolen time comes in pieces of milliseconds: at 2 % they are what p99 shows.
STEAL_SHARE = 0.02
# The event is counted when a core has already lowered its clock; a CPU that is cooled well never gets there.
THROTTLE_EVENTS = 0
# A quota stops all threads for the rest of a period, mostly of 100 ms: at 1 % of the time p99 is made of such stops.
QUOTA_SHARE = 0.01
# Quiet runs saw 0 or 1 in all. One takes 0.1 ms (SSD) to 10 ms (disk): one a second is up to 1 % of the time.
MAJOR_FAULTS_PER_S = 1.0
# Quiet runs saw 13 (1 thread) to 45 (as many threads as CPUs); one rival on each CPU made it 213.
INVOLUNTARY_SWITCHES_PER_S = 100.0
# Boost clocks move by a step or two of 100 MHz, a few per cent, without any harm; losing the boost costs more.
FREQUENCY_CHANGE = 0.1

AWAKE_S = 0.02  # a governor takes about 10 ms to raise the clock of a CPU that was at rest


@dataclass(frozen=True)
class Usage:
    """What a process has used, all its threads together, as getrusage(2) counts it."""

    cpu_s: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    voluntary_switches: int = 0
    involuntary_switches: int = 0

    @classmethod
    def now(cls, who: int = resource.RUSAGE_SELF) -> Usage:
        """Return what this process (or with RUSAGE_CHILDREN its ended children) has used; it takes two microseconds."""
        used = resource.getrusage(who)
        return cls(used.ru_utime + used.ru_stime, used.ru_minflt, used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw)

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(ours - theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


class Watch:
    """Reads counters when it is made, and again at `conditions`.

    Args:
        root: where /proc and /sys are.
        clock: monotonic clock [s].
    """

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._frequency = _frequency_hz(root)
        self._load = _load_1min(root)
        self._own_s = time.process_time()
        self._counters = _counters(root)
        self._began = clock()

    def conditions(self, workers: Sequence[Usage], blocks: Sequence[Usage]) -> dict[str, Any]:
        """Return the conditions since the watch was made; each is null where it cannot be read.

        Args:
            workers: all that each worker used; CPU time beyond it and this process's own is foreign.
            blocks: what each worker used within its blocks of calls. Page faults and switches are judged by these: to
                load a library or weights from disk takes major faults, and harms no timed call.

        Returns:
            wall_s [s], foreign_cores [CPU seconds a second] (system-wide, interrupts included), steal_share [1],
            load_1min_start, load_1min_end, workers and blocks (sums of `Usage`), frequency_hz (start and end, each
            the lowest and the highest over CPUs), throttled [events], quota_throttled [periods], quota_throttled_s
            [s, summed over CPUs], pressure_share (time in which some task waited for a CPU) [1].
        """
        wall_s = max(self._clock() - self._began, 1e-9)
        after = _counters(self._root)
        spent = {name: after[name] - before for name, before in self._counters.items() if name in after}
        used = sum(workers, Usage())
        own_s = used.cpu_s + time.process_time() - self._own_s
        ends = {"start": self._frequency, "end": _frequency_hz(self._root)}
        return {
            "wall_s": round(wall_s, 3),
            "foreign_cores": round(max(0.0, spent["busy_s"] - own_s) / wall_s, 3) if "busy_s" in spent else None,
            "steal_share": round(spent["steal_s"] / max(spent["total_s"], 1e-9), 4) if "busy_s" in spent else None,
            "load_1min_start": self._load,
            "load_1min_end": _load_1min(self._root),
            "workers": asdict(used),
            "blocks": asdict(sum(blocks, Usage())),
            "frequency_hz": ends if all(ends.values()) else None,
            "throttled": spent.get("throttled"),
            "quota_throttled": spent.get("quota_throttled"),
            "quota_throttled_s": spent.get("quota_throttled_s"),
            "pressure_share": round(spent["pressure_s"] / wall_s, 4) if "pressure_s" in spent else None,
        }


def noise(conditions: dict[str, Any], half_width: float, precision: float, threads: int, cpus: int) -> str | None:
    """Return why a measurement is noisy, or None. A condition that is null or missing is no reason.

    Args:
        conditions: of a `Watch`.
        half_width: of the speedup's interval, relative [1].
        precision: half-width that was wanted [1].
        threads: of one call [1].
        cpus: that the workers may run on [1].
    """
    reasons = [*_machine(conditions), *_calls(conditions)]
    if half_width > 2 * precision:
        reasons.append(f"the interval is +-{half_width:.1%}, wanted +-{precision:.1%}")
    if threads > cpus:
        reasons.append(f"{threads} threads on {cpus} CPUs")
    return "; ".join(reasons) or None


def _machine(conditions: dict[str, Any]) -> Iterator[str]:
    """Yield what the machine took from everybody."""
    if (cores := conditions.get("foreign_cores") or 0.0) > FOREIGN_CORES:
        yield f"other processes used {cores:.1f} cores"
    if (share := conditions.get("steal_share") or 0.0) > STEAL_SHARE:
        yield f"the hypervisor took {share:.0%} of the time"
    if (events := conditions.get("throttled") or 0) > THROTTLE_EVENTS:
        yield f"cores throttled {events:.0f} times, being too hot"
    stopped_s = conditions.get("quota_throttled_s") or 0.0
    if stopped_s and stopped_s > QUOTA_SHARE * conditions["wall_s"]:
        yield f"a CPU quota stopped the run {conditions['quota_throttled']:.0f} times, for {stopped_s:.1f} s"
    if frequency := conditions.get("frequency_hz"):
        before, after = (frequency[end]["highest"] for end in ("start", "end"))
        if abs(after / before - 1) > FREQUENCY_CHANGE:
            yield f"the CPU's clock went from {before / 1e9:.1f} to {after / 1e9:.1f} GHz"


def _calls(conditions: dict[str, Any]) -> Iterator[str]:
    """Yield what interrupted the timed calls."""
    blocks = Usage(**conditions.get("blocks", {}))
    if blocks.major_faults > MAJOR_FAULTS_PER_S * blocks.cpu_s:
        yield f"timed calls waited for the disk {blocks.major_faults} times (major page faults)"
    if blocks.involuntary_switches > INVOLUNTARY_SWITCHES_PER_S * blocks.cpu_s:
        rate = blocks.involuntary_switches / max(blocks.cpu_s, 1e-9)
        yield f"timed calls lost their CPU {rate:.0f} times a second"


def _counters(root: Path) -> dict[str, float]:
    """Return the counters that can be read now."""
    pressure = _text(root / "proc/pressure/cpu").partition("some ")[2].partition("total=")[2].split()
    throttles = _numbers(root, "thermal_throttle/core_throttle_count")
    return {
        **_cpu_times(root),
        **({"pressure_s": int(pressure[0]) / 1e6} if pressure else {}),
        **({"throttled": sum(throttles)} if throttles else {}),
        **_quota(root),
    }


def _cpu_times(root: Path) -> dict[str, float]:
    """Return the system's busy, stolen and total time [s]; guests' time is part of user time (proc_stat(5))."""
    words = _text(root / "proc/stat").partition("\n")[0].split()[1:]
    if len(words) < 8:
        return {}
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in words[:8])
    busy_s = user + nice + system + irq + softirq
    return {"busy_s": busy_s, "steal_s": steal, "total_s": busy_s + idle + iowait + steal}


def _quota(root: Path) -> dict[str, float]:
    """Return how often and how long [s] the CPU quota of this process's control group stopped it.

    A quota may stand at any level above as well; a mount may show the own group as its root.
    """
    stats = [
        dict(line.split() for line in _text(folder / "cpu.stat").splitlines() if len(line.split()) == 2)
        for folder in _groups(root)
    ]
    found = [stat for stat in stats if "nr_throttled" in stat]
    if not found:
        return {}
    seconds = (int(s.get("throttled_usec", 0)) / 1e6 + int(s.get("throttled_time", 0)) / 1e9 for s in found)  # v2, v1
    return {"quota_throttled": sum(int(s["nr_throttled"]) for s in found), "quota_throttled_s": sum(seconds)}


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the own control groups that may hold CPU time, from the own one upwards (cgroups(7))."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        folder = mount / path.lstrip("/")
        while folder != mount:
            yield folder
            folder = folder.parent
        yield mount


def _frequency_hz(root: Path) -> dict[str, float] | None:
    """Return the lowest and the highest clock over all CPUs, one of them just kept busy."""
    awake = time.perf_counter() + AWAKE_S
    while time.perf_counter() < awake:
        pass
    known = [value * 1e3 for value in _numbers(root, "cpufreq/scaling_cur_freq")]
    if not known:
        try:
            known = [cpu.current * 1e6 for cpu in psutil.cpu_freq(percpu=True) or []]
        except (AttributeError, NotImplementedError, OSError, RuntimeError):  # it depends on the system
            return None
    known = [value for value in known if value > 0]
    return {"lowest": min(known), "highest": max(known)} if known else None


def _load_1min(root: Path) -> float | None:
    words = _text(root / "proc/loadavg").split()
    return float(words[0]) if words else None


def _numbers(root: Path, name: str) -> list[int]:
    """Return a number of each CPU that has one."""
    texts = (_text(path).strip() for path in root.glob(f"sys/devices/system/cpu/cpu[0-9]*/{name}"))
    return [int(text) for text in texts if text.isdigit()]


def _text(path: Path) -> str:
    """Return a file's text; empty if it is not there, not allowed, or (pressure) switched off in the kernel."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
