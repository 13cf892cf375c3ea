"""What a person sees while a study runs: totals, steps with their variants, failures, and the time left."""

import io
import logging
from types import SimpleNamespace

import pytest
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake_interface_logger_plugins.common import LogEvent

from strop import records, workflow
from strop.artifact import Manifest, write_manifest
from strop.decide import decide
from strop.progress import Progress


class Watch:
    """A study's progress with a clock that is set by hand; takes records as Snakemake makes them."""

    def __init__(self, dryrun=False):
        self.stream, self.now = io.StringIO(), 0.0
        settings = SimpleNamespace(dryrun=dryrun, quiet=set(), show_failed_logs=False, verbose=False)
        self.progress = Progress(settings, self.stream, lambda: self.now)

    def show(self, message="", level=logging.INFO, **attributes):
        """Show a record and return the lines that it gave."""
        record = logging.LogRecord("snakemake", level, "scheduler.py", 1, message, None, None)
        record.__dict__.update(attributes)
        begin = self.stream.tell()
        self.progress.show(record)
        return self.stream.getvalue()[begin:].splitlines()

    def plan(self, **stats):
        return self.show("Job stats: ...", event=LogEvent.RUN_INFO, stats={**stats, "total": sum(stats.values())})

    def start(self, job, rule, identity=None, reason="Missing output files: x"):
        wildcards = {} if identity is None else {f"{rule}_id": identity}
        return self.show(
            f"rule {rule}", event=LogEvent.JOB_INFO, jobid=job, rule_name=rule, wildcards=wildcards, reason=reason
        )

    def finish(self, job):
        return self.show(f"Finished jobid: {job}", event=LogEvent.JOB_FINISHED, job_id=job)


