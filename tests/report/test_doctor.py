"""`strop doctor`: what it finds is printed whole, as tables and as JSON, with packages missing, too."""

import io
import json

import pytest
from project import ROOT, Project
from rich.console import Console

from strop.machine import VNNI
from strop.options import OPTIONS
from strop.report.doctor import meaning, print_doctor

HIDE = """
import importlib.util as u, sys
real, hidden = u.find_spec, ("openvino", "nncf")
u.find_spec = lambda name, *rest: None if name in hidden else real(name, *rest)
sys.modules.update(dict.fromkeys(hidden))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDE)
    done = Project(folder / "project").run("strop", "doctor", "--json", PYTHONPATH=f"{folder}:{ROOT / 'src'}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_option_is_available_or_says_what_is_missing_and_how_to_get_it(found):
    assert [(entry["stage"], entry["option"]) for entry in found["options"]] == list(OPTIONS)
    for entry in found["options"]:
        assert entry["available"] == (not entry["missing"])
    nncf = next(entry for entry in found["options"] if entry["option"] == "nncf_int8")
    assert [lack["mend"].partition("==")[0] for lack in nncf["missing"]] == ["pip install nncf", "pip install openvino"]


def test_runtimes_say_what_they_have(found):
    runtimes = found["runtimes"]
    assert runtimes["openvino"] == {"reason": "not installed"}
    assert runtimes["onnxruntime"]["CPUExecutionProvider"] == "a session got it"
    assert runtimes["torch"]["threads"] >= 1
    assert bool(found["gpu"]["devices"]) == (found["gpu"]["reason"] is None)
    assert found["versions"]["torch"]


def test_tables_show_all_of_it(found):
    stream = io.StringIO()
    print_doctor(found, Console(file=stream, width=400, color_system=None))
    text = stream.getvalue()
    assert all(entry["option"] in text for entry in found["options"])
    assert "the package 'nncf' is not installed; pip install nncf==" in text
    assert found["machine"]["cpu"] in text
    assert all(name in text for name in found["versions"])


def test_instruction_sets_mean_something_for_int8_and_bf16():
    assert "7-bit weights" in meaning("x86_64", {"avx2"})["int8"]
    assert all("32 bits" in meaning("x86_64", {"avx2", name})["int8"] for name in VNNI)
    assert meaning("x86_64", {"avx512_bf16"})["bf16"] != meaning("x86_64", {"avx2"})["bf16"]
    assert "saturate" in meaning("aarch64", {"asimddp"})["int8"]
