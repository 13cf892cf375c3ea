"""The MLflow store: each record is there exactly once, whatever was interrupted, repeated or done at the same time."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server import free_port

from strop.errors import StropError
from strop.tracking import (
    CONTENT_TAG,
    KEY_TAG,
    Record,
    embedded_uri,
    flatten,
    log_record,
    mark_runs,
    redact,
    tracking_uri,
    ui_command,
)

SAMPLES = b"samples"


@pytest.fixture(autouse=True)
def _no_server_of_the_tester(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def record(tmp_path):
    samples = tmp_path / "samples.parquet"
    samples.write_bytes(SAMPLES)
    many = {f"quantize.setting_{number}": str(number) for number in range(130)}  # more than a call may carry
    return Record(
        key="0123456789ab",
        name="int8 · single_stream",
        status="FINISHED",
        tags={"strop.variant": "int8"},
        params={"quantize": "int8", "quantize.op_types": "[]", "empty": "", **many},
        metrics={"speedup": 2.5, "calls": 1e6, "latency_p50_s": 1.234567890123e-3},
        artifacts=(("benchmark", samples),),
    )


def client_of(results):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=embedded_uri(results))


def runs_of(results, study="study"):
    client = client_of(results)
    return client.search_runs([client.get_experiment_by_name(study).experiment_id])


def test_a_record_is_logged_once_and_silently(results, record, capfd):
    logging.getLogger("mlflow").setLevel(logging.INFO)  # as whoever imports it before strop leaves it
    first = log_record(record, "study", None, results)
    second = log_record(record, "study", None, results)
    assert (first.added, second.added, second.run_id) == (True, False, first.run_id)
    (run,) = runs_of(results)
    assert run.data.params == record.params
    assert run.data.metrics == record.metrics
    assert record.tags.items() <= run.data.tags.items()
    assert run.info.run_name == record.name
    assert run.info.status == "FINISHED"
    assert len(client_of(results).get_metric_history(run.info.run_id, "speedup")) == 1
    kept = list((results / "mlartifacts" / "study").rglob("samples.parquet"))
    assert [path.read_bytes() for path in kept] == [SAMPLES]
    assert capfd.readouterr() == ("", "")


def test_a_run_cut_short_is_completed(results, record):
    log_record(replace(record, key="other"), "study", None, results)  # makes the experiment
    client = client_of(results)
    experiment = client.get_experiment_by_name("study").experiment_id
    cut = client.create_run(experiment, tags={KEY_TAG: record.key}, run_name=record.name)
    client.log_param(cut.info.run_id, "quantize", "int8")
    client.log_metric(cut.info.run_id, "speedup", 2.5)
    assert log_record(record, "study", None, results).run_id == cut.info.run_id
    run = client.get_run(cut.info.run_id)
    assert (run.data.params, run.data.metrics, run.info.status) == (record.params, record.metrics, "FINISHED")
    assert run.data.tags[CONTENT_TAG] == record.content
    assert len(client.get_metric_history(cut.info.run_id, "speedup")) == 1
    assert len(runs_of(results)) == 2


def test_work_that_was_done_again_replaces_its_run(results, record):
    old = log_record(record, "study", None, results)
    again = replace(record, metrics={"speedup": 2.6})
    assert log_record(again, "study", None, results).run_id != old.run_id
    (run,) = runs_of(results)
    assert run.data.metrics == {"speedup": 2.6}


def test_another_file_alone_updates_the_run(results, record):
    old = log_record(record, "study", None, results)
    record.artifacts[0][1].write_bytes(b"others")
    again = log_record(replace(record), "study", None, results)
    assert (again.run_id, again.added) == (old.run_id, True)
    (kept,) = (results / "mlartifacts").rglob("samples.parquet")
    assert kept.read_bytes() == b"others"


def test_runs_that_two_machines_logged_become_one(results, record):
    first = log_record(record, "study", None, results)
    client = client_of(results)
    client.create_run(client.get_experiment_by_name("study").experiment_id, tags={KEY_TAG: record.key})
    assert log_record(record, "study", None, results) == replace(first, added=False)
    assert len(runs_of(results)) == 1


WRITER = """
import sys
from pathlib import Path
from strop.tracking import Record, log_record
results, writer = Path(sys.argv[1]), sys.argv[2]
for key in [f"{writer}-{number}" for number in range(3)] + ["shared"]:
    record = Record(key, key, "FINISHED", {}, {"a": "b"}, {"speedup": 2.0})
    log_record(record, "study", None, results)
