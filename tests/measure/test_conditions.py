"""Conditions come from small trees of files and a clock in the test's hand; what cannot be read is null."""

import json
import os
import pickle
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.measure.conditions import (
    FOREIGN_CORES,
    FREQUENCY_CHANGE,
    INVOLUNTARY_SWITCHES_PER_S,
    MAJOR_FAULTS_PER_S,
    QUOTA_SHARE,
    STEAL_SHARE,
    THROTTLE_EVENTS,
    Usage,
    Watch,
    noise,
)

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Machine:
    """A tree of the kernel's files, and a clock."""

    def __init__(self, root):
        self.root, self.now_s = root, 100.0

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def times(self, *, user=0.0, irq=0.0, softirq=0.0, idle=0.0, steal=0.0, guest=0.0):
        seconds = (user, 0, 0, idle, 0, irq, softirq, steal, guest, 0)
        self.write("proc/stat", "cpu  " + " ".join(str(round(s / TICK_S)) for s in seconds) + "\ncpu0 1 2 3\n")

    def watch(self):
        return Watch(self.root, lambda: self.now_s)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_time_that_is_not_ours_is_foreign_interrupts_included_and_guests_not_counted_twice(machine):
    machine.times(user=50.0, idle=10.0)
    watch = machine.watch()
    machine.now_s += 10.0
    machine.times(user=62.0, irq=0.5, softirq=1.5, idle=16.0, steal=0.5, guest=12.0)
    found = watch.conditions([Usage(cpu_s=3.0), Usage(cpu_s=1.0)], [])
    assert found["wall_s"] == 10.0
    assert found["foreign_cores"] == pytest.approx((12.0 + 2.0 - 4.0) / 10.0, abs=0.02)  # this process's own time
    assert found["steal_share"] == pytest.approx(0.5 / 20.5, abs=1e-4)


def test_more_own_time_than_the_system_counted_is_no_foreign_time(machine):
    machine.times(user=1.0)
    watch = machine.watch()
    machine.now_s += 1.0
    assert watch.conditions([Usage(cpu_s=5.0)], [])["foreign_cores"] == 0.0


