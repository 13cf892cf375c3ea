"""What a device really gives: asked of the driver and of a session, never of a list of providers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from functools import lru_cache

PROVIDER_TIMEOUT_S = 120.0

_CHILD = """
import sys
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [value("x")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
ort.set_default_logger_severity(4)
options = ort.SessionOptions()
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
    """Return why there is no CUDA device here, or None if the driver reports one; only the driver is loaded."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver on this machine (libcuda.so.1 does not load)"
    code = driver.cuInit(0)
    if code != 0:
        return f"the CUDA driver does not start (cuInit gives {code})"
    count = ctypes.c_int(0)
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value < 1:
        return "the CUDA driver reports no device"
    return None


@lru_cache
def provider_problem(provider: str) -> str | None:
    """Return why ONNX Runtime does not give a session on `provider`, or None if a small one really got it.

    Args:
        provider: such as `CUDAExecutionProvider`.

    A child process makes the session, because a provider that lacks its libraries may take the process with it.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, provider], capture_output=True, text=True, timeout=PROVIDER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"a session with {provider} did not start within {PROVIDER_TIMEOUT_S:.0f} s"
    said = child.stdout.strip().splitlines()[-1:] or [""]
    if said[0].startswith("got "):
        got = said[0].removeprefix("got ").split(",")
        return None if provider in got else f"a session asked for {provider} got {', '.join(got)}"
    if said[0].startswith("raised "):
        return f"a session with {provider} fails: {said[0].removeprefix('raised ')}"
    return f"a session with {provider} killed its process (exit code {child.returncode})"
