"""Energy counters: RAPL's as a tree of files that the test rewrites, NVML's as a stand-in."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
from fake_nvml import Nvml
from hypothesis import given
from hypothesis import strategies as st

from strop.measure.energy import Counter, EnergyMeter, open_meter

NOBODY = 65534


def zone(root, number, name, energy_uj, wraps_at_uj=262_143_328_850):
    folder = root / "sys/class/powercap" / f"intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def test_energy_is_counted_since_the_opening(tmp_path):
    counter = zone(tmp_path, 0, "package-0", 5_000_000)
    meter = open_meter("cpu", tmp_path)
    assert meter.read_j() == 0.0
    counter.write_text("7500000\n")
    assert meter.read_j() == pytest.approx(2.5)
    counter.write_text("8000000\n")
    assert meter.read_j() == pytest.approx(3.0)
    assert meter.reason is None


def test_packages_are_summed_and_their_parts_and_the_platform_are_not(tmp_path):
    others = [
        zone(tmp_path, number, name, 0)
        for number, name in (("0:0", "core"), ("0:1", "dram"), ("2", "psys"))  # parts of it, and more than it
    ]
    packages = [zone(tmp_path, 0, "package-0", 0), zone(tmp_path, 1, "package-1", 0)]
    meter = open_meter("cpu", tmp_path)
    for counter in others:
        counter.write_text("999000000\n")
    for counter in packages:
        counter.write_text("1000000\n")
    assert meter.read_j() == pytest.approx(2.0)


def test_a_counter_that_starts_again_loses_nothing(tmp_path):
    counter = zone(tmp_path, 0, "package-0", 9_000_000, wraps_at_uj=10_000_000)
    meter = open_meter("cpu", tmp_path)
    for value, expected_j in ((9_500_000, 0.5), (1_000_000, 2.0), (0, 11.0), (4_000_000, 15.0)):
        counter.write_text(f"{value}\n")
        assert meter.read_j() == pytest.approx(expected_j)


@given(st.integers(2, 10**12), st.lists(st.floats(0, 1, exclude_max=True), max_size=30), st.integers(0, 10**12))
def test_the_sum_is_what_was_used_whenever_it_is_read(wraps_at, steps, begin):
    total = begin
    meter = EnergyMeter([Counter(lambda: total % wraps_at, 1.0, wraps_at)])
    for step in steps:
        total += int(step * wraps_at)  # less than once around between two readings
        assert meter.read_j() == pytest.approx(total - begin)


def test_without_a_counter_there_is_a_reason(tmp_path):
    meter = open_meter("cpu", tmp_path)
    assert meter.read_j() is None
    assert meter.reason == "no package domain in /sys/class/powercap (virtual machines seldom have one)"
    zone(tmp_path, 1, "psys", 0)
    assert open_meter("cpu", tmp_path).read_j() is None


def test_without_permission_the_reason_says_what_allows_it():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        counter = zone(root, 0, "package-0", 0)
        counter.chmod(0o400 if os.geteuid() == 0 else 0o000)
        as_root = os.geteuid() == 0
        if as_root:  # whom no file's mode keeps out
            os.seteuid(NOBODY)
        try:
            meter = open_meter("cpu", root)
        finally:
            if as_root:
                os.seteuid(0)
    assert meter.read_j() is None
    assert meter.reason.startswith(f"{counter} is readable by root only (since CVE-2020-8694); sudo chmod a+r ")


def test_a_counter_that_fails_during_the_run_is_a_reason_from_then_on(tmp_path):
    counter = zone(tmp_path, 0, "package-0", 0)
    meter = open_meter("cpu", tmp_path)
    counter.unlink()
    assert meter.read_j() is None
    counter.write_text("1000000\n")
    assert meter.read_j() is None
    assert meter.reason == f"the counter failed during the run: {counter}: no such file or directory"


def test_nonsense_in_a_counter_is_a_reason(tmp_path):
    zone(tmp_path, 0, "package-0", "none")
    meter = open_meter("cpu", tmp_path)
    assert meter.read_j() is None
    assert meter.reason.startswith("RAPL cannot be read: ValueError")


@pytest.fixture
def gpu(monkeypatch):
    nvml = Nvml(processes=[[], []], energy_mj=123_000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


def test_a_gpus_energy_is_counted_since_the_opening(gpu):
    meter = open_meter("cuda")
    gpu.energy_mj += 2500
    assert meter.read_j() == pytest.approx(2.5)


@pytest.mark.parametrize(("visible", "asked"), [(None, 0), ("1", 1), ("1,0", 1), ("GPU-4f2a,GPU-77", "GPU-4f2a")])
def test_the_device_is_the_first_that_cuda_sees(gpu, monkeypatch, visible, asked):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert open_meter("cuda").reason is None
    assert gpu.asked == asked


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_no_visible_device_is_a_reason(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = open_meter("cuda")
    assert meter.read_j() is None
    assert meter.reason.startswith("NVML gives no energy: ")


def test_a_gpu_without_the_counter_a_driver_that_is_down_and_a_missing_package_are_reasons(gpu, monkeypatch):
    gpu.energy_mj = None
    assert open_meter("cuda").reason == "NVML gives no energy: Not Supported"
    gpu.driver = False
    assert open_meter("cuda").reason == "NVML does not start: Driver Not Loaded"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = open_meter("cuda")
    assert meter.reason == "the package 'pynvml' is not installed; pip install nvidia-ml-py"
    assert meter.read_j() is None