def test_counters_are_of_the_run_and_not_of_all_time(machine):
    machine.write("proc/pressure/cpu", "some avg10=1.00 avg60=2.00 avg300=3.00 total=5000000\nfull avg10=0 total=77\n")
    machine.write("proc/loadavg", "0.25 0.30 0.35 1/100 4242\n")
    for cpu, count in enumerate((7, 9)):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count", f"{count}\n")
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", f"{2_000_000 + cpu * 1_000_000}\n")
    watch = machine.watch()
    machine.now_s += 20.0
    machine.write("proc/pressure/cpu", "some avg10=1.00 avg60=2.00 avg300=3.00 total=6000000\nfull avg10=0 total=77\n")
    machine.write("proc/loadavg", "1.50 0.30 0.35 1/100 4242\n")
    machine.write("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "12\n")
    machine.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2500000\n")
    found = watch.conditions([], [])
    assert found["pressure_share"] == 0.05
    assert (found["load_1min_start"], found["load_1min_end"]) == (0.25, 1.5)
    assert found["throttled"] == 3
    assert found["frequency_hz"] == {
        "start": {"lowest": 2e9, "highest": 3e9},
        "end": {"lowest": 2e9, "highest": 2.5e9},
    }


@pytest.mark.parametrize(
    ("group", "folder", "stat"),
    [
        ("0::/job/step\n", "sys/fs/cgroup/job/step", "nr_periods 9\nnr_throttled {}\nthrottled_usec {}000000\n"),
        ("0::/job/step\n", "sys/fs/cgroup/job", "nr_throttled {}\nthrottled_usec {}000000\n"),  # a quota further up
        ("0::/docker/4f2a\n", "sys/fs/cgroup", "nr_throttled {}\nthrottled_usec {}000000\n"),  # mounted as the root
        (
            "5:memory:/m\n4:cpu,cpuacct:/job\n3:cpuset:/c\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/job",
            "nr_periods 9\nnr_throttled {}\nthrottled_time {}000000000\n",
        ),
    ],
    ids=["v2", "v2 above", "v2 in a container", "v1"],
)
def test_a_quota_is_found_in_either_version_of_control_groups(machine, group, folder, stat):
    machine.write("proc/self/cgroup", group)
    machine.write(f"{folder}/cpu.stat", stat.format(4, 2))
    watch = machine.watch()
    machine.write(f"{folder}/cpu.stat", stat.format(10, 5))
    found = watch.conditions([], [])
    assert found["quota_throttled"] == 6
    assert found["quota_throttled_s"] == pytest.approx(3.0)


def test_a_group_without_a_quota_says_nothing(machine):
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 10\nuser_usec 7\nsystem_usec 3\n")
    assert machine.watch().conditions([], [])["quota_throttled"] is None


def test_what_cannot_be_read_is_null_and_no_reason(machine, monkeypatch):
    def refuse(percpu):
        raise NotImplementedError

    monkeypatch.setattr(psutil, "cpu_freq", refuse)
    watch = machine.watch()
    machine.now_s += 2.0
    found = watch.conditions([], [])
    assert found.pop("workers") == found.pop("blocks") == vars(Usage())
    assert found.pop("wall_s") == 2.0
    assert set(found.values()) == {None}
    assert noise({**found, "wall_s": 2.0}, 0.01, 0.02, 1, 1) is None


def test_a_counter_that_goes_away_is_null(machine):
    machine.write("proc/pressure/cpu", "some avg10=0.00 total=5\n")
    watch = machine.watch()
    (machine.root / "proc/pressure/cpu").unlink()
    assert watch.conditions([], [])["pressure_share"] is None


def test_conditions_of_this_machine_are_of_this_time_and_fit_in_a_manifest():
    watch = Watch()
    busy = time.process_time() + 0.1
    while time.process_time() < busy:
        pass
    found = watch.conditions([], [Usage.now()])
    assert found["wall_s"] >= 0.1
    assert found["blocks"]["cpu_s"] > 0
    if os.path.exists("/proc/stat"):  # noqa: PTH110
        assert 0 <= found["foreign_cores"] <= os.cpu_count()
        assert 0 <= found["steal_share"] <= 1
    assert json.loads(json.dumps(found)) == found


def test_usage_grows_with_use_and_travels_between_processes():
    before = Usage.now()
    pages = bytearray(1 << 24)
    used = Usage.now() - before
    assert used.minor_faults > 0
    assert used.cpu_s >= 0
    assert len(pages) == 1 << 24
    assert pickle.loads(pickle.dumps(used)) == used


numbers = st.integers(0, 10**9)
usages = st.builds(Usage, numbers, numbers, numbers, numbers, numbers)


@given(usages, usages)
def test_usage_adds_up(a, b):
    assert a + b == b + a
    assert a + b - b == a
    assert sum([a, b], Usage()) == a + b


def steady(hz):
    return {"start": {"lowest": 1e9, "highest": 3e9}, "end": {"lowest": 8e8, "highest": hz}}


def blocks(**changes):
    return vars(Usage(cpu_s=10.0, minor_faults=10**6, voluntary_switches=10**6)) | changes


CALM = {
    "wall_s": 20.0,
    "foreign_cores": FOREIGN_CORES,
    "steal_share": STEAL_SHARE,
    "load_1min_start": 50.0,
    "load_1min_end": 50.0,
    "workers": vars(Usage(1.0, 10**6, 10**6, 10**6, 10**6)),
    "blocks": blocks(
        major_faults=int(10 * MAJOR_FAULTS_PER_S), involuntary_switches=int(10 * INVOLUNTARY_SWITCHES_PER_S)
    ),
    "frequency_hz": steady(3e9 * (1 - FREQUENCY_CHANGE) + 1),
    "throttled": THROTTLE_EVENTS,
    "quota_throttled": 9,
    "quota_throttled_s": QUOTA_SHARE * 20.0,
    "pressure_share": 1.0,
}


def test_up_to_every_threshold_a_run_is_calm():
    assert noise(CALM, 0.04, 0.02, 2, 2) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"foreign_cores": 1.2}, "other processes used 1.2 cores"),
        ({"steal_share": 0.1}, "the hypervisor took 10% of the time"),
        ({"throttled": 1}, "cores throttled 1 times, being too hot"),
        ({"quota_throttled_s": 0.5}, "a CPU quota stopped the run 9 times, for 0.5 s"),
        ({"frequency_hz": steady(2.1e9)}, "the CPU's clock went from 3.0 to 2.1 GHz"),
        ({"frequency_hz": steady(3.6e9)}, "the CPU's clock went from 3.0 to 3.6 GHz"),
        ({"blocks": blocks(major_faults=11)}, "timed calls waited for the disk 11 times (major page faults)"),
        ({"blocks": blocks(involuntary_switches=2130)}, "timed calls lost their CPU 213 times a second"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_condition_beyond_its_threshold_is_the_reason(change, reason):
    assert noise({**CALM, **change}, 0.01, 0.02, 1, 2) == reason


def test_noise_has_all_its_reasons():
    loud = noise({"foreign_cores": 1.2, "steal_share": 0.1}, 0.2, 0.02, 4, 2)
    assert loud == (
        "other processes used 1.2 cores; the hypervisor took 10% of the time; "
        "the interval is +-20.0%, wanted +-2.0%; 4 threads on 2 CPUs"
    )
