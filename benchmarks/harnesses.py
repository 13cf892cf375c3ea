"""One ONNX session behind three harnesses: a bare loop, strop's timing loop, MLPerf LoadGen's Python binding."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from strop.artifact import Artifact, Manifest, Tensor, list_files, write_manifest
from strop.examples import Examples
from strop.measure.timers import timer_for
from strop.runtimes.onnxruntime import OnnxRuntimeSession, create, model_path

FEEDS = 16
THREADS = 1
DEVICE = {"kind": "cpu", "threads": THREADS, "huge_pages": True}


def make_artifact(folder: Path, rows: int, width: int, layers: int) -> None:
    """Write a chain of `layers` square matrix products with ReLU, and examples for it, as strop's artifact.

    Input `x` and output `y` are float32, shape (1, rows, width); the weights keep the values' size from layer to layer.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights, nodes = [], []
    names = ["x", *[f"h{layer}" for layer in range(1, layers)], "y"]
    for layer, (before, after) in enumerate(itertools.pairwise(names)):
        values = rng.standard_normal((width, width)) * np.sqrt(2 / width)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [after]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True)
    onnx.save(model, str(folder / "model.onnx"))
    tensors = [Tensor(name, "float32", (1, rows, width)) for name in ("x", "y")]
    manifest = Manifest(
        "0" * 12, "export", "chain", {"rows": rows, "width": width, "layers": layers}, {}, format="onnx",
        files=list_files(folder), inputs=(tensors[0],), outputs=(tensors[1],), details={"precision": "f32"},
    )  # fmt: skip
    write_manifest(manifest, folder)
    arrays = [rng.standard_normal((rows, width)).astype(np.float32) for _ in range(FEEDS)]
    Examples([f"row:{row}" for row in range(FEEDS)], {"x": arrays}).write(examples_path(folder))


def examples_path(folder: Path) -> Path:
    """Return where `make_artifact` put the examples: beside the artifact."""
    return folder.with_suffix(".parquet")


def worker_task(folder: Path) -> dict[str, Any]:
    """Return the arguments of a `WorkerArm` but its name: each example is a batch of its own."""
    rows = [[row] for row in range(FEEDS)]
    return {"artifact": folder, "examples": examples_path(folder), "rows": rows, "device": DEVICE}


def rotation(calls: int) -> list[int]:
    """Return the inputs of `calls` calls: each in its turn."""
    return [at % FEEDS for at in range(calls)]


class Harnesses:
    """One session of ONNX Runtime in this process, called by each harness in its own way.

    Every method makes `untimed` calls, so that the caches hold what they hold in a long loop, then `calls` timed ones,
    over the same inputs, and returns the median latency of these [s].
    """

    def __init__(self, folder: Path) -> None:
        artifact = Artifact(folder)
        session = create(model_path(artifact), THREADS, "all", {})
        self._run: Callable[[Any], None] = session.run_with_iobinding
        examples = Examples.read(examples_path(folder))
        feeds = [examples.batch([row]) for row in range(FEEDS)]
        self._bindings = [_bind(session, one["x"]) for one in feeds]
        wrapped = OnnxRuntimeSession(session, artifact.manifest, {}, None)
        self._timer = timer_for(wrapped)
        self._calls = [wrapped.prepare(one) for one in feeds]
        self._logs = tempfile.TemporaryDirectory()

    def bare(self, calls: int, untimed: int) -> float:
        """Call in the plainest loop; nothing of strop is in it."""
        run = self._run
        self._lead_in(untimed)
        latency_s = []
        for binding in [self._bindings[at] for at in rotation(calls)]:
            began = time.perf_counter()
            run(binding)
            latency_s.append(time.perf_counter() - began)
        return float(np.median(latency_s))

    def loop(self, calls: int, untimed: int) -> float:
        """Call in the timing loop of strop's worker, without its process and pipe."""
        self._lead_in(untimed)
        timed = self._timer.time_calls([self._calls[at] for at in rotation(calls)])
        return float(np.median(timed.latency_s))

    def _lead_in(self, untimed: int) -> None:
        for at in rotation(untimed):
            self._run(self._bindings[at])

    def loadgen(self, calls: int, untimed: int) -> float:
        """Call as LoadGen's system under test, SingleStream, performance mode; the median is the one it logs."""
        import mlperf_loadgen as lg

        run, bindings = self._run, self._bindings

        def issue(queries: list[Any]) -> None:
            for query in queries:
                run(bindings[query.index])
            lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, 0, 0) for query in queries])

        settings = lg.TestSettings()
        settings.scenario, settings.mode = lg.TestScenario.SingleStream, lg.TestMode.PerformanceOnly
        settings.min_query_count = settings.max_query_count = calls
        settings.min_duration_ms = 0
        logs = lg.LogSettings()
        logs.log_output.outdir = self._logs.name
        logs.enable_trace = False
        system = lg.ConstructSUT(issue, lambda: None)
        # Loading comes right before the first query.
        library = lg.ConstructQSL(FEEDS, FEEDS, lambda _: self._lead_in(untimed), lambda _: None)
        lg.StartTestWithLogSettings(system, library, settings, logs)
        lg.DestroyQSL(library)
        lg.DestroySUT(system)
        return _logged_median_s(Path(self._logs.name) / "mlperf_log_detail.txt")


def _bind(session: Any, values: np.ndarray) -> Any:
    """Bind one batch, as strop does."""
    import onnxruntime

    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(values, "cpu", 0))
    binding.bind_output("y", "cpu")
    return binding


def _logged_median_s(path: Path) -> float:
    lines = (json.loads(line.partition(" ")[2]) for line in path.read_text().splitlines())
    logged = {line["key"]: line["value"] for line in lines}
    return float(logged["result_50.00_percentile_latency_ns"]) * 1e-9


class Host:
    """`Harnesses` in a fresh process, which sleeps whenever it is not asked; use as a context."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, folder), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, harness: str, calls: int, untimed: int) -> float:
        """Return what a method of `Harnesses` (`bare`, `loop` or `loadgen`) finds [s]."""
        self._connection.send((harness, calls, untimed))
        median_s: float = self._connection.recv()
        return median_s

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()


def _serve(connection: Connection[Any, Any], folder: Path) -> None:
    harnesses = Harnesses(folder)
    while True:
        try:
            harness, *counts = connection.recv()
        except EOFError:
            return
        connection.send(getattr(harnesses, harness)(*counts))
