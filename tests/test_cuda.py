"""The CUDA path as far as a CPU goes: options, order of copies and work, captures, and what is said without a device.

Where torch needs a device, memory and streams are pretended; a pretended graph replays the recorded operators.
"""

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from strop.artifact import Artifact, Manifest, list_files, write_manifest
from strop.errors import StageFailure
from strop.runtimes import cuda, open_session
from strop.runtimes.cuda import CudaCall, CudaOptions, CudaStream
from strop.runtimes.onnxruntime import create
from strop.runtimes.onnxruntime_cuda import BoundCall, with_graphs
from strop.runtimes.probe import cuda_problem

torch = pytest.importorskip("torch")
no_device = pytest.mark.skipif(cuda_problem() is None, reason="tests what happens without a CUDA device")


class Stream:
    def __init__(self, name="own"):
        self.name = name
        self.log = []

    def synchronize(self):
        self.log.append("synchronize")

    def wait_stream(self, other):
        self.log.append(f"wait for {other.name}")


class Event:
    made = 0

    def __init__(self, enable_timing):
        assert enable_timing
        self.at_ms = 0.0

    def record(self, _stream):
        Event.made += 1
        self.at_ms = 2.0 * Event.made

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


class Graph:
    """Records the operators of a capture, and replays them on the same memory."""

    captures = 0

    def __init__(self):
        self.steps = []

    def replay(self):
        with torch.inference_mode():
            for func, args, kwargs, result in self.steps:
                if isinstance(result, torch.Tensor) and result._base is None:
                    result.copy_(func(*args, **kwargs))


@contextlib.contextmanager
def capture(graph, pool, stream):
    from torch.utils._python_dispatch import TorchDispatchMode

    assert (pool, stream.name) == ("pool", "own")

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            graph.steps.append((func, args, kwargs or {}, result))
            return result

    Graph.captures += 1
    try:
        with Record():
            yield
    except RuntimeError:
        raise RuntimeError("the capture was invalidated") from None


