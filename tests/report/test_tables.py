"""Tables on a terminal: aligned, whole where the terminal is narrow, and literal about names."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from strop import records
from strop.decide import decide
from strop.errors import StropError
from strop.report.plan_table import print_plan
from strop.report.tables import failures, in_order, marks, print_study, state, summary_table

MIB = 2**20
MARKUP = "[red]x[/]"
LONG = "unstructured_magnitude+ort_int8_static+onnxruntime_with_many_words"


def row(variant, speedup=None, **more):
    """Return a full row of the summary; without a speedup nothing of it was measured."""
    numbers = {}
    if speedup is not None:
        numbers = {"speedup": speedup, "speedup_low": speedup - 0.05, "speedup_high": speedup + 0.05, "quality": 0.91,
                   "latency_p50_s": 0.010 / speedup, "latency_p99_s": 0.02 / speedup, "quality_drop": 0.0021,
                   "quality_drop_low": -0.001, "quality_drop_high": 0.005, "examples": 872,
                   "size_bytes": 1234 * MIB, "peak_memory_bytes": 256 * MIB}  # fmt: skip
    known = {"variant": variant, "run_id": variant, "status": "ok", "scenario": "single_stream", "batch_size": 1,
             "is_reference": variant == "eager", "artifact": f"engine/{variant}", "metric": "accuracy"}  # fmt: skip
    return {**dict.fromkeys(records.SUMMARY.names), **known, **numbers, **more}


def crashed(variant, **more):
    facts = {"status": "crashed", "error": "killed by SIGSEGV", "log": "results/logs/1.log", "repeat": "strop step 1"}
    return row(variant, **{**facts, **more})


def study_rows():
    rows = [crashed("broken"), row("slow", 1.2), row("eager", 1.0), row(MARKUP, 12.5, noisy=True),
            row("heavy", 30.0, size_bytes=9000 * MIB)]  # fmt: skip
    return decide(rows, {"size_bytes": 2000 * MIB}, "speedup")


def printed(what, width):
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(what)
    return stream.getvalue().rstrip("\n").split("\n")


def column_ends(lines, marker):
    """Return where `marker` ends in each line, in cells of the terminal."""
    return {cell_len(line[: line.index(marker) + len(marker)]) for line in lines}


@pytest.mark.parametrize("width", [120, 60])
def test_no_line_is_wider_than_the_terminal(width):
    rows = [*study_rows(), *decide([row(LONG, 2.0)], {}, "speedup")]
    assert max(cell_len(line) for line in printed(summary_table(rows, width), width)) <= width


def test_columns_are_aligned():
    lines = printed(summary_table(study_rows(), 120), 120)
    speedups = ["12.50 [12.45, 12.55]", "1.20 [1.15, 1.25]", "1.00 [0.95, 1.05]", "30.00 [29.95, 30.05]"]
    shown = [next(line for line in lines if text in line) for text in speedups]
    assert (
        len({cell_len(line[: line.index(text) + len(text)]) for line, text in zip(shown, speedups, strict=True)}) == 1
    )
    assert column_ends(lines[2:6], "0.21 [-0.10, 0.50]") == column_ends(lines[1:2], "points [95 %]")
    names = ("variant", MARKUP, "slow", "eager", "heavy", "broken")
    assert len({cell_len(line[: line.index(name)]) for name in names for line in lines if name in line}) == 1


def test_a_wide_terminal_shows_all_columns_and_a_narrow_one_the_first():
    wide, narrow = ("\n".join(printed(summary_table(study_rows(), width), width)) for width in (120, 60))
    for word in ("variant", "status", "p50", "p99", "speedup", "quality drop", "size", "memory", "256", "91.00"):
        assert word in wide
    assert "memory" not in narrow
    for text in ("variant", MARKUP, "broken", "speedup", "12.50 [12.45, 12.55]"):
        assert text in narrow


def test_a_long_name_is_folded_and_not_cut():
    lines = printed(summary_table(decide([row(LONG, 2.0), row("b", 1.0)], {}, "speedup"), 60), 60)
    pieces = [piece for line in lines[2:] for piece in line.split() if piece in LONG and len(piece) > 1]
    assert "".join(pieces) == LONG
    assert any("2.00 [1.95, 2.05]" in line for line in lines)


def test_names_are_no_markup():
    rows = decide([row(MARKUP, 2.0), row("[/]", 1.5), row("a[b,c]", 1.2)], {}, "speedup")
    text = "\n".join(printed(summary_table(rows, 120), 120))
    for name in (MARKUP, "[/]", "a[b,c]"):
        assert name in text


def test_the_load_is_shown_if_it_differs():
    one = "\n".join(printed(summary_table([row("a", 2.0)], 120), 120))
    two = "\n".join(printed(summary_table([row("a", 2.0), row("a", 3.0, batch_size=8)], 120), 120))
    assert "single_stream" not in one
    assert "single_stream x1" in two
    assert "single_stream x8" in two


def test_rows_are_in_order_feasible_by_speedup_then_infeasible_then_failed():
    names = [made["variant"] for made in in_order(study_rows())]
    assert names == [MARKUP, "slow", "eager", "heavy", "broken"]
    lines = printed(summary_table(study_rows(), 120), 120)
    found = [next(at for at, line in enumerate(lines) if name in line) for name in names]
    assert found == sorted(found)
    assert [made["variant"] for made in in_order(study_rows()[::-1])] == names


def test_loads_are_not_mixed():
    rows = [row("a", 2.0, batch_size=8), row("b", 9.0), row("c", 3.0, batch_size=8)]
    assert [made["variant"] for made in in_order(decide(rows, {}, "speedup"))] == ["b", "c", "a"]


def test_marks_and_states_say_what_a_row_is():
    found = {made["variant"]: (marks(made), state(made)) for made in study_rows()}
    assert found == {
        MARKUP: ("★◆~", "ok"),
        "slow": ("", "ok"),
        "eager": ("", "ok"),
        "heavy": ("", "over limit"),
        "broken": ("", "crashed"),
    }


def test_a_row_that_no_limit_failed_is_undecided():
    made = row("open", 2.0, quality_drop_high=0.02)
    assert state(decide([made], {"quality_drop": 0.01}, "speedup")[0]) == "undecided"
    assert state(decide([made], {"quality_drop": 0.01, "size_bytes": 1}, "speedup")[0]) == "over limit"


def test_ties_have_a_column_only_where_there_are_any():
    apart = decide([row("a", 2.0), row("b", 3.0)], {}, "speedup")
    assert "tie" not in "\n".join(printed(summary_table(apart, 120), 120))
    rows = decide([row("a", 2.0), row("b", 3.0), row("c", 3.01)], {}, "speedup")
    lines = printed(summary_table(rows, 120), 120)
    shown = {line.split()[1 if line[0] in "★◆" else 0]: line.split("]")[1].split()[0] for line in lines[2:]}
    assert shown == {"c": "1", "b": "1", "a": "2"}
    groups_apart = decide([row("a", 2.0), row("b", 2.0, batch_size=8)], {}, "speedup")
    assert "tie" not in "\n".join(printed(summary_table(groups_apart, 120), 120))  # each is the only one of its load


def test_a_quantile_of_too_few_calls_says_how_many_it_lacks(finished):
    plan, results = finished
    lacking = row("few", 2.0, latency_p99_s=None, latency_p99_calls_needed=1230)
    unknown = row("old", 1.0, latency_p99_s=None)
    rows = decide([lacking, unknown, crashed("broken")], {}, "speedup")
    lines = printed(summary_table(rows, 120), 120)
    assert any("+1,230 calls" in line for line in lines if "few" in line)
    assert any(" - " in line for line in lines if "old" in line)
    assert not any(" - " in line for line in lines if "broken" in line)
    records.write("summary", rows, results / "studies" / "s" / "summary.parquet")
    assert "so many more calls would tell this quantile (benchmark.min_calls)" in printed_study(plan, results)


def test_a_failure_is_listed_once_with_all_its_variants():
    rows = [crashed("b"), crashed("a"), crashed("a", batch_size=8), crashed("c", error="other"), row("ok", 1.0)]
    found = {failure["error"]: failure for failure in failures(decide(rows, {}, "speedup"))}
    assert found["killed by SIGSEGV"] == {
        "status": "crashed", "error": "killed by SIGSEGV", "log": "results/logs/1.log", "repeat": "strop step 1",
        "variants": ["a", "b"],
    }  # fmt: skip
    assert found["other"]["variants"] == ["c"]
    assert len(found) == 2


def test_a_warning_is_printed_once_with_all_its_variants(finished):
    plan, results = finished
    assert "Warnings" not in printed_study(plan, results)
    rows = [
        row("eager", 1.0),
        row("b", 2.0, warnings="it saturates\nit is half float"),
        row("a", 3.0, warnings="it saturates"),
    ]
    records.write("summary", decide(rows, {}, "speedup"), results / "studies" / "s" / "summary.parquet")
    text = printed_study(plan, results)
    assert "Warnings\n  a, b: it saturates\n  b: it is half float\n" in text


@pytest.fixture
def finished(tmp_path):
    """Return the plan and results of a study with a failure of two variants and a skipped combination."""
    rows = [row("eager", 1.0), row(MARKUP, 2.5, noisy=True), crashed("broken"), crashed("broken too")]
    records.write("summary", decide(rows, {}, "speedup"), tmp_path / "studies" / "s" / "summary.parquet")
    plan = {"study": {"name": "s", "limits": {}, "objective": "speedup", "tie_breaker": "size_bytes"},
            "variants": [{"status": "planned"}, {"status": "skipped"}], "skipped": 1}  # fmt: skip
    return plan, tmp_path


def printed_study(plan, results, **options):
    stream = io.StringIO()
    print_study(plan, results, Console(file=stream, color_system=None, **options))
    return stream.getvalue()


def test_a_finished_study_is_printed_with_the_decision_last(finished):
    plan, results = finished
    text = printed_study(plan, results)
    assert text.count("killed by SIGSEGV") == 1
    assert "broken, broken too: crashed: killed by SIGSEGV" in text
    assert text.count("results/logs/1.log") == text.count("strop step 1") == 1
    assert "1 combination cannot work and was skipped" in text
    assert "A/A control: the reference against itself is 1.000 [0.950, 1.050]" in text
    assert text.rstrip().split("\n")[-1].startswith(f"Ship {MARKUP}: 2.50 times as fast")
    assert "~ noisy measurement" in text
    assert "cannot be told apart" not in text
    tied = decide([row("a", 2.0), row("b", 2.01, size_bytes=1)], {}, "speedup")
    records.write("summary", tied, results / "studies" / "s" / "summary.parquet")
    text = printed_study(plan, results)
    assert "tie same number: cannot be told apart in the objective" in text
    assert "; tied in speed with a (2.00 [1.95, 2.05]), chosen by size: " in text


def test_a_log_file_gets_the_whole_table_and_whole_sentences(finished):
    plan, results = finished
    lines = printed_study(plan, results, width=40).split("\n")
    assert "memory" in lines[0]
    assert any(line.startswith("Ship ") and line.endswith("noisy (no reason given).") for line in lines)


def test_a_terminal_keeps_its_width(finished):
    plan, results = finished
    lines = printed_study(plan, results, width=60, force_terminal=True).split("\n")
    table = lines[: next(at for at, line in enumerate(lines) if "ship this" in line)]
    assert len(table) >= 5
    assert max(cell_len(line) for line in table) <= 60


def test_each_group_has_its_own_decision(finished):
    plan, results = finished
    rows = decide([row("a", 2.0), row("b", 3.0, batch_size=8)], {}, "speedup")
    records.write("summary", rows, results / "studies" / "s" / "summary.parquet")
    text = printed_study(plan, results)
    assert "batch 1: Ship a" in text
    assert "batch 8: Ship b" in text
    assert "Failures" not in text


def test_a_study_that_did_not_run_says_so(finished, tmp_path):
    plan, _ = finished
    with pytest.raises(StropError, match="run the study first"):
        printed_study(plan, tmp_path / "nowhere")


def step(key, label):
    return {"stage": key.partition("/")[0], "label": label}


@pytest.fixture
def plan():
    """Return a plan of two variants that share their model, one skipped combination and one that is repeated."""
    labels = {"dataset/d": "blobs", "model/m": "mlp", "quantize/q": "int8", "evaluate/1": "evaluate",
              "evaluate/2": "evaluate", "benchmark/1": "single_stream", "benchmark/2": "single_stream"}  # fmt: skip
    variant = {"variant": "eager", "variant_id": "1", "chain": ["model/m"], "format": "torch", "status": "planned",
               "overrides": "", "reason": None}  # fmt: skip
    int8 = {"variant": "int8", "variant_id": "2", "chain": ["model/m", "quantize/q"], "format": "ort",
            "overrides": "quantize=int8"}  # fmt: skip
    skipped = {"status": "skipped", "overrides": "quantize=int4", "reason": "int4 needs [cuda]"}
    shared = {"scenario": "single_stream", "dataset_step": "dataset/d"}
    runs = [{"variant_id": str(at), "is_reference": at == 1, "chain": chain, "evaluate": f"evaluate/{at}",
             "benchmark": f"benchmark/{at}", **shared}
            for at, chain in ((1, ["model/m"]), (2, ["model/m", "quantize/q"]))]  # fmt: skip
    return {
        "study": {"name": "s", "question": "Which one?"},
        "steps": {key: step(key, label) for key, label in labels.items()},
        "variants": [variant, {**variant, **int8}, {**variant, "variant": "int4", **skipped}],
        "runs": runs,
        "combinations": 3,
        "distinct": 2,
        "skipped": 1,
    }


def printed_plan(plan, results, width=120):
    stream = io.StringIO()
    print_plan(plan, results, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def cells(text, first):
    return next(line.split() for line in text.split("\n") if line.startswith(first))


def test_a_plan_shows_variants_steps_and_what_is_skipped(plan, tmp_path):
    text = printed_plan(plan, tmp_path)
    assert cells(text, "int8") == ["int8", "int8", "ort", "single_stream", "0/4"]
    assert cells(text, "eager (reference)")[-1] == "0/3"
    assert cells(text, "model") == ["model", "1", "2", "0"]
    assert cells(text, "all") == ["all", "7", "9", "0"]
    assert cells(text, "quantize=int4") == ["quantize=int4", "int4", "needs", "[cuda]"]
    assert "3 combinations: 2 variants, 1 skipped, 1 equal to another one; 2 runs" in text


def test_a_plan_shows_what_is_done(plan, tmp_path):
    for key in ("dataset/d", "model/m", "evaluate/1"):
        (tmp_path / key).mkdir(parents=True)
        (tmp_path / key / "manifest.json").write_text("{}")
    (tmp_path / "benchmark/1").mkdir(parents=True)  # begun, not done
    text = printed_plan(plan, tmp_path)
    assert cells(text, "eager (reference)")[-1] == "2/3"
    assert cells(text, "int8")[-1] == "1/4"
    assert cells(text, "all")[-1] == "3"


def test_a_plan_without_skipped_combinations_lists_none(plan, tmp_path):
    plan["variants"].pop()
    plan["skipped"] = 0
    text = printed_plan(plan, tmp_path)
    assert "Skipped" not in text
    assert "0 skipped" in text


def test_a_plan_takes_no_text_for_markup(plan, tmp_path):
    plan["study"].update(name="[bold]", question="Is [a] or [/] better?")
    plan["variants"][0].update(variant=MARKUP)
    plan["variants"][2].update(overrides="quantize.layers=[head,embed]", reason="[/red] is no layer")
    plan["steps"]["quantize/q"]["label"] = "[blue]int8"
    text = printed_plan(plan, tmp_path)
    for literal in ("[bold]  Is [a] or [/] better?", MARKUP, "[head,embed]", "[/red] is no layer", "[blue]int8"):
        assert literal in text


def test_a_narrow_plan_folds_and_cuts_nothing(plan, tmp_path):
    plan["variants"][1]["variant"] = LONG
    lines = printed_plan(plan, tmp_path, width=60).split("\n")
    assert max(map(cell_len, lines[1:-2])) <= 60
    begin = next(at for at, line in enumerate(lines) if line.startswith(LONG[:8]))
    pieces = [line.split(" ")[0] for line in lines[begin:]]
    assert "".join(pieces).startswith(LONG)


def test_small_numbers_keep_two_digits_and_loads_name_their_threads():
    rows = [row("eager", 1.0, threads=threads, latency_p50_s=4.2e-6, size_bytes=30_000) for threads in (1, 2)]
    text = "\n".join(printed(summary_table(rows, 160), 160))
    for words in ("0.0042", "0.029", "single_stream x1, 2 threads", "single_stream x1  "):
        assert words in text
