"""Guards: outputs that go wrong under load and answers from memory are caught, in fakes and in real sessions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Bench

from strop.errors import StageFailure
from strop.measure.guards import LOOKS, MOST_TWINS, MemoryGuard, OutputGuard
from strop.measure.paired import ARMS, Block
from strop.measure.split import lead_in_calls

# What they do, they do only where they are timed: the checks of the other stages see an honest module.
MODULES = """
import sys, time
import torch
from torch import nn

TIMED = "strop.measure.worker" in sys.orig_argv


class Honest(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(40)])
        self.calls, self.last_s = 0, 0.0

    def work(self, x):
        for layer in self.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return x

    def forward(self, x):
        return self.cheat(x) if TIMED else self.work(x)

    def cheat(self, x):
        return self.work(x)


class Remembers(Honest):
    def __init__(self):
        super().__init__()
        self.known = {}

    def cheat(self, x):
        key = x.numpy().tobytes()
        if key not in self.known:
            self.known[key] = self.work(x)
        return self.known[key]


class KeepsTheFirst(Honest):
    first = None

    def cheat(self, x):
        if self.first is None:
            self.first = self.work(x)
        return self.first


class WrongFromTheFiftiethCall(Honest):
    def cheat(self, x):
        self.calls += 1
        return self.work(x) if self.calls < 50 else self.work(-x)


class WrongInAHurry(Honest):
    def cheat(self, x):
        waited_s, result = time.perf_counter() - self.last_s, self.work(x)
        self.last_s = time.perf_counter()
        return result if waited_s > 5e-4 else -result


