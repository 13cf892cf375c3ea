"""Two variants against each other: who may be compared, what is said of the result, and progress meanwhile."""

import io
import math
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strop import records
from strop.artifact import Manifest, write_manifest
from strop.errors import StropError
from strop.head_to_head import Progress, floor_of, make_pair, outcome, verdict
from strop.plan import make_plan

CONF = Path(__file__).parents[1] / "conf"
SMOKE = ["study=smoke"]
NAMES = ("first", "second")


@pytest.fixture(scope="module")
def plan():
    return make_plan(SMOKE, CONF)


def build(plan, results, variant, **last):
    """Write the manifests of a variant's chain, all ok but what `last` says of the last one."""
    (chain,) = [v["chain"] for v in plan["variants"] if v["variant"] == variant]
    for key in chain:
        step = plan["steps"][key]
        facts = {name: step[name] for name in ("id", "stage", "option", "settings", "upstream")}
        write_manifest(Manifest(**facts, **(last if key == chain[-1] else {})), results / key)


def pair_of(plan, results, *words):
    for word in words:
        build(plan, results, word)
    return make_pair(plan, words, SMOKE, results)


def test_the_step_is_the_first_ones_benchmark_against_the_seconds_artifact(plan, tmp_path):
    pair = pair_of(plan, tmp_path, "ort_int8_static+openvino", "ort_int8_static+onnxruntime")
    own, theirs = (plan["steps"][run["benchmark"]] for run in (pair.first, pair.second))
    assert pair.step["upstream"]["source"] == own["upstream"]["source"]
    assert pair.step["upstream"]["reference"] == theirs["upstream"]["source"]
    same = ("stage", "option", "settings", "device", "timeout_s", "memory_bytes", "requires")
    assert {name: pair.step[name] for name in same} == {name: own[name] for name in same}
    assert pair.step["context"]["min_cosine"] < min(own["context"]["min_cosine"], theirs["context"]["min_cosine"])
    assert pair.step["repeat"] == "strop compare ort_int8_static+openvino ort_int8_static+onnxruntime study=smoke"


def test_nothing_of_the_study_is_overwritten_even_against_its_reference(plan, tmp_path):
    words = ("onnxruntime", "eager")
    ids = [pair_of(plan, tmp_path, *order).step["id"] for order in (words, words[::-1])]
    assert ids[0] != ids[1]
    assert not {f"benchmark/{identity}" for identity in ids} & plan["steps"].keys()


def test_a_variant_may_be_named_by_its_id(plan, tmp_path):
    named = pair_of(plan, tmp_path, "onnxruntime", "openvino")
    ids = [run["variant_id"] for run in (named.first, named.second)]
    assert make_pair(plan, ids, SMOKE, tmp_path) == named


def refused(plan, results, *words):
    with pytest.raises(StropError) as error:
        make_pair(plan, words, SMOKE, results)
    return str(error.value)


def test_a_wrong_name_or_the_same_one_twice_is_refused(plan, tmp_path):
    near = "onnxruntme: study smoke: no such variant; did you mean 'onnxruntime'?"
    assert refused(plan, tmp_path, "openvino", "onnxruntme") == near
    assert refused(plan, tmp_path, "openvino", "openvino").startswith("openvino and openvino are the same variant")


def test_what_was_not_built_names_the_command_that_builds_it(plan, tmp_path):
    build(plan, tmp_path, "onnxruntime")
    with pytest.raises(StropError) as error:
        make_pair(plan, ("onnxruntime", "openvino"), ["study=smoke", "benchmark.max_time_s=60"], tmp_path)
    (run,) = [run for run in plan["runs"] if run["variant"] == "openvino"]
    assert str(error.value) == (
        f"openvino: {run['chain'][-1]} was not built on this device; run it first: strop run study=smoke"
    )


