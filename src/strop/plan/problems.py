"""Why an option cannot work on this machine: a package, a device, or a provider that a session did not get."""

from __future__ import annotations

from strop.machine import missing_package
from strop.options import Option

PROVIDERS = {
    "onnxruntime_cuda": "CUDAExecutionProvider",
    "onnxruntime_tensorrt": "TensorrtExecutionProvider",
    "onnxruntime_openvino": "OpenVINOExecutionProvider",
}


def option_problem(item: Option, kind: str) -> str | None:
    """Return the reason why `item` cannot run on a device of `kind`, or None."""
    from strop.runtimes.probe import cuda_problem, provider_problem

    if (item.device == "cuda" or kind == "cuda") and (reason := cuda_problem()):
        return reason
    if item.device == "cuda" and kind != "cuda":
        return f"runs on CUDA, and device.kind is {kind}; add device=cuda"
    if reason := missing_package(item.requires):
        return reason
    return provider_problem(PROVIDERS[item.name]) if item.name in PROVIDERS else None
