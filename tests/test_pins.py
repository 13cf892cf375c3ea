"""pyproject.toml, the lock and the conda files name the same versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(requirements):
    found = {}
    for requirement in requirements:
        name, _, version = re.sub(r"\[.*?\]", "", requirement).partition("==")
        found[name.lower()] = version
    return found


LOCK = pins(line for line in (ROOT / "envs/cpu.lock.txt").read_text().splitlines() if not line.startswith("#"))
EXTRAS = PROJECT["optional-dependencies"]


def test_lock_holds_every_pin_of_pyproject():
    wanted = pins([*PROJECT["dependencies"], *EXTRAS["cpu"], *EXTRAS["dev"]])
    assert {name: LOCK.get(name) for name in wanted} == wanted
    assert LOCK["torch"] == "2.13.0"


def test_lock_pins_everything_exactly():
    assert len(LOCK) > 100
    assert all(re.fullmatch(r"\d[\w.]*", version) for version in LOCK.values())


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_conda_file_holds_the_same_pins(name):
    conda = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text())["dependencies"]
    through_pip = next(item["pip"] for item in conda if isinstance(item, dict))
    assert through_pip == [*PROJECT["dependencies"], *EXTRAS[name]]


def test_onnxruntime_is_there_once():
    """Both packages own the module `onnxruntime`: an environment has one of them."""
    assert not any("onnxruntime-gpu" in item for item in EXTRAS["cpu"])
    assert not any(item.startswith("onnxruntime==") for item in [*PROJECT["dependencies"], *EXTRAS["cuda"]])