def test_what_failed_says_how(plan, tmp_path):
    build(plan, tmp_path, "onnxruntime")
    build(plan, tmp_path, "openvino", status="build_failed", error="no such operator")
    said = refused(plan, tmp_path, "openvino", "onnxruntime")
    assert said.startswith("openvino cannot be measured: engine/")
    assert said.endswith(" ended as build_failed: no such operator")
    root = {"step": "model/1", "status": "crashed", "error": "killed"}
    build(plan, tmp_path, "openvino", status="blocked", error="waits", details={"root": root})
    assert refused(plan, tmp_path, "openvino", "onnxruntime").endswith("model/1 ended as crashed: killed")


def test_a_skipped_variant_says_why(tmp_path):
    wide = make_plan(["study=smoke", "quantize=none,torchao_int8_dynamic"], CONF)
    assert "torchao_int8_dynamic+openvino: study smoke: was skipped: " in refused(
        wide, tmp_path, "torchao_int8_dynamic+openvino", "openvino"
    )


def test_other_models_or_other_loads_are_not_compared(tmp_path):
    models = make_plan(["study=smoke", "model.seed=0,1"], CONF)
    assert "not of one model under one load" in refused(models, tmp_path, "openvino+seed=0", "onnxruntime+seed=1")
    threads = make_plan(["study=smoke", "device.threads=1,2"], CONF)
    said = refused(threads, tmp_path, "openvino+threads=1", "openvino+threads=2")
    assert said.endswith("(tiny_mlp single_stream x1; tiny_mlp single_stream x1, 2 threads)")


def test_of_several_loads_the_first_is_taken_and_the_others_are_named(tmp_path):
    pair = pair_of(make_plan(["study=smoke", "benchmark=offline,single_stream"], CONF), tmp_path, "eager", "openvino")
    assert pair.step["option"] == "offline"
    assert (pair.load, pair.others) == ("offline x8", ("single_stream x1",))


@pytest.mark.parametrize(
    ("ratio", "floor", "sentence"),
    [
        ((1.3, 1.2, 1.4), 0.0, "first is faster."),
        ((0.8, 0.7, 0.9), 0.0, "second is faster."),
        ((1.3, 1.2, 1.4), math.log(1.29), "first is faster."),
        ((1.3, 1.2, 1.4), math.log(1.35), "of 30 % is below the study's A/A noise floor of 35 %."),
        ((0.8, 0.7, 0.9), math.log(1.35), "of 25 % is below the study's A/A noise floor of 35 %."),
        ((1.002, 0.992, 1.012), 0.0, "first and second cannot be told apart: the difference is below 1.2 %."),
        ((0.98, 0.95, 1.01), 0.0, "first and second cannot be told apart: the difference is below 5.3 %."),
        ((1.1, 0.4, 3.0), 0.5, "first and second cannot be told apart: the difference is below 200 %."),
    ],
)
def test_the_verdict_is_one_sentence(ratio, floor, sentence):
    assert verdict(NAMES, ratio, floor).endswith(sentence)


positive = st.floats(-3.0, 3.0)


@given(st.tuples(positive, positive, positive).map(sorted), st.floats(0.0, 2.0))
def test_the_verdict_is_the_same_whoever_is_named_first(logs, floor):
    low, off, high = logs
    assume(min(abs(abs(off) - floor), abs(low), abs(high)) > 1e-9)  # on the edge, rounding decides
    there = verdict(NAMES, (math.exp(off), math.exp(low), math.exp(high)), floor)
    back = verdict(NAMES[::-1], (math.exp(-off), math.exp(-high), math.exp(-low)), floor)
    assert ("faster" in there) == ("faster" in back)
    if "faster" in there:
        assert there == back
        assert abs(off) > floor
        assert not low <= 0.0 <= high


FOUND = {
    "latency_p50_s": 0.002, "latency_p50_calls_needed": 0, "reference_latency_p50_s": 0.003,
    "speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "calls": 400, "instances": 6,
    "noisy": False, "noisy_reason": None,
}  # fmt: skip


