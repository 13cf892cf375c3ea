"""What there is on this machine: for `strop doctor`, as tables or as one JSON object."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from strop import machine
from strop.options import OPTIONS
from strop.requirements import BUILDS, declared, lacks, provider_mend
from strop.runtimes import probe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_OPENVINO = """
import json, openvino
core = openvino.Core()
name = lambda device: core.get_property(device, "FULL_DEVICE_NAME")
types = lambda device: list(core.get_property(device, "OPTIMIZATION_CAPABILITIES"))
print(json.dumps({device: [name(device), *types(device)] for device in core.available_devices}))
"""
_TORCH = """
import json, torch
print(json.dumps({
    "threads": torch.get_num_threads(),
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    "built_for_cuda": torch.version.cuda,
    "cuda_devices": torch.cuda.device_count() if torch.version.cuda else 0,
}))
"""
_PROVIDERS = "import json, onnxruntime; print(json.dumps({'built_in': onnxruntime.get_available_providers()}))"
_TENSORRT = "import json, tensorrt; print(json.dumps({'version': tensorrt.__version__}))"


def examine() -> dict[str, Any]:
    """Return all that is known of this machine as JSON values.

    `machine`: facts, and what its instruction sets mean; `gpu`: `devices` of the driver, and the `reason` if there is
    none; `versions`: distribution -> version or null; `runtimes`: what each says in a child process, or its `reason`;
    `options`: for each `stage` and `option` the `device` it was asked for and what is `missing`: pairs of `what` and
    `mend`.
    """
    facts = machine.machine_facts()
    return {
        "machine": {**facts, "meaning": meaning(facts["architecture"], set(facts["instruction_sets"]))},
        "gpu": _gpu(),
        "versions": {"strop": machine.version("strop")} | {name: machine.version(name) for name in sorted(declared())},
        "runtimes": {"onnxruntime": _onnxruntime(), "openvino": _asked("openvino", _OPENVINO),
                     "torch": _asked("torch", _TORCH), "tensorrt": _asked("tensorrt", _TENSORRT)},
        "options": [_option(item) for item in OPTIONS.values()],
    }  # fmt: skip


def meaning(architecture: str, sets: set[str]) -> dict[str, str]:
    """Return what a CPU's instruction sets (as /proc/cpuinfo spells them) mean for `int8` and `bf16`."""
    if architecture not in ("x86_64", "AMD64"):
        return {"int8": "sums of int8 products do not saturate", "bf16": "not known for this architecture"}
    int8 = (
        "VNNI: sums of int8 products in 32 bits; quantize.reduce_range=false is safe"
        if sets & machine.VNNI
        else "no VNNI: pairs of int8 products are added in 16 bits and saturate; "
        "keep 7-bit weights (quantize.reduce_range=true)"
    )
    bf16 = (
        "products of bfloat16 in hardware"
        if "avx512_bf16" in sets
        else "no bfloat16 products in hardware: it saves memory, and hardly time"
    )
    return {"int8": int8, "bf16": bf16}


def _gpu() -> dict[str, Any]:
    reason = probe.cuda_problem()
    return {"reason": reason, **(probe.cuda_devices() if reason is None else {"driver": None, "devices": []})}


def _asked(package: str, code: str) -> dict[str, Any]:
    if importlib.util.find_spec(package) is None:
        return {"reason": "not installed"}
    answer = probe.ask(code)
    return {"reason": answer} if isinstance(answer, str) else answer


def _onnxruntime() -> dict[str, Any]:
    """Return provider -> `a session got it`, or why not: a list of providers is no evidence."""
    found = _asked("onnxruntime", _PROVIDERS)
    if "reason" in found:
        return found
    providers = {}
    for provider in dict.fromkeys([*found["built_in"], *BUILDS]):
        reason = probe.provider_problem(provider)
        mend = provider_mend(provider) if provider not in found["built_in"] else ""
        providers[provider] = "a session got it" if reason is None else "; ".join(filter(None, (reason, mend)))
    return providers


def _option(item: Any) -> dict[str, Any]:
    kind = item.device or "cpu"
    missing = [lack._asdict() for lack in lacks(item, kind)]
    return {"stage": item.stage, "option": item.name, "device": kind, "available": not missing, "missing": missing}


def print_doctor(found: dict[str, Any], console: Console) -> None:
    """Print what `examine` found as tables."""
    facts = found["machine"]
    rows = {
        "CPU": f"{facts['cpu']} ({facts['architecture']})",
        "cores": f"{facts['cores']}",
        "memory": f"{facts['memory_bytes'] / 2**30:.1f} GiB",
        "instruction sets": ", ".join(facts["instruction_sets"]) or "none of those that matter here",
        **facts["meaning"],
        "GPU": found["gpu"]["reason"] or ", ".join(found["gpu"]["devices"]),
        **({"CUDA driver": found["gpu"]["driver"]} if found["gpu"]["driver"] else {}),
        "Python": facts["python"],
    }
    _print(console, "Machine", ("", ""), rows.items())
    told = [(name, key, _words(value)) for name, said in found["runtimes"].items() for key, value in said.items()]
    _print(console, "Runtimes", ("runtime", "", ""), told)
    versions = [(name, number or "not installed") for name, number in found["versions"].items()]
    _print(console, "Versions", ("package", "version"), versions)
    options = [(entry["stage"], entry["option"], entry["device"], _state(entry)) for entry in found["options"]]
    _print(console, "Options", ("stage", "option", "device", "here"), options)


def _state(entry: dict[str, Any]) -> str:
    lines = ["; ".join(filter(None, (lack["what"], lack["mend"]))) for lack in entry["missing"]]
    return "\n".join(lines) or "available"


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "no" if value is None else str(value)


def _print(console: Console, title: str, columns: tuple[str, ...], rows: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table: Table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
