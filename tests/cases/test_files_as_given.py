"""ONNX files that nothing more can be done to: quantized by their author, or with texts as input."""

import numpy as np
import pytest
from graphs import graph, onnx_model, value

from strop.examples import Examples
from strop.runtimes import open_session
from strop.runtimes.session import run


def quantized():
    rng = np.random.default_rng(30)
    nodes = [
        ("QuantizeLinear", ["x", "step", "zero"], ["q"], {}),
        ("DequantizeLinear", ["q", "step", "zero"], ["d"], {}),
        ("DequantizeLinear", ["w", "w_step", "zero"], ["wd"], {}),
        ("MatMul", ["d", "wd"], ["y"], {}),
    ]
    weights = {
        "step": np.float32(0.03), "zero": np.int8(0), "w_step": np.float32(0.01),
        "w": rng.integers(-127, 128, (12, 4)).astype(np.int8),
    }  # fmt: skip
    return graph("author_int8", nodes, [value("x", "float32", "n", 12)], [value("y", "float32", "n", 4)], weights)


QUANTIZERS = [
    "ort_int8_dynamic", "ort_int8_static", "ort_int4", "ort_int8_weights", "onnx_fp16", "onnx_bf16", "nncf_int8",
]  # fmt: skip


@pytest.mark.parametrize("option", QUANTIZERS)
def test_a_model_that_its_author_quantized_is_left_alone(bench, row, option):
    data = bench.dataset({"x": list(np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32))})
    model = onnx_model(bench, quantized(), data)
    assert model.status == "ok", model.error
    made = bench.step("quantize", option, model, model)
    row("quantized", f"quantize={option}", made.status, made.error)
    assert (made.status, made.error) == ("skipped", "the model is quantized already")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_engines_take_it_as_it_is_and_say_so(bench, row, engine):
    data = bench.dataset({"x": list(np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32))})
    model = onnx_model(bench, quantized(), data)
    made = bench.step("engine", engine, model, model)
    row("quantized", f"engine={engine}", made.status, made.error)
    assert made.status == "ok", made.error
    assert made.check["facts"]["precision"] == "int8"


WORDS = ["ja", "nein", "vielleicht", "größe", "日本語"]


def labelled(output):
    """Words to numbers to a vector, and for `output="word"` to a word again."""
    rng = np.random.default_rng(2)
    codes = {"domain": "ai.onnx.ml", "default_int64": len(WORDS)}
    nodes = [
        ("LabelEncoder", ["token"], ["id"], {**codes, "keys_strings": WORDS, "values_int64s": [0, 1, 2, 3, 4]}),
        ("Gather", ["table", "id"], ["e"], {}),
        ("ReduceMean", ["e"], ["p"], {"axes": [1], "keepdims": 0}),
        ("MatMul", ["p", "w"], ["y"], {}),
        ("ArgMax", ["y"], ["best"], {"axis": 1, "keepdims": 0}),
        ("LabelEncoder", ["best"], ["word"],
         {"domain": "ai.onnx.ml", "keys_int64s": [0, 1, 2], "values_strings": ["low", "middle", "größer"]}),
    ]  # fmt: skip
    weights = {"table": rng.normal(size=(6, 8)).astype(np.float32), "w": rng.normal(size=(8, 3)).astype(np.float32)}
    outputs = {"y": value("y", "float32", "n", 3), "word": value("word", "str", "n")}
    kept = nodes if output == "word" else nodes[:4]
    return graph("words", kept, [value("token", "str", "n", "s")], [outputs[output]], weights)


def sentences(bench):
    rng = np.random.default_rng(3)
    rows = [np.asarray(rng.choice([*WORDS, "unseen"], rng.integers(1, 6))) for _ in range(40)]
    return bench.dataset({"token": rows}, rng.integers(0, 3, 40))


def test_texts_go_through_onnxruntime_and_other_libraries_say_that_they_cannot(bench, row):
    model = onnx_model(bench, labelled("y"), sentences(bench))
    assert model.status == "ok", model.error
    for stage, option in (("engine", "onnxruntime"), ("quantize", "ort_int8_dynamic"), ("quantize", "ort_int8_static")):
        made = bench.step(stage, option, model, model)
        row("texts", f"{stage}={option}", made.status, made.error)
        assert made.status == "ok", made.error
    scores = bench.do("evaluate", "classification", {"source": model.key, "model": model.key})
    assert scores.details["examples"] == 32
    for stage, option in (("engine", "openvino"), ("quantize", "nncf_int8")):
        made = bench.step(stage, option, model, model)
        row("texts", f"{stage}={option}", made.status, made.error)
        assert made.status == "build_failed"
        assert made.error.startswith("OpenVINO does not read it: ")
        assert "LabelEncoder" in made.error


