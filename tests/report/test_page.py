"""The report: one page that needs nothing beside it, and the plots with the numbers of the rows."""

import csv
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from strop import records
from strop.artifact import Manifest, write_manifest
from strop.decide import decide
from strop.errors import StropError
from strop.report.charts import (
    KINDS,
    MOST_ROWS,
    QUANTILES,
    kind_of,
    latencies,
    latency_rows,
    speedup_quality,
    stacked,
    write_svg,
)
from strop.report.measured import how_measured, overhead_words
from strop.stages.report import report

EVIL = "</script><!--<script>alert(1)</script>"
VOID = {"meta", "br", "link", "img", "input", "hr"}


def row(variant, speedup=None, **more):
    """Return a full row of the summary; without a speedup nothing of it was measured."""
    numbers = {}
    if speedup is not None:
        numbers = {"speedup": speedup, "speedup_low": speedup - 0.125, "speedup_high": speedup + 0.25, "quality": 0.91,
                   "latency_p50_s": 0.010 / speedup, "quality_drop": 0.002, "quality_drop_low": -0.001,
                   "quality_drop_high": 0.005, "examples": 872, "runtime": "onnxruntime",
                   "precision": "int8"}  # fmt: skip
    known = {"variant": variant, "run_id": f"run-{len(variant)}-{speedup}", "status": "ok", "batch_size": 1,
             "scenario": "single_stream", "threads": 4, "is_reference": variant == "eager", "metric": "accuracy",
             "artifact": "engine/1"}  # fmt: skip
    return {**dict.fromkeys(records.SUMMARY.names), **known, **numbers, **more}


# What a benchmark records beside its numbers.
MEASURED = {
    "calls": 1200, "instances": 8, "processes": 1, "block_calls": 5, "block_s": 0.0123, "switch_s": 3.1e-5,
    "overhead_s": 1.24e-6, "sd_process": 0.005, "sd_session": 0.011, "sd_pair": 0.02, "stopped_by": "decision",
    "load_s": 0.21, "first_call_s": 0.012, "compile_s": 1.5, "load_memory_bytes": 90 * 2**20,
    "running_memory_bytes": 12 * 2**20, "energy_per_item_j": None, "energy_reason": "no counter of energy here",
    "affinity": "0,1", "noisy": True, "noisy_reason": "other processes used 0.6 cores",
    "latency_p999_s": None, "latency_p999_calls_needed": 3400,
}  # fmt: skip


def samples_of(made, count=500):
    """Write-ready samples of a row: the variant's calls, and the reference's that take ten seconds each."""
    latency_s = np.random.default_rng(1).lognormal(-5, 0.3, count)
    one = {"run_id": made["run_id"], "instance": 0, "start_s": 0.0, "items": 1}
    mine = [{**one, "block": at, "arm": "variant", "latency_s": float(v)} for at, v in enumerate(latency_s)]
    theirs = [{**one, "block": at, "arm": "reference", "latency_s": 10.0} for at in range(count)]
    return latency_s, [*mine, *theirs]


AUDIT = {
    "parameters": 22_700_000, "weights": {"int8": 0.99, "f32": 0.01}, "macs": 350_000_000, "work": {"f32": 1.0},
    "left_in_float": [{"operator": "Gemm", "precision": "f32", "count": 3, "work": 0.5, "reason": "<not> known"}],
    "moves": {}, "moves_added": 12, "sparsity": 0.25, "two_four": None, "size_bytes": 2**21,
    "size_expected_bytes": 2**20,
}  # fmt: skip


def write_manifest_in(folder, manifest):
    folder.mkdir(parents=True)
    write_manifest(manifest, folder)


def write_study(results, rows, limits):
    study = {
        "name": "s",
        "question": "Which <b>one</b>?",
        "objective": "speedup",
        "tie_breaker": "size_bytes",
        "limits": limits,
    }
    records.write("summary", decide(rows, limits, "speedup"), results / "studies" / "s" / "summary.parquet")
    skipped = {"status": "skipped", "variant": "int4", "overrides": "quantize=int4", "reason": "int4 needs <cuda>"}
    manifest = Manifest("1", "quantize", "int8", {}, {}, details={"audit": AUDIT})
    write_manifest_in(results / "quantize" / "1", manifest)
    runs = [{"variant": "int8", "chain": ["model/1", "quantize/1"]}, {"variant": "eager", "chain": ["model/1"]}]
    variants = [{"status": "planned"}, skipped]
    return {"study": study, "device": {"name": "laptop"}, "variants": variants, "runs": runs}


