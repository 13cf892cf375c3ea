"""A plan: equal work has one id, a name means one variant, and the reference is measured against itself."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strop.errors import StropError
from strop.options import OPTIONS
from strop.plan import load_plan, make_plan, open_plan
from strop.report.share import step_counts

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"


def keys(plan, stage):
    return {key for key, step in plan["steps"].items() if step["stage"] == stage}


def test_equal_work_is_one_step():
    plan = make_plan(["study=quickstart"], CONF)
    counts = step_counts(plan)
    assert counts["model"][0] == counts["dataset"][0] == counts["export"][0] == 1
    assert counts["all"][0] < 0.75 * counts["all"][1]
    for run in plan["runs"]:
        for key in (*run["chain"], run["evaluate"], run["benchmark"], run["reference_evaluate"]):
            assert set(plan["steps"][key]["upstream"].values()) <= plan["steps"].keys()


def test_the_reference_is_a_variant_measured_against_itself():
    plan = make_plan(["study=smoke"], CONF)
    (control,) = [run for run in plan["runs"] if run["is_reference"]]
    step = plan["steps"][control["benchmark"]]
    assert step["upstream"]["source"] == step["upstream"]["reference"]
    assert control["variant"] == "eager"
    assert len(plan["runs"]) == len({run["run_id"] for run in plan["runs"]}) == 5


def test_the_quantization_study_plans_each_option_that_a_cpu_can_run():
    plan = make_plan(["study=quantization"], CONF)
    planned = {plan["steps"][key]["option"] for key in keys(plan, "quantize")}
    assert planned == {name for (stage, name), item in OPTIONS.items() if stage == "quantize" and item.device is None}
    assert all(row["reason"] for row in plan["variants"] if row["status"] == "skipped")
    floors = {plan["steps"][key]["settings"]["min_cosine"] for key in keys(plan, "quantize")}
    assert floors == {-1}


@pytest.mark.parametrize(
    ("study", "stage", "options"),
    [
        ("vision", "quantize", {"ort_int8_static", "nncf_int8"}),
        ("fusion", "optimize", {"onnxslim", "ort_transformers", "onnxscript_fusions"}),
        ("pruning", "prune", {"magnitude", "structured", "two_four"}),
        ("compilers", "compile", {"torchscript", "torch_export", "inductor", "aot_inductor"}),
        ("runtimes", "engine", {"onnxruntime", "openvino", "openvino_blob"}),
    ],
)
def test_a_study_of_a_stage_plans_its_options(study, stage, options):
    plan = make_plan([f"study={study}"], CONF)
    assert {plan["steps"][key]["option"] for key in keys(plan, stage)} == options
    assert plan["study"]["question"].endswith("?")


def test_a_setting_that_an_option_does_not_read_changes_nothing():
    plain = make_plan(["study=smoke"], CONF)
    other = make_plan(["study=smoke", "quantize.model_type=none", "engine.workspace_bytes=5"], CONF)
    assert plain["steps"].keys() == other["steps"].keys()


@pytest.mark.parametrize(
    ("override", "changed", "kept"),
    [
        ("quantize.per_channel=false", {"quantize", "engine", "evaluate", "benchmark"}, {"model", "export"}),
        ("benchmark.seed=1", {"benchmark"}, {"quantize", "engine", "evaluate"}),
        ("device.threads=2", {"engine", "evaluate", "benchmark"}, {"model", "export", "quantize"}),
        ("dataset.seed=1", {"dataset", "model", "export", "quantize", "engine", "evaluate", "benchmark"}, set()),
        ("quantize.timeout_s=5", set(), {"quantize", "engine"}),
    ],
)
def test_a_change_reaches_its_step_and_what_follows(override, changed, kept):
    before, after = make_plan(["study=smoke"], CONF), make_plan(["study=smoke", override], CONF)
    for stage in changed:
        assert keys(before, stage) != keys(after, stage), stage
    for stage in kept:
        assert keys(before, stage) == keys(after, stage), stage


def limited(*limits):
    return make_plan(["study=smoke", *(f"study.limits.{limit}" for limit in limits)], CONF)


def stages_changed(before, after):
    return {key.partition("/")[0] for key in before["steps"].keys() ^ after["steps"].keys()}


@pytest.mark.parametrize("limit", ["fidelity=0.9", "size_bytes=1e9", "latency_mean_s=1"])
def test_a_limit_that_no_timed_call_decides_changes_no_step(limit):
    before, after = make_plan(["study=smoke"], CONF), limited(limit)
    assert before["steps"] == after["steps"]
    assert before["runs"] == after["runs"]
    assert all("limits" not in step.get("context", {}) for step in after["steps"].values())


@pytest.mark.parametrize("limit", ["latency_p50_s=0.1", "latency_p999_s=0.1", "speedup=1.5"])
def test_a_limit_that_may_end_the_sampling_changes_the_benchmarks_and_their_tracking_only(limit):
    before, after = make_plan(["study=smoke"], CONF), limited(limit)
    assert stages_changed(before, after) == {"benchmark"}
    name, _, value = limit.partition("=")
    for old, new in zip(before["runs"], after["runs"], strict=True):
        # The control is never ended by a limit: its interval is the noise floor.
        changed = set() if new["is_reference"] else {"run_id", "benchmark", "track"}
        assert {key for key in new if new[key] != old[key]} == changed
        context = after["steps"][new["benchmark"]]["context"]
        assert context.get("limits", {}) == ({} if new["is_reference"] else {name: float(value)})
    assert keys(after, "benchmark") != keys(limited(f"{name}=0.2"), "benchmark")


def test_of_several_limits_a_benchmark_has_those_that_it_can_decide():
    plan = limited("latency_p99_s=0.1", "speedup=1.5", "fidelity=0.9")
    contexts = [plan["steps"][run["benchmark"]]["context"] for run in plan["runs"] if not run["is_reference"]]
    assert [context["limits"] for context in contexts] == [{"latency_p99_s": 0.1, "speedup": 1.5}] * 4


def test_a_narrower_sweep_plans_the_very_same_runs():
    whole, narrow = make_plan(["study=smoke"], CONF), make_plan(["study=smoke", "engine=openvino"], CONF)
    assert 0 < len(narrow["runs"]) < len(whole["runs"])
    for run in narrow["runs"]:
        assert run in whole["runs"]  # or Snakemake would log it again


def test_equal_chains_of_other_combinations_are_one_variant():
    plan = make_plan(["study=smoke", "export=auto,onnx", "quantize=none", "engine=onnxruntime"], CONF)
    assert plan["combinations"] == 2
    assert len(plan["variants"]) == 2  # the reference, and one
    assert plan["distinct"] == 1
    whole = make_plan(["study=smoke", "quantize=none,ort_int8_static", "engine=none,onnxruntime"], CONF)
    assert (whole["combinations"], whole["distinct"]) == (4, 4)  # the reference is one of the combinations


def test_a_variant_of_two_devices_is_not_named_after_one():
    plan = make_plan(["study=smoke", "quantize=none", "engine=onnxruntime", "device.threads=1,2"], CONF)
    assert {(run["variant"], run["threads"]) for run in plan["runs"]} == {
        *(("eager", threads) for threads in (1, 2)),
        *((f"onnxruntime+threads={threads}", threads) for threads in (1, 2)),
    }


def test_names_of_swept_settings_tell_variants_apart():
    plan = make_plan(["study=smoke", "quantize=ort_int8_static", "quantize.per_channel=true,false"], CONF)
    names = {variant["variant"] for variant in plan["variants"]}
    assert names == {
        "eager",
        *(f"ort_int8_static+{e}+per_channel={v}" for e in ("onnxruntime", "openvino") for v in (True, False)),
    }


def test_a_combination_that_cannot_work_is_skipped_with_a_reason():
    plan = make_plan(["study=smoke", "engine=none,tensorrt", "quantize=nncf_int8"], CONF)
    skipped = {v["variant"]: v["reason"] for v in plan["variants"] if v["status"] == "skipped"}
    assert "needs an engine" in skipped["nncf_int8"]
    assert "nncf_int8 gives openvino" in skipped["nncf_int8+tensorrt"] or "CUDA" in skipped["nncf_int8+tensorrt"]
    assert not [run for run in plan["runs"] if not run["is_reference"]]


def test_floors_of_agreement_only_fall_along_a_chain():
    plan = make_plan(["study=smoke", "prune=magnitude"], CONF)
    for run in plan["runs"]:
        floors = [plan["steps"][key]["context"]["min_cosine"] for key in run["chain"][1:]]
        assert floors == sorted(floors, reverse=True)
        assert plan["steps"][run["benchmark"]]["context"]["min_cosine"] == min([0.999, *floors])


@pytest.fixture
def project(tmp_path):
    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "mine.py").write_text("def build():\n    return 1\n")
    return tmp_path


def test_a_users_own_file_is_known_by_its_content(project):
    words = ["study=smoke", "model=factory", "model.factory=mine.py:build"]
    results = project / "results"
    first = open_plan(words, project / "conf", results)
    assert open_plan(words, project / "conf", results) == first
    (project / "mine.py").write_text("def build():\n    return 2\n")
    second = open_plan(words, project / "conf", results)
    assert keys(first, "model") != keys(second, "model")
    assert first["digest"] != second["digest"]


def test_a_stored_plan_follows_conf(project):
    results = project / "results"
    first = open_plan(["study=smoke"], project / "conf", results)
    option = project / "conf" / "quantize" / "ort_int8_static.yaml"
    option.write_text(option.read_text().replace("per_channel: true", "per_channel: false"))
    assert open_plan(["study=smoke"], project / "conf", results)["digest"] != first["digest"]


def test_a_plan_of_another_version_is_refused(project):
    plan = open_plan(["study=smoke"], project / "conf", project / "results")
    path = Path(plan["path"])
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "plan_version": 99}))
    with pytest.raises(StropError, match="a plan of version 99, not 1; delete results/plans"):
        load_plan(path)


AXES = {
    "prune": ["none", "magnitude"],
    "quantize": ["none", "ort_int8_dynamic", "ort_int8_static", "nncf_int8", "torchao_int8_dynamic", "bf16"],
    "compile": ["none", "torchscript"],
    "engine": ["none", "onnxruntime", "openvino"],
}


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({axis: st.sets(st.sampled_from(names), min_size=1) for axis, names in AXES.items()}))
def test_every_combination_is_a_variant_or_has_a_reason(chosen):
    words = [f"{axis}={','.join(sorted(names))}" for axis, names in chosen.items()]
    plan = make_plan(["study=smoke", *words], CONF)
    planned = [v for v in plan["variants"] if v["status"] == "planned"]
    skipped = [v for v in plan["variants"] if v["status"] == "skipped"]
    assert all(v["reason"] for v in skipped)
    assert len({v["variant"] for v in planned}) == len(planned)
    used = {run[key] for run in plan["runs"] for key in ("evaluate", "benchmark", "reference_evaluate", "dataset_step")}
    used |= {key for run in plan["runs"] for key in run["chain"]}
    assert used == plan["steps"].keys()
    assert {run["variant_id"] for run in plan["runs"]} == {v["variant_id"] for v in planned}


def test_what_is_skipped_for_one_reason_is_one_row_for_all_settings_of_a_sweep():
    words = ["study=smoke", "engine=none,onnxruntime", "quantize=nncf_int8", "quantize.reduce_range=true,false"]
    plan = make_plan(words, CONF)
    skipped = [v for v in plan["variants"] if v["status"] == "skipped"]
    assert plan["combinations"] == plan["distinct"] == plan["skipped"] == 4
    assert len({(v["engine"], v["reason"]) for v in skipped}) == len(skipped) == 2
    assert {v["overrides"] for v in skipped} == {f"quantize=nncf_int8 engine={e}" for e in ("none", "onnxruntime")}
