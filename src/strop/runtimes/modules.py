"""Modules of PyTorch as files: what an artifact of format `torch` holds.

`model.json` says how to make the module, with the keys of `SPEC`: `factory` is `module:function`, or
`file.py:function` with the file in the artifact; `args` its keyword arguments; `outputs` the names of what it returns,
or null; `dtype` null or `bfloat16`; `quantize` null or a key of `QUANTIZED`; `rewrites` the changes of its layers
(`strop.runtimes.rewrites`) in order. The weights lie beside it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from strop.artifact import Artifact
from strop.errors import StageFailure, StropError, one_line
from strop.runtimes.rewrites import rewrite

if TYPE_CHECKING:
    import torch

SPEC: dict[str, Any] = {
    "factory": None,
    "args": {},
    "outputs": None,
    "dtype": None,
    "quantize": None,
    "rewrites": [],
}
# Quantize option -> precision of its weights; on a CPU torchao keeps a 4-bit value in a byte.
QUANTIZED = {
    "torchao_int8_dynamic": "int8",
    "torchao_int8_weights": "int8",
    "torchao_int4_weights": "int4",
    "torchao_fp8_weights": "fp8",
    "torchao_fp8": "fp8",
}
MODEL_FILE = "model.json"
WEIGHTS_FILE = "weights.safetensors"
ROOT = "module"  # before all names: torchao's support wants a dot in them
LOOKUPS = frozenset({"embedding", "_embedding_bag", "_embedding_bag_forward_only", "index"})


def save_module(module: torch.nn.Module, folder: Path, spec: dict[str, Any]) -> None:
    """Write `module` into `folder` as the files of a `torch` artifact.

    Args:
        module: what `spec`'s factory returns, with the weights to keep; shared (tied) tensors are stored once.
        folder: made if it is not there. A factory's own `file.py` is the caller's to put there.
        spec: keys of `SPEC`; missing ones take its values.

    Raises:
        ValueError: `spec` has an unknown key, or no factory.
    """
    from safetensors.torch import save_model

    if not spec.get("factory") or spec.keys() - SPEC.keys():
        raise ValueError(f"a module's spec has a factory and the keys {sorted(SPEC)}, not {sorted(spec)}")
    folder.mkdir(parents=True, exist_ok=True)
    full = {**SPEC, **spec}
    (folder / MODEL_FILE).write_text(json.dumps(full, indent=1) + "\n", encoding="utf-8")
    if full["quantize"]:
        _save_quantized(module, folder / WEIGHTS_FILE)
    else:
        save_model(module, str(folder / WEIGHTS_FILE))


def _save_quantized(module: torch.nn.Module, path: Path) -> None:
    """Write a module with torchao's tensors: their parts as plain tensors, how they belong together as metadata.

    `torch.save` would pickle torchao's enumerations, in a form that not every Python's `weights_only` loader takes.
    """
    from safetensors.torch import save_file
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    state = {f"{ROOT}.{name}": value for name, value in module.state_dict().items()}
    tensors, metadata = flatten_tensor_state_dict(state)
    save_file({name: value.clone().contiguous() for name, value in tensors.items()}, path, metadata)


def _load_quantized(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import safe_open
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        state, _ = unflatten_tensor_state_dict(tensors, file.metadata())
    return {name.removeprefix(f"{ROOT}."): value for name, value in state.items()}


def copy_module(source: Artifact, folder: Path) -> None:
    """Copy the files that `load_module` reads from one artifact into another's folder."""
    spec = read_spec(source)
    where = spec["factory"].rpartition(":")[0]
    for name in (MODEL_FILE, WEIGHTS_FILE, *([where] if where.endswith(".py") else [])):
        (folder / name).write_bytes(source.file(name).read_bytes())


def save_like(source: Artifact, module: torch.nn.Module, folder: Path, **changes: Any) -> None:
    """Write a changed module of an artifact into another's folder, with its factory; `changes` go into the spec."""
    spec = read_spec(source)
    where = spec["factory"].rpartition(":")[0]
    if where.endswith(".py"):
        (folder / where).write_bytes(source.file(where).read_bytes())
    save_module(module, folder, {**spec, **changes})