@pytest.fixture(autouse=True)
def _no_study(monkeypatch):
    """Whatever a test before has begun in this process is not this study."""
    monkeypatch.setattr(workflow, "_study", {})


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Return the results of a study that has begun: one shared export, two engines with a benchmark each."""
    steps = {
        "export/e": {"stage": "export", "label": "onnx", "settings": {}},
        "engine/1": {"stage": "engine", "label": "onnxruntime", "settings": {}},
        "engine/2": {"stage": "engine", "label": "openvino", "settings": {}},
        "benchmark/1": {"stage": "benchmark", "label": "int8 x1", "settings": {"max_time_s": 60.0}},
        "benchmark/2": {"stage": "benchmark", "label": "int8 x8", "settings": {"max_time_s": 60.0}},
    }
    variants = [{"variant": "onnxruntime", "chain": ["export/e", "engine/1"], "status": "planned"},
                {"variant": "int8+openvino", "chain": ["export/e", "engine/2"], "status": "planned"}]  # fmt: skip
    load = {"scenario": "single_stream", "batch_size": 1}
    runs = [{"variant": "int8+openvino", "track": "track/t", "benchmark": "benchmark/1", **load}]
    study = {"name": "s", "objective": "speedup", "tie_breaker": "size_bytes"}
    plan = {"study": study, "on_failure": "continue", "steps": steps, "variants": variants, "runs": runs,
            "skipped": 0}  # fmt: skip
    monkeypatch.setattr(workflow, "_study", {"plan": plan, "results": tmp_path, "cores": 1})
    return tmp_path


def made(results, key, seconds=0.0, **state):
    stage, _, identity = key.partition("/")
    write_manifest(Manifest(identity, stage, "x", {}, {}, seconds=seconds, **state), results / key)


def test_the_plan_is_said_in_numbers():
    assert Watch().plan(all=1, export=1, benchmark=3) == ["strop: 4 jobs: 1 export, 3 benchmark"]


@pytest.mark.usefixtures("study")
def test_finished_jobs_are_counted_up_to_the_total():
    watch = Watch()
    watch.plan(all=1, export=1, engine=2)
    lines = []
    for job, (rule, identity) in enumerate((("export", "e"), ("engine", "1"), ("engine", "2"), ("all", None))):
        assert watch.start(job, rule, identity) == []
        watch.now += 2.5
        lines += watch.finish(job)
    assert [line.split("]")[0] for line in lines] == ["[  1/3", "[  2/3", "[  3/3"]
    assert [line.split()[2] for line in lines] == ["export", "engine", "engine"]
    assert all(line.endswith("   2.5 s") for line in lines)


@pytest.mark.usefixtures("study")
def test_a_step_is_named_by_its_option_and_the_variants_that_it_is_for():
    watch = Watch()
    for job, (rule, identity, label) in enumerate((
        ("export", "e", "onnx for 2 variants"),
        ("engine", "2", "openvino for int8+openvino"),
        ("engine", "1", "onnxruntime"),  # its variant has the same name
        ("track", "t", "int8+openvino"),
        ("engine", "unknown", "unknown"),
        ("aggregate", "s", "s"),
    )):  # fmt: skip
        watch.start(job, rule, identity)
        (line,) = watch.finish(job)
        assert line.split(maxsplit=3)[3].split("   ")[0].rstrip() == label


@pytest.mark.usefixtures("study")
def test_only_the_start_of_a_measurement_is_shown():
    watch = Watch()
    assert watch.start(1, "engine", "1") == []
    assert watch.start(2, "benchmark", "1") == ["  measuring      int8+openvino"]


@pytest.mark.usefixtures("study")
def test_jobs_that_run_at_once_have_their_own_times():
    watch = Watch()
    watch.start(1, "engine", "1")
    watch.now = 10.0
    watch.start(2, "engine", "2")
    watch.now = 14.0
    assert watch.finish(1)[0].endswith(" 14.0 s")
    assert watch.finish(2)[0].endswith("  4.0 s")


def test_a_failure_is_said_under_its_step(study):
    watch = Watch()
    watch.plan(engine=2)
    watch.start(1, "engine", "1")
    made(study, "engine/1", status="crashed", error="killed by SIGSEGV")
    step, failure = watch.finish(1)
    assert "onnxruntime" in step
    assert failure == "          crashed: killed by SIGSEGV"
    watch.start(2, "engine", "2")
    made(study, "engine/2")
    assert len(watch.finish(2)) == 1


def test_a_damaged_manifest_does_not_stop_progress(study):
    watch = Watch()
    watch.start(1, "engine", "1")
    (study / "engine/1").mkdir(parents=True)
    (study / "engine/1/manifest.json").write_text("{")
    assert len(watch.finish(1)) == 1


def time_left(lines):
    return lines[-1].partition("   about ")[2]


def test_the_time_left_shrinks(study):
    made(study, "engine/old", seconds=9.5)  # and half a second to start
    watch = Watch()
    found = [time_left(watch.plan(all=1, engine=4))]
    for job in range(4):
        watch.start(job, "engine", str(job))
        watch.now += 10.0
        found.append(time_left(watch.finish(job)))
    assert found == ["40 s left", "30 s left", "20 s left", "10 s left", ""]


def test_the_time_left_is_of_typical_steps_on_all_cores_but_benchmarks_wait(study):
    for at, seconds in enumerate((1.5, 99.5, 900.0)):  # the median
        made(study, f"engine/{at}", seconds=seconds)
        made(study, f"benchmark/{at}", seconds=seconds)
    assert time_left(Watch().plan(engine=4)) == "7 min left"
    workflow._study["cores"] = 4
    assert time_left(Watch().plan(engine=4)) == "2 min left"
    assert time_left(Watch().plan(benchmark=4)) == "7 min left"


@pytest.mark.usefixtures("study")
def test_without_a_measurement_before_its_limit_counts_and_other_steps_are_unknown():
    assert time_left(Watch().plan(benchmark=1, engine=2)) == "60 s left and 2 jobs of unknown length"
    assert time_left(Watch().plan(engine=2)) == ""


@pytest.mark.usefixtures("study")
def test_a_dry_run_says_what_it_would_do_and_why():
    watch = Watch(dryrun=True)
    assert watch.plan(all=1, engine=2) == ["strop: would do 2 jobs: 2 engine"]
    (first,) = watch.start(1, "engine", "2")
    assert first.split() == ["would", "do", "engine", "openvino", "for", "int8+openvino"]
    (again,) = watch.start(2, "engine", "1", "Missing output files: x; Code has changed since last execution")
    assert again.endswith(" Code has changed since last execution")
    (changed,) = watch.start(3, "benchmark", "1", "Params have changed since last execution")
    assert changed.split()[:3] == ["would", "do", "benchmark"]
    assert watch.start(4, "all") == []
    assert watch.plan(all=1, engine=2) == []  # Snakemake says its totals again at the end


def test_a_study_that_is_done_says_so_and_shows_its_decision_again(study, capsys):
    row = {"variant": "a", "run_id": "1", "status": "ok", "speedup": 2.0, "artifact": "engine/1", "batch_size": 1,
           "scenario": "single_stream"}  # fmt: skip
    records.write("summary", decide([row], {}, "speedup"), study / "studies" / "s" / "summary.parquet")
    assert Watch(dryrun=True).show(NOTHING_TO_BE_DONE_MSG) == ["strop: everything is done; 0 jobs"]
    assert capsys.readouterr().out == ""
    assert Watch().show(NOTHING_TO_BE_DONE_MSG) == ["strop: everything is done; 0 jobs"]
    assert "Ship a: 2.00 times as fast" in capsys.readouterr().out


def test_a_done_study_without_a_plan_says_so_too(capsys):
    assert Watch().show(NOTHING_TO_BE_DONE_MSG) == ["strop: everything is done; 0 jobs"]
    assert capsys.readouterr().out == ""


def test_warnings_and_errors_are_shown_and_chatter_is_not():
    watch = Watch()
    assert watch.show("Building DAG of jobs...") == []
    assert watch.show("1 of 3 steps done", event=LogEvent.PROGRESS, done=1, total=3) == []
    assert watch.show("the disk is slow", logging.WARNING) == ["the disk is slow"]
    assert watch.show("it broke", logging.ERROR, event=LogEvent.ERROR) == ["it broke"]
    assert watch.show(None, logging.WARNING) == []


def test_a_broken_job_is_shown_with_its_log():
    facts = {"rule_name": "engine", "rule_msg": "", "jobid": 3, "input": [], "output": ["m.json"], "log": ["j.log"],
             "conda_env": None, "shellcmd": None, "aux": {}}  # fmt: skip
    text = "\n".join(Watch().show("", logging.ERROR, event=LogEvent.JOB_ERROR, **facts))
    assert "Error in rule engine" in text
    assert "j.log" in text


@pytest.mark.usefixtures("study")
def test_a_scenario_is_named_where_there_are_several():
    plan = workflow._study["plan"]
    plan["runs"].append({**plan["runs"][0], "scenario": "offline", "batch_size": 16, "benchmark": "benchmark/2"})
    (line,) = Watch().start(1, "benchmark", "2")
    assert line.split() == ["measuring", "int8+openvino", "offline", "x16"]
