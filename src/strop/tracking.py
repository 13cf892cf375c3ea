"""Runs in MLflow: a view of the results for people to filter and plot. Parquet and the manifests are the truth.

A run is found by its tag `strop.run_id`, so logging it again adds nothing. The tag `strop.content` is written last: a
run without it was cut short, and is completed. Only `MlflowClient` is used, never the fluent API's global state.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from strop.errors import StropError, one_line
from strop.ids import digest, sha256_file
from strop.process import locked

KEY_TAG = "strop.run_id"
CONTENT_TAG = "strop.content"
RECOMMENDED_TAG = "strop.recommended"
MARKS = ("feasible", "pareto", "recommended")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
HEALTH_TIMEOUT_S = 3.0
MAX_VALUE = 6000  # characters of a param's value and
MAX_BATCH = 100  # params of a call that MLflow takes
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}
# MLflow's own defaults let each call to a server that hangs take many minutes. A person may set others.
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}


@dataclass(frozen=True)
class Record:
    """What one MLflow run holds.

    Attributes:
        key: becomes the tag `strop.run_id`, one run for each in an experiment.
        name: shown to people.
        status: `FINISHED` or `FAILED`.
        tags: the others.
        artifacts: (folder in the run, file) for each; the file keeps its name.
    """

    key: str
    name: str
    status: str
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    artifacts: tuple[tuple[str, Path], ...] = ()

    @cached_property
    def content(self) -> str:
        """Digest of all that the run holds, the artifacts' bytes included."""
        files = [[folder, path.name, sha256_file(path)] for folder, path in self.artifacts]
        return digest([self.name, self.status, self.tags, self.params, self.metrics, files])


@dataclass(frozen=True)
class Logged:
    """`run_id` is MLflow's; `added` is False if the store had all of it."""

    run_id: str
    added: bool


def tracking_uri(setting: str | None = None) -> str | None:
    """Return the setting, else MLFLOW_TRACKING_URI, else None for the embedded store."""
    return setting or os.environ.get("MLFLOW_TRACKING_URI") or None


def embedded_uri(results: Path) -> str:
    """Return the URI of the store below results/."""
    return f"sqlite:///{(results / 'mlflow.db').resolve()}"


def redact(text: str) -> str:
    """Return a text whose URLs carry no user, no password and no query."""
    return re.sub(r"(\w://[^\s'\"?]*)\?[^\s'\"]*", r"\1?***", re.sub(r"(\w://)[^\s'\"]*@", r"\1***@", text))


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as MLflow params: `quantize.per_channel` -> `True`; characters that it refuses are `_`."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, key)
        else:
            flat[re.sub(r"[^\w\-. :/]", "_", key)] = str(value)[:MAX_VALUE]
    return flat


def log_record(record: Record, experiment: str, uri: str | None, results: Path) -> Logged:
    """Make the store hold a record exactly once, in the experiment of that name, which is made if need be.

    A run that holds only part of the record (a job was killed) is completed. One that contradicts it (the work was
    done again, with other numbers) is deleted, which MLflow can undo, and made anew: its history would show both.

    Args:
        record: the run.
        experiment: name of the experiment.
        uri: as `tracking_uri` gives it; None: the embedded store.
        results: folder of all results.

    Raises:
        StropError: the store cannot be reached or refuses; one line without credentials.
    """
    with _store(uri, results, record.key) as client:
        experiment_id = _experiment(client, experiment, uri or embedded_uri(results), results)
        found = _search(client, experiment_id, f"tags.`{KEY_TAG}` = '{record.key}'")
        done = next((run for run in found if run.data.tags.get(CONTENT_TAG) == record.content), None)
        kept = done or next((run for run in found if not _contradicts(run, record)), None)
        for run in found:
            if run is not kept:
                client.delete_run(run.info.run_id)
        if done:
            return Logged(done.info.run_id, added=False)
        kept = kept or client.create_run(experiment_id, tags={KEY_TAG: record.key}, run_name=record.name)
        _fill(client, kept, record)
        return Logged(kept.info.run_id, added=True)


def _contradicts(run: Any, record: Record) -> bool:
    metrics = {name: value for name, value in run.data.metrics.items() if name not in MARKS}
    return not (run.data.params.items() <= record.params.items() and metrics.items() <= record.metrics.items())


def _fill(client: Any, run: Any, record: Record) -> None:
    """Log what a run lacks of a record; the tag that says that it is complete comes last."""
    from mlflow.entities import Metric, Param, RunTag

    run_id, now_ms = run.info.run_id, int(time.time() * 1000)
    tags = [
        RunTag(name, value) for name, value in {**record.tags, KEY_TAG: record.key, CONTENT_TAG: "incomplete"}.items()
    ]
    params = [Param(name, value) for name, value in record.params.items() if name not in run.data.params]
    metrics = [Metric(name, value, now_ms, 0) for name, value in record.metrics.items() if name not in run.data.metrics]
    client.log_batch(run_id, metrics=metrics, tags=tags)
    for start in range(0, len(params), MAX_BATCH):
        client.log_batch(run_id, params=params[start : start + MAX_BATCH])
    for folder, path in record.artifacts:
        client.log_artifact(run_id, str(path), folder or None)
    client.set_terminated(run_id, record.status)
    client.set_tag(run_id, CONTENT_TAG, record.content)


