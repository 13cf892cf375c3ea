"""Execution providers of ONNX Runtime: what each is told, and what each really took."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

CPU_PROVIDER = "CPUExecutionProvider"
CUDA_PROVIDER = "CUDAExecutionProvider"
TENSORRT_PROVIDER = "TensorrtExecutionProvider"
OPENVINO_PROVIDER = "OpenVINOExecutionProvider"
ON_CUDA = frozenset({CUDA_PROVIDER, TENSORRT_PROVIDER})
RECORD = "session.record_ep_graph_assignment_info"

Shapes = dict[str, tuple[list[int], list[int], list[int]]]


def given(details: dict[str, Any], threads: int) -> list[tuple[str, dict[str, str]]]:
    """Return the providers in an artifact's details, in order, each with what it is told for `threads` [1]."""
    options = details.get("provider_options", {})
    found = [(name, dict(options.get(name, {}))) for name in details.get("providers", [CPU_PROVIDER])]
    return [(name, told | _openvino(details, threads) if name == OPENVINO_PROVIDER else told) for name, told in found]


def _openvino(details: dict[str, Any], threads: int) -> dict[str, str]:
    """Its own options set no precision on CPUs, OpenVINO's do. Source: ONNX Runtime, "OpenVINO Execution Provider"."""
    config: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if details.get("hint", "f32") != "auto":
        config["INFERENCE_PRECISION_HINT"] = details.get("hint", "f32")
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": config})}


def tensorrt_options(folder: Path, timing: Path, shapes: Shapes, workspace_bytes: int) -> dict[str, str]:
    """Return what the TensorRT provider is told.

    Args:
        folder: for its engines: a session that finds them there does not build them anew.
        timing: folder for what it learnt of kernels, which later builds read.
        shapes: input -> smallest, usual and largest shape; within them no engine is built anew.
        workspace_bytes: scratch memory that its builder may use [byte].

    Source: ONNX Runtime, "TensorRT Execution Provider".
    """
    profiles = {
        name: ",".join(f"{tensor}:{'x'.join(map(str, sizes[at]))}" for tensor, sizes in shapes.items())
        for at, name in enumerate(("min", "opt", "max"))
    }
    return {
        "trt_max_workspace_size": str(workspace_bytes),
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(timing),
        **{f"trt_profile_{name}_shapes": text for name, text in profiles.items()},
    }


def nodes_by_provider(session: Any) -> dict[str, int] | None:
    """Return provider -> nodes of the graph that a session gave to it; None: it was not asked to record that."""
    try:
        parts = session.get_provider_graph_assignment_info()
    except Exception:  # an ONNX Runtime before 1.24 lacks it; others raise unless `RECORD` is set
        return None
    counts: Counter[str] = Counter()
    for part in parts:
        counts[part.ep_name] += len(part.get_nodes())
    return dict(counts) or None
