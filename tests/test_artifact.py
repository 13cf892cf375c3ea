"""Manifests, files and their hashes; ids."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.artifact import Artifact, Manifest, Tensor, list_files, read_manifest, write_manifest
from strop.errors import StageFailure, StropError
from strop.ids import canonical, digest, source_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def make(folder):
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"weights")
    (folder / "sub").mkdir()
    (folder / "sub" / "more.bin").write_bytes(b"more")
    manifest = Manifest("a" * 12, "export", "onnx", {"opset": 18}, {"source": "model/b"}, format="onnx",
                        files=list_files(folder), inputs=(Tensor("x", "float32", ("batch", 4)),))  # fmt: skip
    write_manifest(manifest, folder)
    return manifest


def test_manifest_reads_back_equal(tmp_path):
    manifest = make(tmp_path / "export" / "a")
    assert read_manifest(tmp_path / "export" / "a") == manifest
    assert manifest.size_bytes == 11
    assert [file.path for file in manifest.files] == ["sub/more.bin", "weights.bin"]


def test_changed_or_missing_bytes_are_refused(tmp_path):
    make(tmp_path / "x")
    (tmp_path / "x" / "weights.bin").write_bytes(b"weighty")
    with pytest.raises(StageFailure, match="bytes have changed"):
        Artifact(tmp_path / "x").verify()
    (tmp_path / "x" / "weights.bin").unlink()
    with pytest.raises(StageFailure, match="missing"):
        Artifact(tmp_path / "x").file("weights.bin")
    with pytest.raises(StageFailure, match="not a file of this artifact"):
        Artifact(tmp_path / "x").file("../secret")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"manifest_version": 99}', '{"stage": "x"}'])
def test_damaged_manifest_is_one_line(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(StropError) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)
    assert "manifest" in str(caught.value)


@given(JSON)
def test_canonical_json_keeps_the_value_and_ignores_the_order_of_keys(value):
    assert json.loads(canonical(value)) == value
    again = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert digest(again) == digest(value)


@given(st.dictionaries(st.text(min_size=1), st.integers(), min_size=1))
def test_another_value_has_another_id(value):
    key = next(iter(value))
    assert digest({**value, key: value[key] + 1}) != digest(value)


def test_source_digest_ignores_comments_and_docstrings(tmp_path, monkeypatch):
    package = tmp_path / "strop"
    package.mkdir()
    monkeypatch.setattr("strop.ids.PACKAGE", package)

    def digest_of(text):
        (package / "part.py").write_text(text)
        source_digest.cache_clear()
        return source_digest("strop.part")

    first = digest_of('"""One."""\ndef f():\n    return 1\n')
    assert digest_of('"""Two."""\n\n# why\ndef f():\n    """Doc."""\n    return 1\n') == first
    assert digest_of('"""One."""\ndef f():\n    return 2\n') != first
    source_digest.cache_clear()