def test_texts_of_unlike_length_are_whole_in_a_batch_and_filled_with_nothing(bench):
    texts = [np.asarray(["ja"]), np.asarray(["größe", "vielleicht"]), np.asarray([b"nein"])]
    Examples(["a", "b", "c"], {"token": texts}).write(bench.project / "texts.parquet")
    read = Examples.read(bench.project / "texts.parquet")
    assert read.batch([0, 1, 2])["token"].tolist() == [["ja", ""], ["größe", "vielleicht"], ["nein", ""]]
    model = onnx_model(bench, labelled("y"), sentences(bench))
    session = open_session(bench.artifact(model), threads=1)
    alone = run(session, {"token": np.asarray([["größe", "vielleicht"]])})["y"]
    unseen = [run(session, {"token": np.asarray([[word]])})["y"] for word in ("unseen", "never", "")]
    assert np.array_equal(unseen[0], unseen[1])  # what is not in the vocabulary is all one
    assert np.array_equal(unseen[0], unseen[2])
    assert np.allclose(run(session, read.batch([0, 1]))["y"][1], alone[0], atol=1e-6)


def test_a_model_that_answers_in_texts_is_compared_by_them(bench):
    model = onnx_model(bench, labelled("word"), sentences(bench))
    assert model.status == "ok", model.error
    made = bench.step("engine", "onnxruntime", model, model)
    assert made.status == "ok", made.error


def test_numbers_for_a_model_of_texts_are_refused(bench, row):
    data = bench.dataset({"token": [np.zeros(2, np.float32)] * 20})
    model = onnx_model(bench, labelled("y"), data)
    row("texts", "model=onnx_file, numbers as data", model.status, model.error)
    assert model.error == "calibration example 0: 'token' is float32, the model takes str"


SIZE = 64 * 32 * 4


def beside(bench, monkeypatch):
    """Write a model with its weights beside it, and return the file; a decoy of the weights is where Python runs."""
    import onnx
    from onnx import helper

    weight = np.random.default_rng(20).normal(size=(64, 32)).astype(np.float32)
    inner = graph("beside", [("MatMul", ["x", "w"], ["y"], {})], [value("x", "float32", "n", 64)],
                  [value("y", "float32", "n", 32)], {"w": weight})  # fmt: skip
    made = helper.make_model(inner, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = bench.project / "beside.onnx"
    onnx.save(made, str(path), save_as_external_data=True, location="w.bin", size_threshold=100)
    (bench.project / "decoy").mkdir()
    (bench.project / "decoy" / "w.bin").write_bytes(bytes(SIZE))
    monkeypatch.chdir(bench.project / "decoy")
    return path


def test_weights_beside_the_file_are_counted_once_and_never_looked_for_elsewhere(bench, monkeypatch, row):
    path = beside(bench, monkeypatch)
    data = bench.dataset({"x": list(np.random.default_rng(1).normal(size=(40, 64)).astype(np.float32))})

    def model():
        return bench.do("model", "onnx", {"dataset": data.key}, source={"path": "beside.onnx"})

    whole = model()
    row("side-car", "model=onnx_file", whole.status, whole.error)
    assert whole.status == "ok", whole.error
    assert [file.bytes for file in whole.files if file.path == "w.bin"] == [SIZE]
    assert whole.size_bytes == model().size_bytes
    for stage, option in (("quantize", "ort_int8_dynamic"), ("quantize", "onnx_fp16"), ("engine", "openvino")):
        made = bench.step(stage, option, whole, whole)
        row("side-car", f"{stage}={option}", made.status, made.error)
        assert made.status == "ok", made.error
    (path.parent / "w.bin").write_bytes(bytes(SIZE // 2))
    cut = model()
    row("side-car", "model=onnx_file, weights cut off", cut.status, cut.error)
    assert cut.error == "beside.onnx: its external data 'w.bin' is cut short"
    (path.parent / "w.bin").unlink()
    moved = model()
    row("side-car", "model=onnx_file, weights left behind", moved.status, moved.error)
    assert moved.error == "beside.onnx: its external data 'w.bin' is missing beside it"