def test_the_outcome_has_medians_ratio_interval_ending_and_noise(plan, tmp_path):
    pair = pair_of(plan, tmp_path, "openvino", "onnxruntime")

    def lines(floor=0.01, **changes):
        return outcome(pair, Manifest("1", "benchmark", "single_stream", {}, {}, details={**FOUND, **changes}), floor)

    assert lines(stopped_by="time") == [
        "openvino     median latency 2.00 ms",
        "onnxruntime  median latency 3.00 ms",
        "openvino is 1.500 times as fast as onnxruntime (95 % interval 1.400 to 1.600).",
        "single_stream x1: 400 calls of each in 6 fresh instances, ended by time (benchmark.max_time_s=6).",
        "openvino is faster.",
    ]
    few = lines(stopped_by="time", latency_p50_s=None, latency_p50_calls_needed=1389)
    assert few[0] == (
        "openvino     median latency not known: about 1,389 more calls would tell it (benchmark.min_calls)"
    )
    noisy = lines(stopped_by="precision", noisy=True, noisy_reason="steal time 3 %", floor=0.0)
    assert "ended by precision (benchmark.precision=0.5)" in noisy[3]
    assert noisy[4] == "Careful, the measurement was noisy: steal time 3 %."
    assert noisy[5].startswith("The study has no A/A control under this load")


def test_the_noise_floor_is_that_of_the_studys_control_under_the_same_load(plan, tmp_path):
    pair = pair_of(plan, tmp_path, "openvino", "onnxruntime")
    assert floor_of(pair, "smoke", tmp_path) == 0.0
    load = {name: pair.first[name] for name in ("model", "dataset", "device", "threads", "scenario", "batch_size")}
    control = {"is_reference": True, "speedup": 1.0, "speedup_low": 1 / 1.05, "speedup_high": 1.05}
    other = {**load, "batch_size": 8, **control, "speedup_low": 0.5, "speedup_high": 2.0}
    summary = tmp_path / "studies" / "smoke" / "summary.parquet"
    records.write("summary", [other, {**load, **control}, {**load, "is_reference": False, "speedup": 3.0}], summary)
    assert floor_of(pair, "smoke", tmp_path) == pytest.approx(math.log(1.05))


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Watched:
    """Progress of a log that a test writes, by a clock that it sets."""

    def __init__(self, log, stream):
        self.log, self.stream, self.now = log, stream, 0.0
        self.progress = Progress(log, 60.0, stream, lambda: self.now)

    def at(self, second, text=None):
        """Write the log anew, if there is a text, look at a time, and return what was printed."""
        self.now = second
        if text is not None:
            self.log.write_text(text)
            os.utime(self.log, (1e9 + second, 1e9 + second))
        begin = self.stream.tell()
        self.progress.show()
        return self.stream.getvalue()[begin:]


def test_progress_is_a_line_for_each_instance(tmp_path):
    watched = Watched(tmp_path / "log", io.StringIO())
    assert watched.at(1) == ""
    assert watched.at(2, "a warning\n") == "  starting   0 s, limit 60 s\n"
    one = "instance 1: 90 calls, speedup 1.20 [1.1, 1.3]"
    assert watched.at(7, f"a warning\n{one}\nanother\n") == f"  {one}   5 s, limit 60 s\n"
    assert watched.at(8) == ""
    watched.progress.end()
    assert watched.at(9) == ""


def test_on_a_terminal_the_line_is_written_over_and_time_goes_on(tmp_path):
    watched = Watched(tmp_path / "log", Terminal())
    assert watched.at(2, "instance 1: x\n") == "\r\x1b[K  instance 1: x   0 s, limit 60 s"
    assert watched.at(3) == "\r\x1b[K  instance 1: x   1 s, limit 60 s"
    watched.progress.end()
    assert watched.stream.getvalue().endswith("\n")


def test_an_earlier_log_is_not_shown_and_waiting_is_said_once(tmp_path):
    (tmp_path / "log").write_text("instance 9: of last time\n")
    watched = Watched(tmp_path / "log", io.StringIO())
    assert watched.at(1) == ""
    assert watched.at(4) == "strop: waits until the other steps in this results folder have ended\n"
    assert watched.at(5) == ""
    assert watched.at(6, "instance 1: now\n") == "  instance 1: now   0 s, limit 60 s\n"
