"""What each option needs of this machine: packages, a device, a provider, a compiler; and the command that brings it.

The plan skips by it and `strop doctor` lists it. Nothing heavy is imported: what may crash is asked in a child process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from strop.machine import DISTRIBUTIONS
from strop.options import Option

PROVIDERS = {
    "onnxruntime_cuda": "CUDAExecutionProvider",
    "onnxruntime_tensorrt": "TensorrtExecutionProvider",
    "onnxruntime_openvino": "OpenVINOExecutionProvider",
}
# The build of ONNX Runtime that has a provider; all of them are one module, `onnxruntime`.
BUILDS = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
}
OPTIMUM_ONNX = "optimum-onnx"  # adds the exporter to the package `optimum`, and has no module of its own


class Lack(NamedTuple):
    """What is missing, and the command that brings it; `mend` is empty where no command can."""

    what: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}" if self.mend else self.what


def option_problem(item: Option, kind: str) -> str | None:
    """Return in one line why `item` cannot run on a device of `kind` (`cpu` or `cuda`), or None."""
    lack = next(lacks(item, kind), None)
    return None if lack is None else str(lack)


def lacks(item: Option, kind: str) -> Iterator[Lack]:
    """Yield all that `item` lacks here on a device of `kind`, the dearest last: a session is tried only at the end."""
    from strop.runtimes.probe import cuda_problem, import_problem, provider_problem

    on_cuda = item.device == "cuda" or kind == "cuda"
    if on_cuda and (reason := cuda_problem()):
        yield Lack(reason)
    elif item.device == "cuda" and kind != "cuda":
        yield Lack(f"runs on CUDA, and device.kind is {kind}", "add device=cuda")
    missing = [package for package in item.requires if importlib.util.find_spec(package) is None]
    for package in missing:
        yield Lack(f"the package '{package}' is not installed", install(_distribution(package, on_cuda)))
    if "optimum" in item.requires and "optimum" not in missing and not _installed(OPTIMUM_ONNX):
        yield Lack(f"the package '{OPTIMUM_ONNX}' is not installed", install(OPTIMUM_ONNX))
    if "tensorrt" in item.requires and "tensorrt" not in missing and (reason := import_problem("tensorrt")):
        yield Lack(reason, install(_distribution("tensorrt", on_cuda)))
    yield from _compiler_lacks(item, kind)
    provider = PROVIDERS.get(item.name)
    if provider and "onnxruntime" not in missing and (reason := provider_problem(provider)):
        yield Lack(reason, provider_mend(provider) if "built without" in reason else "")


def _compiler_lacks(item: Option, kind: str) -> Iterator[Lack]:
    """Inductor writes C++ for CPUs, with a Python module around it; AOTInductor compiles a library without Python."""
    if item.name == "aot_inductor" or (item.name == "inductor" and kind == "cpu"):
        compiler = cxx()
        if shutil.which(compiler) is None:
            yield Lack(f"no C++ compiler: '{compiler}' is not on the path", "apt-get install g++")
    if item.name == "inductor" and kind == "cpu" and not (header := python_header()).is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        yield Lack(f"no C headers of Python ({header.name} is not in its include folder)", f"apt-get install {package}")


def cxx() -> str:
    """Return the C++ compiler that Inductor calls. Source: `torch._inductor.config.cpp.cxx`."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def python_header() -> Path:
    """Return the header that Inductor's modules include. Source: `torch._inductor.cpp_builder`."""
    return Path(sysconfig.get_path("include")) / "Python.h"


def tools() -> dict[str, bool]:
    """Return which programs and headers, beside packages, are here: a plan rests on them."""
    return {"cxx": shutil.which(cxx()) is not None, "python_header": python_header().is_file()}


def provider_mend(provider: str) -> str:
    """Return the command that brings a build of ONNX Runtime with `provider`, or nothing if none is known."""
    if provider not in BUILDS:
        return ""
    return f"{install(BUILDS[provider])}, which replaces onnxruntime, in an environment of its own"


def install(distribution: str) -> str:
    """Return the command that installs `distribution` in the version that strop pins, if it pins one."""
    return f"pip install {shlex.quote(declared().get(distribution, distribution))}"


@lru_cache
def declared() -> dict[str, str]:
    """Return distribution -> requirement, such as `nncf` -> `nncf==3.4.0`, of all that strop and its extras declare.

    Empty if strop runs from its source without being installed. The tools of its developers are left out.
    """
    try:
        lines = importlib.metadata.requires("strop") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    requirements = [line.partition(";")[0].strip() for line in lines if not re.search(r"extra == .dev.", line)]
    return {re.split(r"[\[<>=!~ ]", requirement)[0]: requirement for requirement in requirements}


def _distribution(package: str, on_cuda: bool) -> str:
    if package == "onnxruntime" and on_cuda:
        return "onnxruntime-gpu"
    return DISTRIBUTIONS.get(package, (package,))[0]


def _installed(distribution: str) -> bool:
    from strop.machine import version

    return version(distribution) is not None