def build(name):
    return globals()[name]()
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Give the artifact of a module by name; all have the same weights."""
    bench = Bench(tmp_path_factory.mktemp("guards"))
    data = bench.dataset({"x": list(np.random.default_rng(0).normal(size=(70, 256)).astype(np.float32))})
    made = {}

    def model(name):
        if name not in made:
            made[name] = bench.model(MODULES, data, factory_args={"name": name})
            assert made[name].status == "ok", made[name].error
        return made[name]

    model.bench = bench
    return model


@pytest.mark.parametrize("scenario", [("single_stream", 1), ("offline", 4)], ids=lambda value: value[0])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Honest", None),
        ("Remembers", "the variant answers from memory: an input that it has not seen takes "),
        ("KeepsTheFirst", "while it was timed: output 'output_0'"),
        ("WrongFromTheFiftiethCall", "while it was timed: "),
        ("WrongInAHurry", "while it was timed: "),
    ],
)
def test_a_variant_that_cheats_under_load_is_caught(models, name, reason, scenario):
    option, batch_size = scenario
    honest = models("Honest")
    made = models.bench.measured(option, models(name), honest, honest, batch_size=batch_size)
    if reason is None:
        assert made.status == "ok", made.error
    else:
        assert made.status == "wrong_output"
        assert made.error.startswith(reason)


def test_a_reference_that_remembers_is_caught_too(models):
    honest = models("Honest")
    made = models.bench.measured("single_stream", honest, models("Remembers"), honest)
    assert made.status == "wrong_output"
    assert made.error.startswith("the reference answers from memory")


def block(values):
    outputs = None if values is None else {"y": np.asarray(values, np.float32)}
    return Block(np.zeros(1), np.ones(1), outputs)


def looked(*seen, min_cosine=0.9):
    """Return a guard that has seen (batch, reference's values, variant's values)."""
    guard = OutputGuard(min_cosine)
    for batch, reference, variant in seen:
        guard.look(batch, {"reference": block(reference), "variant": block(variant)})
    return guard


def test_equal_outputs_and_sums_in_another_order_are_right():
    guard = looked((0, [1, 2], [1, 2]), (1, [3, 4], [3, 4.01]), (0, [1, 2], [1.005, 2]))
    guard.judge()
    looked().judge()
    looked((0, [1, 2], None), (1, None, [9, 9])).judge()  # nothing to compare


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("later", [[1, 2.1], [1, np.nan], [1, 2, 3]])
def test_another_answer_to_the_same_input_is_wrong_whichever_arm_gives_it(arm, later):
    guard = looked((0, [1, 2], [1, 2]))
    with pytest.raises(StageFailure, match=f"the {arm} answers one input in two ways") as caught:
        guard.look(0, {arm: block(later)})
    assert caught.value.status == "wrong_output"


def test_outputs_are_the_references_or_wrong():
    guard = looked((0, [1, 0], [1, 0]), (1, [0, 1], [1, 0]), min_cosine=0.8)
    with pytest.raises(StageFailure, match="while it was timed: output 'y': cosine") as caught:
        guard.judge()
    assert caught.value.status == "wrong_output"
    looked((0, [1, 0], [1, 0]), (1, [0, 1], [0.1, 1]), min_cosine=0.8).judge()


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=12))
def test_a_session_that_always_answers_alike_passes(seen):
    answers = [[np.float32(batch + 1), np.float32(batch * value)] for batch, value in seen]
    known = {}
    for (batch, _), answer in zip(seen, answers, strict=True):
        known.setdefault(batch, answer)
    looked(*((batch, known[batch], known[batch]) for batch, _ in seen)).judge()


class Timed:
    """An arm whose calls take `of(batch, whether it was called before in this session)` seconds.

    As a worker does, it makes the first calls of a block untimed before it.
    """

    def __init__(self, of):
        self.of, self.seen, self.calls, self.call_s = of, set(), [], None

    def block(self, batches):
        lead_in = list(itertools.islice(itertools.cycle(batches), lead_in_calls(self.call_s)))
        latencies = []
        for batch in [*lead_in, *batches]:
            latencies.append(self.of(batch, batch in self.seen))
            self.seen.add(batch)
        self.calls.append(list(batches))
        latency_s = np.asarray(latencies[len(lead_in) :])
        self.call_s = float(np.median(latency_s))
        return Block(np.zeros(len(latency_s)), latency_s)


TWINS = [(at, 32 + at) for at in range(8)]


def judged(of, twins=TWINS, call_s=0.001, looks=LOOKS):
    guard = MemoryGuard(twins, seed=0)
    for _ in range(looks):
        arms = {"reference": Timed(lambda *_: 0.01), "variant": Timed(of)}
        for arm in arms.values():
            arm.block(range(32))
        guard.look(arms, call_s)
    guard.judge()
    return arms


def test_one_that_takes_longer_for_what_it_has_not_seen_answers_from_memory():
    with pytest.raises(StageFailure, match=r"the variant answers from memory: .* takes 10\.0 times as long") as caught:
        judged(lambda _, seen: 0.001 if seen else 0.01)
    assert caught.value.status == "wrong_output"
    judged(lambda _, seen: 0.001 if seen else 0.0013)  # cold caches


@pytest.mark.parametrize("call_s", [0.001, 0.5])
def test_bursts_of_other_processes_are_no_memory(call_s):
    """A third of all calls takes three times as long."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        judged(lambda *_, rng=rng: 0.01 * (3 if rng.random() < 0.33 else 1), call_s=call_s)


def test_bursts_do_not_hide_a_memory():
    rng = np.random.default_rng(0)
    with pytest.raises(StageFailure, match="answers from memory"):
        judged(lambda _, seen: (0.001 if seen else 0.01) * (3 if rng.random() < 0.33 else 1))


@given(st.floats(1e-6, 10.0), st.integers(0, 8))
def test_looks_are_few_and_take_little_time(call_s, twins):
    arms = judged(lambda *_: 0.01, TWINS[:twins], call_s)
    of_look = arms["variant"].calls[1:]
    assert len(of_look) == (2 if twins else 0)
    for first, then in [of_look] if twins else []:
        assert 1 <= len(first) <= min(MOST_TWINS, twins)
        assert len(first) * 3 * call_s <= max(0.1, 3 * call_s) * 1.001
        assert then[-3 * len(first) :] == [batch for seen in first for batch in (seen, seen + 32, seen)]
        assert set(then[: -3 * len(first)]) <= set(first)
    assert not judged(lambda *_: 0.01, TWINS, call_s, looks=LOOKS + 1)["variant"].calls[1:]