def read_spec(artifact: Artifact) -> dict[str, Any]:
    """Return what the artifact's `model.json` says, with all keys of `SPEC`."""
    return {**SPEC, **json.loads(artifact.file(MODEL_FILE).read_text(encoding="utf-8"))}


def load_module(artifact: Artifact) -> torch.nn.Module:
    """Make the artifact's module and load its weights; it is in eval mode and takes its inputs by keyword.

    Raises:
        StageFailure: `build_failed`: the factory or the weights do not load, or do not fit each other.
    """
    spec = read_spec(artifact)
    try:
        module = make_module(artifact.verify().folder, spec)
        rewrite(module, spec["rewrites"])
        _load_weights(module, artifact, spec)
    except StageFailure:
        raise
    except Exception as error:
        raise StageFailure("build_failed", f"{spec['factory']}: {one_line(error)}") from error
    return module.eval().requires_grad_(False)


def make_module(folder: Path, spec: dict[str, Any]) -> torch.nn.Module:
    """Call the factory of a spec; a `file.py` of it is in `folder`.

    Raises:
        StageFailure: `build_failed`: it cannot be called, or returns no module.
    """
    import torch

    where, _, name = spec["factory"].rpartition(":")
    try:
        code = _load_file(folder / where) if where.endswith(".py") else importlib.import_module(where)
        module = getattr(code, name)(**spec["args"])
    except Exception as error:
        raise StageFailure("build_failed", f"{spec['factory']}: {one_line(error)}") from error
    if not isinstance(module, torch.nn.Module):
        raise StageFailure("build_failed", f"{spec['factory']} returned {type(module).__name__}, not a torch module")
    return module


def _load_file(file: Path) -> ModuleType:
    """Run a user's file, and leave no bytecode beside it: an artifact holds what its manifest lists, no more."""
    found = importlib.util.spec_from_file_location(f"strop_factory_{file.parent.name}", file)
    assert found is not None
    assert found.loader is not None, "the name ends in .py"
    code = importlib.util.module_from_spec(found)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        found.loader.exec_module(code)
    finally:
        sys.dont_write_bytecode = before
    return code


def load_weights(module: torch.nn.Module, file: Path) -> None:
    """Load a state dict (`.safetensors`, or what `torch.save` wrote, without running code of it) into a module.

    Raises:
        StropError: it is no state dict, or its names or shapes are not the module's.
    """
    import torch
    from safetensors.torch import load_file

    try:
        state: Any
        if file.suffix == ".safetensors":
            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
        module.load_state_dict(state.get("state_dict", state))
    except Exception as error:
        raise StropError(f"{file.name}: its weights do not load into the module: {one_line(error, 200)}") from error


def _load_weights(module: torch.nn.Module, artifact: Artifact, spec: dict[str, Any]) -> None:
    import torch
    from safetensors.torch import load_model

    if spec["dtype"]:
        module.to(getattr(torch, spec["dtype"]))
    if spec["quantize"]:
        module.load_state_dict(_load_quantized(artifact.file(WEIGHTS_FILE)), assign=True)
    else:
        load_model(module, str(artifact.file(WEIGHTS_FILE)))


def named_outputs(value: Any, names: list[str] | None) -> dict[str, torch.Tensor]:
    """Return what a module returned as output name -> tensor.

    Args:
        value: a tensor, a list or tuple of tensors, or a mapping (such as transformers' `ModelOutput`) to tensors;
            entries that are None are left out.
        names: names of the outputs in order; None: the mapping's keys, or `output_0`, ...

    Raises:
        StageFailure: `wrong_output`: anything else, such as an object that would compute its values later.
    """
    import torch

    if isinstance(value, torch.Tensor):
        value = [value]
    if hasattr(value, "items"):
        found = {str(key): item for key, item in value.items() if item is not None}
        if names is not None and len(names) == len(found):
            found = dict(zip(names, found.values(), strict=True))
    elif isinstance(value, (list, tuple)):
        items = [item for item in value if item is not None]
        names = names or [f"output_{index}" for index in range(len(items))]
        if len(names) != len(items):
            raise StageFailure("wrong_output", f"the module returns {len(items)} outputs, {len(names)} have names")
        found = dict(zip(names, items, strict=True))
    else:
        found = {"output_0": value}
    for name, item in found.items():
        if not isinstance(item, torch.Tensor):
            kind = type(item).__name__
            raise StageFailure("wrong_output", f"output '{name}' is a {kind}, not a tensor: its work may come later")
    return found


