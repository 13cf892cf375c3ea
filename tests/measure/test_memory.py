"""Peaks of memory: real arrays in a real process of their own, and the GPU's through a stand-in of NVML."""

import json
import os
import subprocess
import sys

import pytest
from fake_nvml import Nvml

from strop.measure.memory import Memory, MemoryWatch

MIB = 1 << 20
SLACK = 4 * MIB  # huge pages, and the allocator's own
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's high-water mark is Linux's")

SCRIPT = """
import json, sys
import numpy as np
from pathlib import Path
from strop.measure.memory import MemoryWatch

def touched(mib):
    return np.ones(mib << 17)

before, kept, loading, running = map(int, sys.argv[1:5])
touched(before)
watch = MemoryWatch("cpu", **({"clear_refs": Path(sys.argv[5])} if len(sys.argv) > 5 else {}))
session = touched(kept)
touched(loading)
watch.loaded()
touched(running)
print(json.dumps(vars(watch.report())))
"""


def measured(*mib, clear_refs=None):
    """Return the peaks of a process that holds an array of each size [MiB]: before the watch is made (then freed), as
    the session, for a while during the load, and for a while during a call.
    """
    arguments = [str(size) for size in mib] + ([str(clear_refs)] if clear_refs else [])
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    return Memory(**json.loads(done.stdout))


@linux
def test_load_and_run_have_peaks_of_their_own():
    found = measured(0, 50, 100, 30)
    assert found.load_bytes == pytest.approx(150 * MIB, abs=SLACK)
    assert found.running_bytes == pytest.approx(80 * MIB, abs=SLACK)
    assert found.peak_bytes == found.load_bytes
    assert found.gpu_bytes is None


@linux
def test_what_a_call_needs_is_seen_and_what_was_before_the_watch_is_not():
    found = measured(300, 20, 10, 120)
    assert found.load_bytes == pytest.approx(30 * MIB, abs=SLACK)
    assert found.running_bytes == pytest.approx(140 * MIB, abs=SLACK)
    assert found.peak_bytes == found.running_bytes


@linux
def test_without_the_reset_only_what_passed_the_earlier_mark_is_known(tmp_path):
    refused = tmp_path / "no" / "clear_refs"
    passed = measured(10, 50, 100, 200, clear_refs=refused)
    assert passed.load_bytes == pytest.approx(150 * MIB, abs=SLACK)
    assert passed.running_bytes is None
    assert passed.peak_bytes == pytest.approx(250 * MIB, abs=SLACK)
    assert measured(300, 50, 100, 30, clear_refs=refused) == Memory(None, None, None, None)


def test_where_the_kernel_says_nothing_nothing_is_known(tmp_path):
    watch = MemoryWatch("cpu", tmp_path / "status", tmp_path / "no" / "clear_refs")
    watch.loaded()
    assert watch.report() == Memory(None, None, None, None)


@pytest.fixture
def gpu(monkeypatch):
    nvml = Nvml(processes=[[], [(1, 7 * MIB)]])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_memory_on_gpus_is_this_processs_and_its_highest(gpu):
    watch = MemoryWatch("cuda")
    gpu.processes = [[(os.getpid(), 500 * MIB)], [(1, 7 * MIB), (os.getpid(), 30 * MIB)]]
    watch.loaded()
    gpu.processes = [[(os.getpid(), 400 * MIB)], [(1, 900 * MIB)]]
    assert watch.report().gpu_bytes == 530 * MIB


def test_memory_on_gpus_is_over_the_empty_self(gpu):
    gpu.processes = [[(os.getpid(), 100 * MIB)], []]
    watch = MemoryWatch("cuda")
    watch.loaded()
    gpu.processes = [[(os.getpid(), 160 * MIB)], []]
    assert watch.report().gpu_bytes == 60 * MIB


@pytest.mark.parametrize(
    "seen",
    [[[], []], [[(1, MIB)], []], [[(os.getpid(), None)], []]],
    ids=["no context", "another namespace", "not told"],
)
def test_a_process_that_nvml_does_not_tell_of_has_no_memory_on_gpus(gpu, seen):
    watch = MemoryWatch("cuda")
    gpu.processes = seen
    watch.loaded()
    assert watch.report().gpu_bytes is None


def test_without_a_driver_or_on_a_cpu_there_is_no_memory_on_gpus(gpu):
    gpu.processes = [[(os.getpid(), MIB)], []]
    assert MemoryWatch("cpu").report().gpu_bytes is None
    gpu.driver = False
    assert MemoryWatch("cuda").report().gpu_bytes is None