def mark_runs(marks: Mapping[str, Mapping[str, bool]], experiment: str, uri: str | None, results: Path) -> None:
    """Set a decision on an experiment's runs: the metrics `MARKS` (0 or 1) and the tag `strop.recommended`.

    Args:
        marks: key of a record -> mark -> whether. A run that is not among them is recommended no more.
        experiment: as in `log_record`; also uri, results and errors.
        uri: see there.
        results: see there.
    """
    with _store(uri, results, "marks") as client:
        experiment_id = _experiment(client, experiment, uri or embedded_uri(results), results)
        for run in _search(client, experiment_id, ""):
            mark = marks.get(run.data.tags.get(KEY_TAG, ""))
            if mark is None and run.data.tags.get(RECOMMENDED_TAG) == "true":
                mark = {"recommended": False}
            if mark:
                _mark(client, run, mark)


def _mark(client: Any, run: Any, mark: Mapping[str, bool]) -> None:
    from mlflow.entities import Metric

    now_ms = int(time.time() * 1000)
    numbers = {name: float(value) for name, value in mark.items()}
    new = [Metric(name, value, now_ms, 0) for name, value in numbers.items() if run.data.metrics.get(name) != value]
    client.log_batch(run.info.run_id, metrics=new)
    tag = str(mark.get("recommended", False)).lower()
    if tag != run.data.tags.get(RECOMMENDED_TAG):
        client.set_tag(run.info.run_id, RECOMMENDED_TAG, tag)


def _search(client: Any, experiment_id: str, query: str) -> list[Any]:
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], filter_string=query, page_token=token)
        runs += page
        token = page.token
        if not token:
            return runs


def _experiment(client: Any, name: str, uri: str, results: Path) -> str:
    """Return the id of the experiment of that name; it is made if it is not there."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        # Without a server MLflow would put artifacts into the folder that it happens to be started from.
        location = (results / "mlartifacts" / name).resolve().as_uri() if uri.startswith(DATABASES) else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another job was faster
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise StropError(
            f"MLflow experiment '{name}' was deleted; restore it (mlflow experiments restore -x {found.experiment_id})"
            " or give the study another name, then strop sync"
        )
    return str(found.experiment_id)


@contextlib.contextmanager
def _store(uri: str | None, results: Path, key: str) -> Iterator[Any]:
    """Open the store for one writer at a time; whatever goes wrong is a StropError of one line without credentials."""
    where = uri or embedded_uri(results)
    if reason := _unreachable(where):
        raise StropError(f"no MLflow server at {redact(where)} ({redact(reason)}); start it, then strop sync")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's own, of its libraries
            client_class = _client_class()
            with locked(_lock_path(where, results, key)):
                yield client_class(tracking_uri=where)
    except StropError:
        raise
    except Exception as error:
        raise StropError(
            f"MLflow at {redact(where)}: {redact(one_line(error, 200))}; when that is mended, strop sync"
        ) from None


def _client_class() -> Any:
    os.environ.update(ENVIRONMENT)
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow"):  # MLflow reads its variable only once, and another may have imported it first
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient


def _lock_path(uri: str, results: Path, key: str) -> Path:
    """SQLite takes one writer, its creation too: one lock a file. A server needs one a run, so that none is doubled."""
    if uri.startswith("sqlite:"):
        file = Path(uri.partition(":///")[2].partition("?")[0])
        return file.with_name(f".{file.name}.lock")
    return results / ".locks" / f"mlflow-{key}"


def _unreachable(uri: str) -> str | None:
    """Return why a server does not answer within `HEALTH_TIMEOUT_S`, or None; other stores are not asked."""
    url = urlsplit(uri)
    if url.scheme not in ("http", "https"):
        return None
    host = url.netloc.rpartition("@")[2]
    try:
        with urllib.request.urlopen(f"{url.scheme}://{host}{url.path.rstrip('/')}/health", timeout=HEALTH_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        # Proxies and other servers have no /health, or want a password for it: they answer, and that is enough.
        return f"it answers {error.code}" if error.code >= 500 else None
    except (http.client.InvalidURL, ValueError):
        return "not a valid address"  # the error would quote parts of it
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return None if isinstance(reason, ssl.SSLError) else one_line(str(reason) or type(reason).__name__, 120)


def ui_command(results: Path, port: int) -> list[str]:
    """Return the command that serves the embedded store's pages on the loopback interface.

    It switches telemetry off for the processes that this one starts.

    Raises:
        StropError: there is no embedded store.
    """
    if not (results / "mlflow.db").is_file():
        raise StropError(f"{results / 'mlflow.db'}: no embedded MLflow store here; run a study first: strop run")
    os.environ.update(ENVIRONMENT)
    return [
        *(sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", embedded_uri(results)),
        *("--default-artifact-root", (results / "mlartifacts").resolve().as_uri()),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