def observe(module: torch.nn.Module, feeds: dict[str, torch.Tensor], note: Callable[[str, Any, Any], None]) -> None:
    """Call a module, and `note` with each tensor operator's name, arguments and result (None if it failed).

    An error of the module ends the call and is dropped: whoever needs the outputs meets it again.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = None
            try:
                result = func(*args, **(kwargs or {}))
                return result
            finally:
                note(func.overloadpacket.__name__, args, result)

    with torch.no_grad(), contextlib.suppress(Exception), Watch():  # type: ignore[no-untyped-call] # torch has no types here
        module(**feeds)


def id_ranges(module: torch.nn.Module, feeds: dict[str, torch.Tensor]) -> dict[str, tuple[int, int]]:
    """Return input -> smallest and largest id, for integer inputs that look up rows of the module's weights as given.

    Tensors are known by where their memory is; an input's copy in another type counts as the input.
    """
    import torch

    tables = {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers()]}
    whole = {name: value for name, value in feeds.items() if value.dtype in (torch.int32, torch.int64)}
    inputs = {value.data_ptr(): name for name, value in whole.items()}
    kept: list[torch.Tensor] = []  # so that nothing else comes to lie there
    found: dict[str, tuple[int, int]] = {}

    def note(operator: str, arguments: Any, result: Any) -> None:
        if operator == "_to_copy" and result is not None and arguments[0].data_ptr() in inputs:
            inputs[result.data_ptr()] = inputs[arguments[0].data_ptr()]
            kept.append(result)
        elif operator in LOOKUPS and arguments[0].data_ptr() in tables:
            ids = arguments[1][0] if isinstance(arguments[1], (list, tuple)) else arguments[1]
            name = inputs.get(ids.data_ptr()) if ids is not None else None
            if name is not None and ids.numel() == whole[name].numel() > 0:
                rows = min(int(arguments[0].shape[0]), found.get(name, (0, 2**63 - 1))[1] + 1)
                found[name] = (-rows if operator == "index" else 0, rows - 1)

    observe(module, feeds, note)
    return found


def remembers(module: torch.nn.Module, warm: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> bool:
    """Return whether a module does less at its second call on an input than at the first: it keeps its answers.

    Args:
        module: in eval mode.
        warm: input of the same shapes as `fresh`, and other values: what is set up once is set up with it.
        fresh: input that the module has not seen.
    """
    counts = []
    for feeds in (warm, fresh, fresh):
        done: list[str] = []
        observe(module, feeds, lambda operator, *_, done=done: done.append(operator))
        counts.append(len(done))
    return counts[2] < counts[1]


def precision_of(module: torch.nn.Module, spec: dict[str, Any]) -> str:
    """Return the lowest precision of a module's weights: `int4`, `int8`, `fp8`, `bf16`, `f16`, `f32` or `f64`."""
    import torch

    if spec["quantize"]:
        return QUANTIZED[spec["quantize"]]
    names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64"}
    used = {parameter.dtype for parameter in module.parameters()}
    return next((name for dtype, name in names.items() if dtype in used), "f32")


def in_float32(module: torch.nn.Module, spec: dict[str, Any]) -> Callable[..., Any]:
    """Return the module, or for a bfloat16 one a call that takes and gives float32 as the reference does."""
    import torch

    if not spec["dtype"]:
        return module
    low = getattr(torch, spec["dtype"])

    def run(**inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        cast = {name: value.to(low) if value.is_floating_point() else value for name, value in inputs.items()}
        outputs = named_outputs(module(**cast), spec["outputs"])
        return {name: value.float() if value.dtype == low else value for name, value in outputs.items()}

    return run
