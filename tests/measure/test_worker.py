"""Real workers: each session is a fresh process that sleeps without burning CPU, and its death has a name."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support import DEVICE, Bench

from strop.errors import StageFailure
from strop.examples import Examples
from strop.measure.arm import WorkerArm
from strop.measure.worker import Worker
from strop.runtimes import open_session
from strop.runtimes.session import run

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and dies with its parent by prctl")
PATIENCE_S = 10.0
TWO_THREADS = {**DEVICE, "threads": 2, "huge_pages": True}
BUILT = {
    "ort": ("engine", "onnxruntime"),
    "openvino": ("engine", "openvino"),
    "torchscript": ("compile", "torchscript"),
    "torch_compile": ("compile", "inductor"),
    "aot_inductor": ("compile", "aot_inductor"),
}
FORMATS = ["torch", "onnx", *BUILT]

# Some behave as they do only in the process in which they are timed.
MODULES = """
import ctypes, gc, os, sys, tempfile
import torch
from torch import nn

TIMED = "strop.measure.worker" in sys.orig_argv


class Plain(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body, self.head = nn.Linear(8, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Collecting(Plain):
    def forward(self, x):
        return super().forward(x) * 0 + float(gc.isenabled())


class Ending(Plain):
    def __init__(self, how):
        super().__init__()
        self.how, self.calls = how, 0

    def forward(self, x):
        self.calls += 1
        if TIMED and self.calls == 3:
            {"segfault": lambda: ctypes.string_at(0), "abort": os.abort,
             "_exit": lambda: os._exit(0), "exit": lambda: sys.exit(3)}[self.how]()
        return super().forward(x)


class Writing(Plain):
    def __init__(self):
        super().__init__()
        if TIMED:
            tempfile.mkstemp(prefix="written")


class Wide(nn.Module):
    '''Its weights are 4 MiB for each layer.'''

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1024, 1024, bias=False) for _ in range(layers)])

    def forward(self, x):
        x = x.repeat(1, 128)
        for layer in self.layers:
            x = x + layer(x)
        return x


def build(name="Plain", **args):
    return globals()[name](**args)
"""


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path_factory, monkeypatch):
    """Who is killed leaves temporary files behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A place for models of eight numbers, which compile soon."""
    made = Bench(tmp_path_factory.mktemp("small"))
    made.data = made.dataset({"x": list(np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32))})
    return made


@pytest.fixture(scope="module")
def artifact(small):
    """Give the folder of a small model in a format."""
    made = {"torch": small.model(MODULES, small.data)}
    made["onnx"] = small.step("export", "onnx", made["torch"], made["torch"])

    def folder(format_):
        if format_ not in made:
            stage, option = BUILT[format_]
            source = made["onnx"] if stage == "engine" else made["torch"]
            made[format_] = small.step(stage, option, source, made["torch"])
        assert made[format_].status == "ok", made[format_].error
        return small.artifact(made[format_]).folder

    folder.examples = small.artifact(made["torch"]).file("examples/test.parquet")
    return folder


@pytest.fixture
def opened(artifact):
    """Start a worker for a folder; all end with the test."""
    made = []

    def start(folder, device=TWO_THREADS, examples=artifact.examples):
        made.append(WorkerArm("variant", folder, examples, [[0], [1, 2], [3]], device))
        made[-1].start()
        return made[-1]

    yield start
    for arm in made:
        arm.close()


@pytest.fixture
def acting(small, opened):
    """Start a worker for a module of MODULES that acts."""

    def start(name, **args):
        model = small.model(MODULES, small.data, factory_args={"name": name, **args})
        assert model.status == "ok", model.error
        return opened(small.artifact(model).folder)

    return start


def template_of(arm):
    return arm._process.pid


def cpu_s(pid):
    """Return the CPU time of all threads of a process [s], to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def all_gone(*pids):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and not all(map(is_gone, pids)):
        time.sleep(0.01)
    return all(map(is_gone, pids))


def test_a_worker_times_each_call_and_gives_right_outputs(opened, text_bench):
    made = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch)
    examples = text_bench.artifact(text_bench.torch).file("examples/test.parquet")
    arm = opened(text_bench.artifact(made).folder, examples=examples)
    opening = arm.renew()
    assert opening.load_s > 0
    assert opening.first_call_s > 0
    began = time.perf_counter()
    block = arm.block([0, 2, 0, 1], keep=True)
    assert block.latency_s.shape == (4,)
    assert (block.latency_s > 0).all()
    assert began < block.start_s[0] < block.start_s[3] < time.perf_counter()
    assert (np.diff(block.start_s) >= block.latency_s[:-1]).all()
    expected = run(open_session(text_bench.artifact(made), threads=1), Examples.read(examples).batch([1, 2]))
    assert block.outputs.keys() == expected.keys()
    for name, value in block.outputs.items():
        assert np.allclose(value, expected[name], atol=1e-6)
    assert arm.block([0]).outputs is None


