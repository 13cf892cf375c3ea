"""Timers time the call and nothing else; the CUDA one's arithmetic and order are shown on a pretended device."""

import contextlib
import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.measure.timers import CudaEventTimer, HostTimer, overhead, timer_for
from strop.runtimes import open_session

durations = st.lists(st.floats(1e-6, 10.0), max_size=20)


class Clock:
    """A clock that stands still until it is told to go on, or goes on by `step_s` at each reading."""

    def __init__(self, step_s=0.0):
        self.now_s = 100.0
        self.step_s = step_s

    def __call__(self):
        self.now_s += self.step_s
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds
        return seconds


@given(durations)
def test_each_call_has_its_own_time(wanted):
    clock = Clock()
    timed = HostTimer(clock).time_calls([lambda s=s: clock.wait(s) for s in wanted])
    assert timed.latency_s == pytest.approx(np.asarray(wanted), abs=1e-9)
    assert timed.start_s == pytest.approx(100.0 + np.cumsum([0.0, *wanted])[:-1], abs=1e-9)
    assert timed.start_s.dtype == timed.latency_s.dtype == np.float64
    assert timed.device_s is None
    assert timed.last == (wanted[-1] if wanted else None)


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_off_meanwhile_and_then_as_it_was(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        assert HostTimer().time_calls([gc.isenabled]).last is False
        assert gc.isenabled() is was_on
        with pytest.raises(ZeroDivisionError):
            HostTimer().time_calls([lambda: 1 / 0])
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


def test_a_result_is_gone_before_the_next_call_starts():
    class Result:
        pass

    alive, given_out = [], []

    def call():
        alive.append(sum(ref() is not None for ref in given_out))
        result = Result()
        given_out.append(weakref.ref(result))
        return result

    timed = HostTimer().time_calls([call] * 3)
    assert alive == [0, 0, 0]
    assert timed.last is given_out[-1]()


def test_a_real_session_is_timed_and_its_last_result_kept(text_bench):
    session = open_session(text_bench.artifact(text_bench.torch), threads=1)
    rng = np.random.default_rng(0)
    calls = []
    for length in (4, 9):
        ids = rng.integers(1, 50, (2, length))
        calls.append(session.prepare({"input_ids": ids, "attention_mask": np.ones_like(ids)}))
    timer = timer_for(session)
    assert isinstance(timer, HostTimer)
    timed = timer.time_calls([calls[0], calls[1]] * 5)
    assert timed.latency_s.shape == (10,)
    assert (timed.latency_s > 0).all()
    assert (np.diff(timed.start_s) >= timed.latency_s[:-1]).all()
    expected = session.to_numpy(calls[1]())
    for name, value in session.to_numpy(timed.last).items():
        np.testing.assert_array_equal(value, expected[name])


class Machine:
    """A host and a device with one stream. Enqueueing costs the host `launch_s`; the device then works by itself."""

    def __init__(self, launch_s):
        self.clock = Clock()
        self.free_s = self.clock.now_s  # when the device has done all that was enqueued
        self.launch_s = launch_s
        self.done = []

    def call(self, work_s):
        def enqueue():
            self.clock.wait(self.launch_s)
            self.free_s = max(self.free_s, self.clock.now_s) + work_s
            self.done.append("work")
            return work_s

        return SimpleNamespace(enqueue=enqueue)

    def synchronize(self):
        self.clock.now_s = max(self.clock.now_s, self.free_s)

    def event(self):
        machine = self

        class Event:
            def record(self, stream):
                assert stream is machine
                self.at_s = max(machine.free_s, machine.clock.now_s)
                machine.done.append("record")

            def synchronize(self):
                machine.clock.now_s = max(machine.clock.now_s, self.at_s)
                machine.done.append("wait")

            def elapsed_time(self, end):
                return (end.at_s - self.at_s) * 1e3

        return Event()


@pytest.fixture
def pretended_streams(monkeypatch):
    """A stack of the streams that were made current."""
    torch = pytest.importorskip("torch")
    current = []

    @contextlib.contextmanager
    def stream(wanted):
        current.append(wanted)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "stream", stream)
    return current


def test_the_device_has_a_time_of_its_own_and_the_host_waits_for_each_call(pretended_streams):
    machine = Machine(launch_s=0.25)
    works_s = [1.0, 3.0, 0.5]
    timed = CudaEventTimer(machine, machine.event, machine.clock).time_calls([machine.call(s) for s in works_s])
    assert timed.latency_s.tolist() == [1.25, 3.25, 0.75]
    assert timed.device_s == pytest.approx([1.25, 3.25, 0.75])  # the gap before the work was enqueued is in it
    assert timed.start_s.tolist() == [100.0, 101.25, 104.5]
    assert timed.last == 0.5
    assert machine.done == ["record", "work", "record", "wait"] * 3
    assert not pretended_streams


@pytest.mark.usefixtures("pretended_streams")
def test_work_from_before_is_not_in_the_first_call():
    machine = Machine(launch_s=0.0)
    machine.call(5.0).enqueue()
    timed = CudaEventTimer(machine, machine.event, machine.clock).time_calls([machine.call(1.0)])
    assert timed.latency_s.tolist() == [1.0]
    assert timed.device_s == pytest.approx([1.0])


def test_calls_run_on_the_sessions_stream(pretended_streams):
    machine = Machine(launch_s=0.0)
    seen = SimpleNamespace(enqueue=lambda: list(pretended_streams))
    assert CudaEventTimer(machine, machine.event, machine.clock).time_calls([seen]).last == [machine]


def test_a_session_with_a_stream_is_timed_by_events():
    assert isinstance(timer_for(SimpleNamespace(stream=object())), CudaEventTimer)


@pytest.mark.usefixtures("pretended_streams")
def test_overhead_is_the_time_of_an_empty_call():
    assert overhead(HostTimer(Clock(step_s=2e-7)), calls=9) == pytest.approx(2e-7, abs=1e-12)
    assert 0 < overhead(HostTimer(), calls=200) < 1e-3
    machine = Machine(launch_s=0.0)
    machine.clock.step_s = 3e-6
    assert overhead(CudaEventTimer(machine, machine.event, machine.clock), calls=9) == pytest.approx(3e-6, abs=1e-9)
