"""What a device really gives: asked of the driver and of a session, never of a list of providers."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from typing import Any

from strop.errors import one_line

DRIVER_TIMEOUT_S = 60.0
CHILD_TIMEOUT_S = 120.0
_DRIVER = """
import ctypes
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("no CUDA driver on this machine (libcuda.so.1 does not load)")
else:
    code, count = driver.cuInit(0), ctypes.c_int(0)
    if code:
        print(f"the CUDA driver does not start (cuInit gives {code})")
    elif driver.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        print("the CUDA driver reports no device")
"""

_DEVICES = """
import ctypes
import json
driver = ctypes.CDLL("libcuda.so.1")
version, count, names = ctypes.c_int(0), ctypes.c_int(0), []
driver.cuInit(0)
driver.cuDriverGetVersion(ctypes.byref(version))
driver.cuDeviceGetCount(ctypes.byref(count))
for at in range(count.value):
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, 256, at)
    names.append(name.value.decode())
print(json.dumps({"driver": f"{version.value // 1000}.{version.value % 1000 // 10}", "devices": names}))
"""

_CHILD = """
import sys
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [value("x")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
if sys.argv[1] not in ort.get_available_providers():
    sys.exit(print("missing"))
ort.set_default_logger_severity(4)
options = ort.SessionOptions()
if sys.argv[1] != "CPUExecutionProvider":  # which is the fallback
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
try:
    got = ort.InferenceSession(model.SerializeToString(), options, providers=[sys.argv[1]]).get_providers()
except Exception as error:
    print("raised " + " ".join(str(error).split())[:160])
else:
    print("got " + ",".join(got))
"""


@lru_cache
def cuda_problem() -> str | None:
    """Return why there is no CUDA device here, or None if the driver reports one.

    A child process asks, and loads the driver only: one that is broken may hang, or take the process with it, and a
    process that has started it cannot fork any more.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DRIVER], capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"the CUDA driver does not answer within {DRIVER_TIMEOUT_S:.0f} s"
    if child.returncode:
        return f"the CUDA driver killed the process that asked it (exit code {child.returncode})"
    return child.stdout.strip() or None


def cuda_devices() -> dict[str, Any]:
    """Return `driver`, the CUDA version that the driver supports, and `devices`, their names; asked in a child process.

    `reason` says why, if the driver that reported devices does not name them.
    """
    answer = ask(_DEVICES)
    return {"driver": None, "devices": [], "reason": answer} if isinstance(answer, str) else answer


@lru_cache
def import_problem(package: str) -> str | None:
    """Return why the installed `package` cannot be imported, or None. A child process tries: libraries may crash it."""
    answer = ask(f"import {package}\nprint('{{}}')")
    return f"the package '{package}' is installed, but {answer}" if isinstance(answer, str) else None


def ask(code: str) -> dict[str, Any] | str:
    """Run Python `code` in a child process, and return the JSON object on its last line, or why there is none."""
    try:
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"does not answer within {CHILD_TIMEOUT_S:.0f} s"
    if child.returncode:
        said = child.stderr.strip().splitlines()[-1:] or [f"its process was killed (exit code {child.returncode})"]
        return f"fails: {one_line(said[0], 160)}"
    answer: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return answer


@lru_cache
def provider_problem(provider: str) -> str | None:
    """Return why ONNX Runtime does not give a session on `provider`, or None if a small one really got it.

    Args:
        provider: such as `CUDAExecutionProvider`.

    A child process makes the session, because a provider that lacks its libraries may take the process with it.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, provider], capture_output=True, text=True, timeout=CHILD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"a session with {provider} did not start within {CHILD_TIMEOUT_S:.0f} s"
    said = child.stdout.strip().splitlines()[-1:] or [""]
    if said[0] == "missing":
        return f"this ONNX Runtime was built without {provider}"
    if said[0].startswith("got "):
        got = said[0].removeprefix("got ").split(",")
        return None if provider in got else f"a session asked for {provider} got {', '.join(got)}"
    if said[0].startswith("raised "):
        return f"a session with {provider} fails: {said[0].removeprefix('raised ')}"
    return f"a session with {provider} killed its process (exit code {child.returncode})"