@linux
@pytest.mark.parametrize("format_", FORMATS)
def test_a_sleeping_worker_burns_no_cpu(artifact, opened, format_):
    arm = opened(artifact(format_))
    arm.renew()
    pids = [arm.process_id(), template_of(arm)]

    def burnt():
        arm.block([0, 1, 2] * 50)
        before, began = [cpu_s(pid) for pid in pids], time.perf_counter()
        time.sleep(0.5)
        slept_s = time.perf_counter() - began
        return max(cpu_s(pid) - used for pid, used in zip(pids, before, strict=True)) / slept_s

    # A machine that is taken away counts as the process's time now and then; who spins does so after each block.
    assert min(burnt() for _ in range(3)) < 0.05


@linux
@pytest.mark.parametrize("format_", FORMATS)
def test_a_process_that_forks_has_no_threads_but_those_that_survive_it(artifact, opened, format_):
    """Arrow's pools and allocator know of forks. OpenVINO's thread waits for usage data to send, without a lock."""
    code = "import os, sys; from pathlib import Path; from strop.examples import Examples\n"
    code += "Examples.read(Path(sys.argv[1])); print(len(os.listdir('/proc/self/task')))"
    of_arrow = subprocess.run(
        [sys.executable, "-c", code, str(artifact.examples)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    arm = opened(artifact(format_))
    assert arm.process_id() == template_of(arm)  # it has loaded what it preloads, and not forked yet
    tasks = list(Path(f"/proc/{template_of(arm)}/task").iterdir())
    assert len(tasks) <= int(of_arrow.stdout) + (format_ == "openvino")


def test_each_session_is_a_fresh_process(artifact, opened):
    arm = opened(artifact("ort"))
    arm.renew()
    template, first = template_of(arm), arm.process_id()
    arm.renew()
    second = arm.process_id()
    assert template_of(arm) == template
    assert len({template, first, second}) == 3
    assert is_gone(first)
    arm.start()
    arm.renew()
    assert template_of(arm) != template
    third = arm.process_id()
    assert all(map(is_gone, (template, second)))
    template = template_of(arm)
    arm.close()
    assert all(map(is_gone, (template, third)))
    assert len(arm.reports) == 3
    arm.close()


def test_a_report_is_of_one_session(artifact, opened):
    arm = opened(artifact("ort"))
    for calls in (3000, 1):
        arm.renew()
        arm.block([1] * calls)
    arm.close()
    long, short = (report["timed"].cpu_s for report in arm.reports)
    assert short < 0.5 * long


@linux
def test_a_session_ends_with_the_process_that_forked_it(artifact, opened):
    arm = opened(artifact("ort"))
    arm.renew()
    child = arm.process_id()
    os.kill(template_of(arm), signal.SIGKILL)
    assert all_gone(child)
    with pytest.raises(StageFailure, match=r"^variant: its process was killed by SIGKILL$"):
        arm.block([0])


@linux
def test_workers_end_with_whoever_started_them(artifact):
    code = "import json, sys, time; from pathlib import Path; from strop.measure.arm import WorkerArm\n"
    code += "arm = WorkerArm('variant', Path(sys.argv[1]), Path(sys.argv[2]), [[0]], json.loads(sys.argv[3]))\n"
    code += "arm.start(); arm.renew(); print(json.dumps([arm._process.pid, arm.process_id()]), flush=True)\n"
    code += "time.sleep(60)"
    command = [sys.executable, "-c", code, str(artifact("ort")), str(artifact.examples), json.dumps(TWO_THREADS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as coordinator:
        pids = json.loads(coordinator.stdout.readline())
        assert not any(map(is_gone, pids))
        coordinator.kill()
    assert all_gone(*pids)


def _work_until_it_ends(arm):
    while True:
        arm.block([0, 1, 2])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("at_work", [False, True], ids=["asleep", "at work"])
def test_a_death_is_named_and_a_new_start_forgets_it(artifact, opened, at_work):
    arm = opened(artifact("ort"))
    arm.renew()
    child = arm.process_id()
    if at_work:
        subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.3); os.kill({child}, 9)"])
    else:
        os.kill(child, signal.SIGKILL)
    with pytest.raises(StageFailure, match=r"^variant: its process was killed by SIGKILL$") as caught:
        _work_until_it_ends(arm)
    assert caught.value.status == "crashed"
    with pytest.raises(StageFailure, match=r"^variant: its process was killed by SIGKILL$"):
        arm.renew()
    arm.start()
    arm.renew()
    assert arm.block([0]).latency_s.shape == (1,)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("segfault", "its process was killed by SIGSEGV"),
        ("abort", "its process was killed by SIGABRT"),
        ("_exit", "its process ended with 0"),
        ("exit", "its process ended with 1"),
    ],
)
def test_a_model_that_ends_the_process_is_named_and_nothing_hangs(acting, how, said):
    arm = acting("Ending", how=how)
    arm.renew()
    with pytest.raises(StageFailure, match=rf"^variant: {said}$") as caught:
        arm.block([0, 1, 2])
    assert caught.value.status == "crashed"


def test_an_error_keeps_its_status(artifact, opened):
    with pytest.raises(StageFailure, match=r"^variant: this PyTorch finds no CUDA device$") as caught:
        opened(artifact("torch"), {**DEVICE, "kind": "cuda"}).renew()
    assert caught.value.status == "skipped"


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_session_writes_to_temporary_files_goes_with_it(acting, tmp_path, monkeypatch, dies):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    arm = acting("Writing")
    arm.renew()
    assert list(tmp_path.rglob("written*"))
    if dies:
        os.kill(arm.process_id(), signal.SIGSEGV)
    arm.close()
    assert not list(tmp_path.iterdir())


def test_garbage_is_not_collected_in_a_block(acting):
    arm = acting("Collecting")
    arm.renew()
    assert not arm.block([0, 1], keep=True).outputs["output_0"].any()


@linux
@pytest.mark.parametrize("format_", ["torch", "ort", "openvino"])
def test_a_worker_and_its_threads_keep_to_their_cpus(artifact, opened, format_):
    cpu = max(os.sched_getaffinity(0))
    arm = opened(artifact(format_), {**TWO_THREADS, "affinity": [cpu]})
    arm.renew()
    arm.block([0, 1, 2])
    assert arm.facts()["affinity"] == [cpu]
    assert os.sched_getaffinity(template_of(arm)) == {cpu}
    for task in Path(f"/proc/{arm.process_id()}/task").iterdir():
        assert os.sched_getaffinity(int(task.name)) == {cpu}


def test_without_affinity_a_worker_has_the_cpus_of_the_job(artifact, opened):
    arm = opened(artifact("ort"))
    arm.renew()
    assert arm.facts()["affinity"] == sorted(os.sched_getaffinity(0))
    assert arm.facts()["threads"] == 2


def test_a_cpu_that_is_not_there_is_skipped_in_one_line(artifact, opened):
    had = sorted(os.sched_getaffinity(0))
    arm = opened(artifact("ort"), {**DEVICE, "affinity": [had[0], 4096]})
    with pytest.raises(StageFailure) as caught:
        arm.renew()
    assert str(caught.value) == f"variant: device.affinity=[{had[0]}, 4096]: the CPUs here are {had}"
    assert caught.value.status == "skipped"


MIB = 1 << 20


@linux
def test_memory_is_that_of_the_weights_and_of_a_process_that_was_not_forked(acting):
    found = {}
    for layers in (1, 11):
        arm = acting("Wide", layers=layers)
        arm.renew()
        arm.block([0])
        arm.close()
        (found[layers],) = arm.reports
    assert 0 < found[1]["load_bytes"] <= found[1]["peak_bytes"]
    assert found[11]["running_bytes"] - found[1]["running_bytes"] == pytest.approx(40 * MIB, rel=0.25)
    assert found[11]["load_bytes"] >= found[1]["load_bytes"] + 30 * MIB
    alone = json.loads(_unforked(arm))
    for name, expected in alone.items():
        assert found[11][name] == pytest.approx(expected, rel=0.1)


def _unforked(arm):
    code = "import json, sys; from pathlib import Path; from strop.measure.worker import Worker\n"
    code += (
        "worker = Worker({**json.loads(sys.argv[1]), 'artifact': Path(sys.argv[2]), 'examples': Path(sys.argv[3])})\n"
    )
    code += "worker.renew(); worker.block([0], False); found = worker.end()\n"
    code += "print(json.dumps({name: found[name] for name in ('load_bytes', 'running_bytes', 'peak_bytes')}))"
    task = {name: arm._task[name] for name in ("rows", "device")}
    command = [sys.executable, "-c", code, json.dumps(task), str(arm._task["artifact"]), str(arm._task["examples"])]
    return subprocess.run(command, env=arm._environment(), capture_output=True, text=True, check=True).stdout


def test_a_session_that_is_loaded_anew_in_its_process_has_its_own_report(artifact):
    """As on CUDA, which does not survive a fork."""
    had = os.sched_getaffinity(0)
    task = {"artifact": artifact("ort"), "examples": artifact.examples, "rows": [[0], [1]], "device": DEVICE}
    worker = Worker(task)
    worker.renew()
    worker.block([0] * 2000, False)
    first = worker.end()["timed"].cpu_s
    worker.renew()
    worker.block([0], False)
    assert worker.end()["timed"].cpu_s < 0.5 * first
    assert os.sched_getaffinity(0) == had