"""


def test_parallel_jobs_share_a_new_embedded_store(results):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(results), str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    errors = [writer.communicate(timeout=300)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, errors
    assert errors == [""] * 4
    wanted = sorted([f"{writer}-{number}" for writer in range(4) for number in range(3)] + ["shared"])
    runs = runs_of(results)
    assert sorted(run.data.tags[KEY_TAG] for run in runs) == wanted
    assert all(run.data.metrics == {"speedup": 2.0} and run.info.status == "FINISHED" for run in runs)


def test_a_deleted_experiment_is_named_with_the_mend(results, record):
    log_record(record, "study", None, results)
    client = client_of(results)
    client.delete_experiment(client.get_experiment_by_name("study").experiment_id)
    with pytest.raises(StropError, match=r"experiment 'study' was deleted; restore it"):
        log_record(record, "study", None, results)


def test_marks_follow_the_last_decision(results, record):
    ids = {key: log_record(replace(record, key=key), "study", None, results) for key in "abc"}
    one = {"feasible": True, "pareto": True, "recommended": True}
    none = dict.fromkeys(one, False)
    mark_runs({"a": one, "b": none}, "study", None, results)
    mark_runs({"a": one, "b": none}, "study", None, results)
    client = client_of(results)
    assert len(client.get_metric_history(ids["a"].run_id, "pareto")) == 1
    mark_runs({"b": one}, "study", None, results)  # a narrower study: `a` is not in it
    runs = {run.data.tags[KEY_TAG]: run.data for run in runs_of(results)}
    assert {key: run.tags.get("strop.recommended") for key, run in runs.items()} == {
        "a": "false",
        "b": "true",
        "c": None,
    }
    assert (runs["a"].metrics["recommended"], runs["b"].metrics["recommended"]) == (0.0, 1.0)
    marked = log_record(replace(record, key="a"), "study", None, results)
    assert marked == replace(ids["a"], added=False)  # a decision is no reason to log a run again


def refused(uri, record, results):
    started = time.monotonic()
    with pytest.raises(StropError) as caught:
        log_record(record, "study", uri, results)
    assert time.monotonic() - started < 10
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_server_that_is_down_is_known_at_once(results, record):
    port = free_port()
    message = refused(f"http://me:s3cret@127.0.0.1:{port}", record, results)
    assert f"no MLflow server at http://***@127.0.0.1:{port} " in message
    assert message.endswith("start it, then strop sync")


def test_a_server_that_never_answers_is_given_up(results, record):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert "timed out" in refused(f"http://127.0.0.1:{silent.getsockname()[1]}", record, results)


@contextlib.contextmanager
def serving(status):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "words"), [(503, "it answers 503"), (403, "MLflow at http")])
def test_a_server_that_refuses_is_one_line(results, record, status, words):
    with serving(status) as port:
        assert words in refused(f"http://me:s3cret@127.0.0.1:{port}/mlflow", record, results)


@pytest.mark.parametrize("uri", ["http://me:s3cret/x@127.0.0.1:1", "nonsense://me:s3cret@host/x", "http://host:port"])
def test_a_wrong_uri_is_one_line(results, record, uri):
    assert "strop sync" in refused(uri, record, results)


@given(st.text(st.characters(blacklist_categories=("Z", "C"), blacklist_characters="'\""), min_size=1))
def test_redaction_hides_all_before_the_host(secret):
    assert redact(f"at https://me:{secret}@host:5000/x, sorry") == "at https://***@host:5000/x, sorry"


def test_redaction_hides_queries():
    assert redact("at postgresql://host/db?password=s3cret: no") == "at postgresql://host/db?*** no"


def test_plain_text_is_not_redacted():
    text = "mail me@host; see http://127.0.0.1:5000/#/experiments"
    assert redact(text) == text


def test_settings_become_flat_params():
    nested = {"quantize": {"per_channel": True, "op_types": ["MatMul"], "source": {"path": None}, "args": {}}}
    assert flatten(nested) == {
        "quantize.per_channel": "True",
        "quantize.op_types": "['MatMul']",
        "quantize.source.path": "None",
        "quantize.args": "{}",
    }
    assert flatten({"a": {"what's this?": 1}}) == {"a.what_s this_": "1"}


def test_the_setting_wins_over_the_environment(monkeypatch):
    assert tracking_uri() is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    assert tracking_uri() == "http://there"
    assert tracking_uri("http://here") == "http://here"


def test_ui_serves_the_embedded_store_on_loopback(results, record, tmp_path):
    with pytest.raises(StropError, match="run a study first"):
        ui_command(results, 5000)
    log_record(record, "study", None, results)
    port = free_port()
    with (
        (tmp_path / "ui.log").open("w") as log,
        subprocess.Popen(ui_command(results, port), stdout=log, stderr=log, start_new_session=True) as ui,
    ):
        try:
            assert "study" in experiments_at(port)
        finally:
            os.killpg(ui.pid, signal.SIGTERM)


def experiments_at(port):
    import urllib.request

    address = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search?max_results=10"
    for _ in range(240):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            return [experiment["name"] for experiment in json.load(answer)["experiments"]]
        time.sleep(0.25)
    raise AssertionError("the server did not start")