def points_of(spec):
    """Return what is drawn; altair keeps it once where all layers share it."""
    return (spec.get("data") or spec["layer"][-1]["data"])["values"]


class Page(html.parser.HTMLParser):
    """What a browser would make of the page: elements with their attributes, texts and scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.scripts, self.styles = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        at = self.open[-1] if self.open else ""
        (self.scripts if at == "script" else self.styles if at == "style" else self.texts).append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def specs(self):
        return json.loads(re.search(r"const specs = (.*);\n", self.scripts[-1])[1])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return folder, page, rows and latencies of a study with two loads, a failure and names that try to break out."""
    results = tmp_path_factory.mktemp("results")
    rows = [
        row("eager", 1.0),
        row("int8", 2.5, warnings="int8 <saturates> here", **MEASURED),
        row(EVIL, 1.75),
        row("int8", 3.5, batch_size=8),
        row("broken", status="crashed", error="<script>boom</script>", log="logs/<1>.log", repeat="strop step 1"),
        row("silent", status="timeout"),
    ]
    timings = {}
    for one in rows[:2]:
        timings[one["run_id"]], samples = samples_of(one)
        records.write("samples", samples, results / "benchmark" / one["run_id"] / "samples.parquet")
    plan = write_study(results, rows, {"quality_drop": 0.01, "speedup": 1.5})
    report(plan, results)
    folder = results / "studies" / "s"
    return folder, Page((folder / "report.html").read_text(encoding="utf-8")), rows, timings


def test_the_page_is_whole_html(made):
    _, page, _, _ = made
    assert page.open == []
    names = [tag for tag, _ in page.tags]
    assert (names.count("script"), names.count("style"), names.count("html")) == (2, 1, 1)


def test_the_page_fetches_nothing(made):
    _, page, _, _ = made
    assert not [(tag, attrs) for tag, attrs in page.tags if tag in ("link", "iframe", "img", "object", "base")]
    assert not [attrs for _, attrs in page.tags if attrs.keys() & {"src", "href", "srcset", "data", "action"}]
    assert not re.search(r"url\(|@import|http", "".join(page.styles))
    assert not re.search(r"url\(\s*[\"']?(https?:)?//", "".join(page.scripts))
    assert "http" not in page.scripts[-1]
    assert '"url"' not in page.scripts[-1]


def test_the_page_holds_the_library_that_draws(made):
    _, page, _, _ = made
    assert "window.vegaEmbed=" in page.scripts[0].replace(" ", "")
    assert "vegaEmbed(place" in page.scripts[-1]
    assert [attrs.get("class") for tag, attrs in page.tags if tag == "div"].count("plot") == len(page.specs)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to read JavaScript")
