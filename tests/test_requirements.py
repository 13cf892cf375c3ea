"""What an option lacks is said in one line, with the command that brings it."""

import sys

import pytest

from strop import requirements
from strop.options import OPTIONS, Option, option
from strop.runtimes.probe import ask, cuda_problem, import_problem, provider_problem


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("item", OPTIONS.values(), ids=lambda item: f"{item.stage}={item.name}")
def test_every_option_works_here_or_has_a_reason_in_one_line(item, kind):
    reason = requirements.option_problem(item, kind)
    found = [str(lack) for lack in requirements.lacks(item, kind)]
    assert reason == (found[0] if found else None)
    assert all(line and "\n" not in line for line in found)


def test_a_missing_package_is_named_with_the_version_that_strop_pins(monkeypatch):
    find = requirements.importlib.util.find_spec
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None if name == "nncf" else find(name))
    assert requirements.option_problem(option("quantize", "nncf_int8"), "cpu") == (
        f"the package 'nncf' is not installed; pip install {requirements.declared()['nncf']}"
    )


def test_pins_are_those_of_the_installed_strop():
    found = requirements.declared()
    assert found["openvino"].startswith("openvino==")
    assert found["snakemake"].startswith("snakemake[reports]==")
    assert "pytest" not in found
    assert requirements.install("nothing-of-ours") == "pip install nothing-of-ours"
    assert requirements.install("tensorrt-cu13").startswith("pip install 'tensorrt-cu13>=")  # a shell needs the quotes


def test_all_that_an_option_lacks_is_listed():
    item = Option("engine", "tensorrt", ("onnx",), "tensorrt", ("no_such_runtime",), device="cuda")
    found = [str(lack) for lack in requirements.lacks(item, "cuda")]
    assert found[-1] == "the package 'no_such_runtime' is not installed; pip install no_such_runtime"
    assert found[:-1] == ([cuda_problem()] if cuda_problem() else [])


@pytest.mark.parametrize("name", ["inductor", "aot_inductor"])
def test_inductor_needs_a_compiler(monkeypatch, name):
    monkeypatch.setenv("CXX", "no-such-compiler")
    reason = requirements.option_problem(option("compile", name), "cpu")
    assert reason == "no C++ compiler: 'no-such-compiler' is not on the path; apt-get install g++"
    assert requirements.option_problem(option("compile", "torchscript"), "cpu") is None
    assert requirements.tools()["cxx"] is False


def test_the_compiler_is_the_one_that_inductor_asks_for(monkeypatch):
    from torch._inductor import config

    monkeypatch.delenv("CXX", raising=False)
    assert requirements.cxx() in config.cpp.cxx


def test_only_modules_for_python_need_its_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(requirements.sysconfig, "get_path", lambda _name: str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)
    assert "apt-get install python3" in requirements.option_problem(option("compile", "inductor"), "cpu")
    assert requirements.option_problem(option("compile", "aot_inductor"), "cpu") is None


def test_a_package_that_takes_its_process_with_it_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "crashing.py").write_text("import os\nos.abort()\n")
    (tmp_path / "lacking.py").write_text("import ctypes\nctypes.CDLL('libnothing.so')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_problem("crashing").startswith("the package 'crashing' is installed, but ")
    assert "libnothing.so" in import_problem("lacking")
    assert import_problem("json") is None
    assert ask("print('{\"a\": 1}')") == {"a": 1}


def test_a_session_says_which_provider_it_got():
    assert provider_problem("CPUExecutionProvider") is None
    assert "built without NoSuchProvider" in provider_problem("NoSuchProvider")
    assert requirements.provider_mend("NoSuchProvider") == ""
    assert "pip install onnxruntime-openvino, " in requirements.provider_mend("OpenVINOExecutionProvider")
