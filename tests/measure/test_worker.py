"""Real workers: they time real sessions, sleep without burning CPU, and their deaths have a name."""

import os
import signal
import time

import numpy as np
import psutil
import pytest

from strop.errors import StageFailure
from strop.measure.conditions import Watch, noise
from strop.measure.worker import WorkerArm


@pytest.fixture(scope="module")
def engine(text_bench):
    made = text_bench.step("engine", "onnxruntime", text_bench.onnx, text_bench.torch)
    assert made.status == "ok", made.error
    return text_bench.artifact(made)


@pytest.fixture
def arm(text_bench, engine):
    examples = text_bench.artifact(text_bench.torch).file("examples/test.parquet")
    device = {"kind": "cpu", "threads": 2, "huge_pages": True}
    made = WorkerArm("variant", engine.folder, examples, [[0], [1, 2], [3]], device)
    made.start()
    yield made
    made.close()


def test_a_worker_times_each_call_and_gives_right_outputs(arm, text_bench, engine):
    opening = arm.renew()
    assert opening.keys() == {"load_s", "first_call_s"}
    began = time.perf_counter()
    block = arm.block([0, 1, 2, 0])
    assert block.latency_s.shape == (4,)
    assert (block.latency_s > 0).all()
    assert began < block.start_s[0] < block.start_s[3] < time.perf_counter()
    assert (np.diff(block.start_s) >= block.latency_s[:-1]).all()
    from strop.examples import Examples
    from strop.runtimes import open_session
    from strop.runtimes.session import run

    test = Examples.read(text_bench.artifact(text_bench.torch).file("examples/test.parquet"))
    expected = run(open_session(engine, threads=1), test.batch([1, 2]))
    for name, value in arm.answer(1).items():
        assert np.allclose(value, expected[name], atol=1e-6)
    arm.close()
    assert arm.usage[0]["peak_memory_bytes"] > 1e7


def test_a_sleeping_worker_burns_no_cpu(arm):
    arm.renew()
    arm.block([0, 1, 2] * 50)
    process = psutil.Process(arm._process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(1.0)
    assert sum(process.cpu_times()[:2]) - before < 0.05


def test_a_new_session_is_a_new_instance(arm):
    arm.renew()
    first = arm._process.pid
    arm.renew()
    assert arm._process.pid == first
    arm.start()
    arm.renew()
    assert arm._process.pid != first
    assert not psutil.pid_exists(first)


def test_a_death_is_named(arm):
    arm.renew()
    os.kill(arm._process.pid, signal.SIGKILL)
    with pytest.raises(StageFailure, match="the variant's process was killed by SIGKILL") as caught:
        arm.block([0])
    assert caught.value.status == "crashed"


def test_an_error_keeps_its_status(text_bench):
    examples = text_bench.artifact(text_bench.torch).file("examples/test.parquet")
    device = {"kind": "cuda", "threads": 1, "huge_pages": False}
    torch_arm = WorkerArm("reference", text_bench.artifact(text_bench.torch).folder, examples, [[0]], device)
    torch_arm.start()
    with pytest.raises(StageFailure, match="reference: this PyTorch finds no CUDA device") as caught:
        torch_arm.renew()
    assert caught.value.status == "skipped"
    torch_arm.close()


def test_noise_has_reasons():
    calm = {"foreign_cores": 0.0, "steal_share": 0.0}
    assert noise(calm, 0.01, 0.02, 1) is None
    loud = noise({"foreign_cores": 1.2, "steal_share": 0.1}, 0.2, 0.02, 4096)
    assert "other processes used 1.2 cores" in loud
    assert "the hypervisor took 10% of the time" in loud
    assert "the interval is +-20.0%, wanted +-2.0%" in loud
    assert "4096 threads on" in loud


def test_conditions_are_of_this_time():
    watch = Watch()
    time.sleep(0.2)
    found = watch.conditions(0.0)
    assert found["wall_s"] >= 0.2
    assert 0 <= found["foreign_cores"] <= os.cpu_count()