def test_the_scripts_are_javascript(made, tmp_path):
    _, page, _, _ = made
    for at, script in enumerate(page.scripts):
        path = tmp_path / f"{at}.js"
        path.write_text(script, encoding="utf-8")
        done = subprocess.run(["node", "--check", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-500:]


def test_the_page_says_decision_control_and_limits(made):
    _, page, _, _ = made
    assert "batch 1" in page.text
    assert "Ship int8: 2.50 times as fast as the reference (95 % interval 2.38 to 2.75)" in page.text
    assert "Ship int8: 3.50 times as fast" in page.text
    assert "A/A control: the reference against itself is 1.000 [0.875, 1.250]" in page.text
    assert (
        "Objective: speedup, ties broken by size; limits: quality drop: 1.00 points, speedup: 1.50. laptop" in page.text
    )
    assert "speedup is 1.00 by definition (limit 1.50)" in page.text
    assert "differences up to 19.5% are not ranked" in page.text


def test_the_page_says_how_each_number_was_measured(made):
    _, page, _, _ = made
    how = page.text.partition("How it was measured")[2].partition("How it was measured")[0]
    for words in (
        "int8 1,200 calls, 8 instances, 1 process",
        "5 calls, 12.3 ms, switch 31 µs",
        "limits and ties are decided",
        "1.2 µs",
        "processes 0.50%, sessions 1.10%, pairs 2.00%",
        "load 0.21 s, compile 1.50 s, first call 0.01 s",
        "load 90.00 MiB, running 12.00 MiB",
        "no counter of energy here",
        "0,1 other processes used 0.6 cores",
    ):
        assert words in how
    assert "strop adds 1.2 µs to a call." in page.text
    assert "What strop adds to a call was not measured." in page.text  # of the other load, which does not know it
    assert "+3,400 calls" in page.text


def test_the_page_gives_energy_and_gpu_memory_where_they_were_measured():
    found = how_measured(row("a", 2.0, energy_per_item_j=0.0042, energy_reason=None, gpu_memory_bytes=2**30))
    assert (found["energy"], found["memory"]) == ("4.20 mJ", "GPU 1024 MiB")
    assert how_measured(row("a", 2.0))["amount"] == how_measured(row("a", 2.0))["blocks"] == ""
    assert overhead_words([row("a", overhead_s=2e-6), row("b", overhead_s=13e-6)]) == "strop adds 2 to 13 µs to a call."


def test_the_page_lists_warnings_failures_and_what_was_skipped(made):
    _, page, _, _ = made
    assert "int8: int8 <saturates> here" in page.text.partition("Warnings")[2].partition("Failures")[0]
    failed = page.text.partition("Failures")[2]
    assert re.search(r"broken crashed <script>boom</script> logs/<1>\.log strop step 1", failed)
    assert re.search(r"silent timeout no error text", failed)
    assert "quantize=int4 int4 needs <cuda>" in failed.partition("Skipped combinations")[2]


def test_the_page_shows_what_became_of_each_model(made):
    _, page, _, _ = made
    text = " ".join(page.texts)
    assert "99 % int8, 1 % f32" in text
    assert "3 Gemm: <not> known" in text
    for cell in ("100 % f32", "+12", "25%", "22.7", "350", "2.00", "1.00"):
        assert cell in page.texts, cell


def test_texts_of_people_are_no_html(made):
    folder, page, _, _ = made
    raw = (folder / "report.html").read_text(encoding="utf-8")
    assert raw.count("</script>") == 2
    assert "<script>boom" not in raw
    assert "<script>alert" not in raw
    assert "<!--" not in raw
    assert EVIL in page.text  # shown as it is
    assert "Which <b>one</b>?" in page.text
    assert not [tag for tag, _ in page.tags if tag in ("b", "cuda", "1")]


def test_the_plots_of_the_page_hold_the_numbers_of_the_rows(made):
    _, page, rows, timings = made
    first, times, second = page.specs
    points = {point["variant"]: point for point in points_of(first)}
    assert points.keys() == {"eager", "int8", EVIL}
    drawn = points["int8"]
    assert (drawn["speedup"], drawn["speedup_low"], drawn["speedup_high"]) == (2.5, 2.375, 2.75)
    assert [drawn[f"quality{end}"] for end in ("", "_low", "_high")] == pytest.approx([-0.2, -0.5, 0.1])
    assert drawn["kind"] == "ship"
    assert points_of(second)[0]["speedup"] == 3.5
    limits = [layer["data"]["values"][0]["at"] for layer in first["layer"][:2]]
    assert limits == [1.5, -1.0]
    quantiles = points_of(times)
    assert [one["variant"] for one in quantiles] == ["int8", "eager"]
    for one in quantiles:
        latency_s = timings[next(made["run_id"] for made in rows if made["variant"] == one["variant"])]
        assert one["p99"] == pytest.approx(1e3 * np.quantile(latency_s, 0.99))


def test_the_table_is_written_for_spreadsheets(made):
    folder, _, rows, _ = made
    with (folder / "summary.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [one["variant"] for one in read] == [one["variant"] for one in rows]
    assert list(read[0]) == records.SUMMARY.names
    assert float(read[1]["speedup"]) == 2.5


def test_the_picture_shows_all_groups(made):
    folder, _, _, _ = made
    svg = (folder / "speedup_quality.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    for text in ("batch 1", "batch 8", "2.50 times as fast", "3.50 times as fast", "change of quality [points]"):
        assert text in svg


def test_a_study_in_which_all_failed_has_a_report_too(tmp_path):
    plan = write_study(tmp_path, [row("a", status="crashed", error="boom")], {})
    plan["variants"].pop()
    report(plan, tmp_path)
    folder = tmp_path / "studies" / "s"
    assert "nothing was compared" in (folder / "speedup_quality.svg").read_text(encoding="utf-8")
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert "Ship nothing: no variant was measured to its end, see the failures." in page.text
    assert page.text.partition("Skipped combinations")[2].strip().startswith("None.")
    assert page.specs == []
    assert not [attrs for tag, attrs in page.tags if attrs.get("class") == "plot"]


def test_a_report_needs_a_summary(tmp_path):
    plan = write_study(tmp_path, [], {})
    (tmp_path / "studies" / "s" / "summary.parquet").unlink()
    with pytest.raises(StropError, match="run the study first"):
        report(plan, tmp_path)


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ({"recommended": True, "feasible": True, "pareto": True, "is_reference": True}, "ship"),
        ({"is_reference": True, "feasible": False}, "reference"),
        ({"feasible": True, "pareto": True}, "not beaten"),
        ({"feasible": True, "pareto": False}, "within limits"),
        ({"feasible": False, "limits_verdict": "fail"}, "over a limit"),
        ({"feasible": False, "limits_verdict": "undecided"}, "undecided"),
    ],
)
def test_a_row_is_drawn_as_what_was_decided(flags, kind):
    assert kind_of(flags) == kind
    assert kind in KINDS


def test_quantiles_are_those_of_numpy():
    latency_s, _ = samples_of(row("a", 2.0), 777)
    rows = decide([row("a", 2.0), row("b", 3.0)], {}, "speedup")
    (found,) = latency_rows(rows, {rows[0]["run_id"]: latency_s, rows[1]["run_id"]: np.array([])})
    names = [f"p{round(100 * q)}" for q in QUANTILES]
    assert [found[name] for name in names] == pytest.approx(1e3 * np.quantile(latency_s, QUANTILES))
    assert (found["variant"], found["calls"]) == ("a", 777)
    assert f"p50 {found['p50']:.3g}" in found["all"]


def test_only_the_first_rows_have_a_place_in_the_plot_of_latencies():
    rows = decide([row(f"v{at}", 1.0 + at, run_id=str(at)) for at in range(MOST_ROWS + 5)], {}, "speedup")
    found = latency_rows(rows, {made["run_id"]: np.array([0.1, 0.2]) for made in rows})
    assert [one["variant"] for one in found] == [f"v{at}" for at in range(MOST_ROWS + 4, 4, -1)]


def test_the_plot_of_latencies_keeps_the_order_of_the_table():
    rows = decide([row("a", 2.0), row("b", 3.0)], {}, "speedup")
    spec = latencies(latency_rows(rows, {made["run_id"]: np.array([0.1]) for made in rows}))
    assert all(layer["encoding"]["y"]["sort"] == ["b", "a"] for layer in spec["layer"])
    assert "$schema" not in spec
    assert latencies([]) is None


def test_without_labels_the_plot_shows_agreement():
    unlabelled = {"quality_drop": None, "quality_drop_low": None, "quality_drop_high": None, "fidelity": 0.97}
    spec = speedup_quality(decide([row("a", 2.0, **unlabelled)], {}, "speedup"), {"fidelity": 0.9, "quality_drop": 0.1})
    point = points_of(spec)[0]
    assert point["quality"] == point["quality_low"] == point["quality_high"] == pytest.approx(97.0)
    assert spec["layer"][-1]["encoding"]["y"]["title"] == "same answer as the reference [%]"
    assert spec["layer"][0]["data"]["values"][0]["at"] == 90.0
    assert len(spec["layer"]) == 5  # one line: a drop is not on this axis


def test_specs_are_strict_json_even_with_numbers_missing():
    missing = {"speedup_low": None, "speedup_high": float("nan"), "quality_drop_low": float("inf")}
    rows = decide([row("a", 2.0, **missing), row("b", float("nan")), row("c")], {}, "speedup")
    spec = speedup_quality(rows, {})
    json.dumps(spec, allow_nan=False)
    (point,) = points_of(spec)
    assert (point["variant"], point["speedup_low"], point["speedup_high"]) == ("a", 2.0, 2.0)


def test_nothing_compared_is_no_plot():
    assert speedup_quality(decide([row("a"), row("b", status="crashed")], {}, "speedup"), {}) is None
    assert speedup_quality([], {}) is None


def test_one_plot_is_not_stacked_and_two_share_their_settings():
    spec = speedup_quality(decide([row("a", 2.0)], {}, "speedup"), {}, "one")
    assert stacked([spec]) is spec
    both = stacked([spec, spec])
    assert both["config"] == spec["config"]
    assert [inner["title"] for inner in both["vconcat"]] == ["one", "one"]
    assert all("config" not in inner for inner in both["vconcat"])


def test_names_are_no_markup_of_the_picture(tmp_path):
    write_svg(speedup_quality(decide([row(EVIL, 2.0)], {}, "speedup"), {}), tmp_path / "one.svg")
    svg = Path(tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "<script" not in svg
    assert "&lt;script&gt;alert(1)" in svg