@pytest.fixture
def pretended(monkeypatch):
    """Torch as with a device, on the host's memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a pretended device")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda: Stream("default"))
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(cuda, "pinned", torch.tensor)
    monkeypatch.setattr(cuda, "pinned_like", torch.empty_like)
    monkeypatch.setattr(cuda, "on_device", torch.clone)
    monkeypatch.setattr(Graph, "captures", 0)


OPTIONS = [CudaOptions(*values) for values in itertools.product(("apart", "within"), (False, True), (False, True))]


def batches():
    rng = np.random.default_rng(1)
    found = []
    for rows, length in ((1, 5), (3, 8)):
        ids = rng.integers(1, 50, (rows, length))
        found.append({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.usefixtures("pretended")
def test_outputs_are_the_same_however_calls_run(monkeypatch, text_bench, options):
    import strop.runtimes.torch as runtime

    artifact = text_bench.artifact(text_bench.torch)
    plain = open_session(artifact, threads=1)
    open_eager = runtime._open_eager
    monkeypatch.setattr(runtime, "_open_eager", lambda artifact, _: open_eager(artifact, "cpu"))
    session = open_session(artifact, threads=1, device="cuda", cuda=options)
    assert session.stream.name == ("own" if options.own_stream else "default")
    assert session.facts["cuda_device"] == "a pretended device"
    told = {name: session.facts[name] for name in ("transfers", "cuda_graph", "own_stream")}
    assert CudaOptions(**told) == options
    calls = [session.prepare(feeds) for feeds in batches()]
    for _ in range(2):
        for call, feeds in zip(calls, batches(), strict=True):
            expected = plain.to_numpy(plain.prepare(feeds)())
            for name, value in session.to_numpy(call()).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
    assert session.stream.log[-1] == "synchronize"
    assert Graph.captures == (len(calls) if options.cuda_graph else 0)
    assert session.transfer_seconds(calls[0]) == pytest.approx({"h2d_s": 2e-3, "d2h_s": 2e-3})
    assert plain.transfer_seconds(plain.prepare(batches()[0])) is None


def doubled(inputs):
    return {"y": inputs["x"] * 2}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.usefixtures("pretended")
def test_only_transfers_within_read_the_hosts_memory_again(graph):
    for transfers, wanted in (("apart", 2.0), ("within", 10.0)):
        call = CudaCall(doubled, {"x": np.ones(3, np.float32)}, CudaStream(CudaOptions(transfers, graph, False)))
        call()
        call._host["x"].fill_(5.0)
        assert call()["y"].tolist() == [wanted] * 3


@pytest.mark.usefixtures("pretended")
def test_results_of_transfers_within_are_in_the_same_pinned_memory():
    call = CudaCall(doubled, {"x": np.ones(3, np.float32)}, CudaStream(CudaOptions("within", False, False)))
    first = call()["y"]
    assert call()["y"] is first
    assert first is not call._inputs["x"]


@pytest.mark.usefixtures("pretended")
def test_a_capture_comes_after_calls_on_a_side_stream():
    stream = CudaStream(CudaOptions("apart", True, False))
    seen = []

    def compute(inputs):
        seen.append(Graph.captures)
        return doubled(inputs)

    call = CudaCall(compute, {"x": np.ones(3, np.float32)}, stream)
    assert seen == []  # nothing runs before the first call, which is timed apart
    call()
    call()
    assert seen == [0] * cuda.WARM_CALLS + [1]
    assert stream._side.log == ["wait for default"]
    assert stream.stream.log[0] == "wait for own"


@pytest.mark.usefixtures("pretended")
def test_a_capture_that_fails_names_the_first_reason():
    def compute(inputs):
        if Graph.captures:
            raise RuntimeError("an operator waits for the device")
        return doubled(inputs)

    call = CudaCall(compute, {"x": np.ones(3, np.float32)}, CudaStream(CudaOptions("apart", True, False)))
    with pytest.raises(StageFailure, match=r"CUDA graph: capture fails: .*an operator waits for the device") as caught:
        call()
    assert caught.value.status == "build_failed"


def test_options_come_from_the_devices_settings():
    assert CudaOptions.from_settings({"kind": "cuda", "threads": 1}) == CudaOptions("apart", False, False)
    given = {"kind": "cuda", "transfers": "within", "cuda_graph": True, "own_stream": True}
    assert CudaOptions.from_settings(given) == CudaOptions("within", True, True)


@no_device
@pytest.mark.parametrize("options", [None, *OPTIONS[:1]])
def test_torch_says_that_there_is_no_device(text_bench, options):
    with pytest.raises(StageFailure, match="this PyTorch finds no CUDA device") as caught:
        open_session(text_bench.artifact(text_bench.torch), threads=1, device="cuda", cuda=options)
    assert caught.value.status == "skipped"


def provided(text_bench, folder, providers):
    """Write an artifact as an engine of these providers would be, which cannot be built without a device."""
    source = text_bench.artifact(text_bench.onnx)
    (folder / "model.onnx").write_bytes(source.file("model.onnx").read_bytes())
    manifest = Manifest(
        "0" * 12, "engine", "onnxruntime_cuda", {}, {}, format="ort", files=list_files(folder),
        inputs=source.manifest.inputs, outputs=source.manifest.outputs,
        details={"providers": providers, "precision": "f32"},
    )  # fmt: skip
    write_manifest(manifest, folder)
    return Artifact(folder)


@no_device
@pytest.mark.parametrize("graph", [False, True])
def test_onnxruntime_says_that_there_is_no_device(text_bench, tmp_path, graph):
    artifact = provided(text_bench, tmp_path, ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(StageFailure, match="CUDAExecutionProvider") as caught:
        open_session(artifact, threads=1, device="cuda", cuda=CudaOptions("apart", graph, False))
    assert caught.value.status == "skipped"


def test_onnxruntime_captures_with_the_cuda_provider_only(text_bench, tmp_path):
    options = {"CUDAExecutionProvider": {"device_id": "1"}}
    details = {"providers": ["CUDAExecutionProvider"], "provider_options": options, "precision": "f32"}
    found = with_graphs(details)
    assert found["provider_options"] == {"CUDAExecutionProvider": {"device_id": "1", "enable_cuda_graph": "1"}}
    assert options == {"CUDAExecutionProvider": {"device_id": "1"}}
    artifact = provided(text_bench, tmp_path, ["TensorrtExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(StageFailure, match=r"device\.cuda_graph: .*not TensorrtExecutionProvider") as caught:
        open_session(artifact, threads=1, device="cuda", cuda=CudaOptions("apart", True, False))
    assert caught.value.status == "skipped"


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("transfers", ["apart", "within"])
def test_onnxruntimes_bound_calls_copy_when_they_should(text_bench, transfers, graph):
    source = text_bench.artifact(text_bench.onnx)
    session = create(source.file("model.onnx"), 1, "all", {})
    names = [output.name for output in session.get_outputs()]
    feeds = batches()[1]
    before = session.run(names, feeds)
    call = BoundCall(session, names, feeds, CudaOptions(transfers, graph, False), 1, device="cpu")
    call()
    feeds["input_ids"][:] = np.flip(feeds["input_ids"], axis=1) % 7
    after = session.run(names, feeds)
    assert not np.allclose(before[0], after[0])
    raw = call()
    values = raw if transfers == "within" else raw.copy_outputs_to_cpu()
    np.testing.assert_allclose(values[0], (after if transfers == "within" else before)[0], rtol=1e-5, atol=1e-6)
    assert call.transfer_seconds().keys() == {"h2d_s", "d2h_s"}


def test_compile_time_is_of_this_session_and_grows_with_shapes(text_bench, tmp_path):
    source = text_bench.artifact(text_bench.torch)
    for file in source.manifest.files:
        if not file.path.startswith("examples"):
            target = tmp_path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.file(file.path).read_bytes())
    (tmp_path / "compile.json").write_text('{"backend": "eager", "mode": null, "dynamic": false}')
    manifest = replace(source.manifest, format="torch_compile", files=list_files(tmp_path))
    write_manifest(manifest, tmp_path)
    session = open_session(Artifact(tmp_path), threads=1)
    found = [session.compile_seconds()]
    for feeds in batches():
        session.prepare(feeds)()
        found.append(session.compile_seconds())
    assert 0 == found[0] < found[1] < found[2]
    assert open_session(Artifact(tmp_path), threads=1).compile_seconds() == 0
    assert open_session(source, threads=1).compile_seconds() is None


def test_openvino_says_how_long_it_compiled_and_onnxruntime_does_not(text_bench):
    pytest.importorskip("openvino")
    made = text_bench.step("engine", "openvino", text_bench.onnx, text_bench.torch)
    assert 0 < open_session(text_bench.artifact(made), threads=1).compile_seconds() < 60
    assert open_session(text_bench.artifact(text_bench.onnx), threads=1).compile_seconds() is None
