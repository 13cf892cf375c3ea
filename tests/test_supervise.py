"""Every way a stage can end becomes a manifest: status, one line, log, the command that repeats it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from strop.artifact import read_manifest
from strop.supervise import machine_lock, run_step

FACTORIES = """
import os, signal, subprocess, sys, time
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x)

def fine():
    return Net()

def raises():
    raise RuntimeError("the converter does not\\nknow this operator")

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def aborts():
    os.abort()

def exits():
    os._exit(3)

def hoards():
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20)) * 16)

def loops():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    while True:
        time.sleep(0.05)

def no_memory():
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
"""


@pytest.fixture
def step(bench):
    import numpy as np

    (bench.project / "factories.py").write_text(FACTORIES)
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))}, calibration=0)

    def made(function, **limits):
        from support import full_settings

        settings = full_settings("model", "factory", {"factory": f"factories.py:{function}"})
        return {
            "stage": "model", "id": "0" * 12, "option": "factory", "settings": settings,
            "upstream": {"dataset": data.key}, "device": {"kind": "cpu", "threads": 1, "huge_pages": False},
            "requires": ["torch"], "timeout_s": 60.0, "memory_bytes": 4e9, **limits,
        }  # fmt: skip

    return made


def run(bench, step):
    return run_step(step, results=bench.results, project=bench.project)


def test_success_has_files_and_facts(bench, step):
    manifest = run(bench, step("fine"))
    assert manifest.status == "ok"
    assert manifest.error is None
    assert manifest.repeat is None
    assert manifest.versions.keys() >= {"strop", "torch"}
    assert manifest.machine["cores"] >= 1
    assert manifest.peak_memory_bytes > 1e7
    assert read_manifest(bench.results / manifest.key) == manifest


@pytest.mark.parametrize(
    ("function", "limits", "status", "words"),
    [
        ("raises", {}, "build_failed", "the converter does not know this operator"),
        ("killed", {}, "crashed", "killed by SIGKILL"),
        ("aborts", {}, "crashed", "killed by SIGABRT"),
        ("exits", {}, "crashed", "exit code 3"),
        ("hoards", {"memory_bytes": 1e9}, "out_of_memory", "the limit is memory_bytes=1e+09"),
        ("no_memory", {}, "out_of_memory", "can't allocate memory"),
        ("loops", {"timeout_s": 6.0}, "timeout", "longer than timeout_s=6"),
    ],
)
def test_every_failure_has_a_status_a_line_a_log_and_a_command(bench, step, function, limits, status, words):
    manifest = run(bench, step(function, **limits))
    assert manifest.status == status
    assert words in manifest.error
    assert "\n" not in manifest.error
    assert Path(manifest.log).is_file()
    assert manifest.repeat == f"strop repeat model/{'0' * 12}"
    assert read_manifest(bench.results / manifest.key).status == status
    mine = psutil.Process().children(recursive=True)
    assert not [child for child in mine if child.status() != psutil.STATUS_ZOMBIE]


def test_what_waits_for_a_failure_is_blocked_and_names_the_root(bench, step):
    failed = run(bench, step("raises"))
    follower = {
        **step("fine"),
        "stage": "prune",
        "option": "magnitude",
        "id": "1" * 12,
        "upstream": {"source": failed.key},
    }
    blocked = run(bench, follower)
    last = run(bench, {**follower, "stage": "export", "id": "2" * 12, "upstream": {"source": blocked.key}})
    for manifest in (blocked, last):
        assert manifest.status == "blocked"
        assert manifest.details["root"]["step"] == failed.key
        assert "ended as build_failed" in manifest.error
        assert manifest.repeat == failed.repeat


def test_a_step_is_done_once_when_two_ask_for_it(bench, step):
    found = []
    asked = [threading.Thread(target=lambda: found.append(run(bench, step("fine")))) for _ in range(2)]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    assert found[0] == found[1]


def test_a_benchmark_waits_for_other_steps_which_work_side_by_side(tmp_path):
    model, benchmark = ({"stage": stage, "id": "0" * 12} for stage in ("model", "benchmark"))
    alone = threading.Event()

    def measure():
        with machine_lock(benchmark, tmp_path):
            alone.set()

    waiting = threading.Thread(target=measure)
    with machine_lock(model, tmp_path), machine_lock(model, tmp_path):
        waiting.start()
        assert not alone.wait(0.3)
    assert alone.wait(30)
    waiting.join()


def test_a_step_that_was_killed_with_its_supervisor_is_done_again(bench, step, tmp_path):
    """`kill -9` of the supervisor takes the stage's process along and leaves no manifest."""
    import json

    job = tmp_path / "step.json"
    job.write_text(json.dumps(step("loops")))
    code = (
        "import json, sys; from pathlib import Path; from strop.supervise import run_step;"
        "run_step(json.loads(Path(sys.argv[1]).read_text()), results=Path(sys.argv[2]), project=Path(sys.argv[3]))"
    )
    arguments = [str(job), str(bench.results), str(bench.project)]
    supervisor = subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True)
    (child,) = wait_for(lambda: psutil.Process(supervisor.pid).children())
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    assert wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert not (bench.results / "model" / ("0" * 12) / "manifest.json").exists()
    assert run(bench, step("fine")).status == "ok"


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")
