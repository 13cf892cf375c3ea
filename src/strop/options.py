"""The registry of options: what each accepts, returns and requires. The functions are in `strop.stages.<stage>`.

The plan reads only this, so it decides what can work before anything heavy is imported.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field

from strop.errors import StropError, nearest
from strop.ids import PACKAGE

CHAIN_STAGES = ("model", "prune", "export", "optimize", "quantize", "compile", "engine")
TRANSFORMS = CHAIN_STAGES[1:]
NEEDS_ENGINE = frozenset({"onnx", "openvino"})


@dataclass(frozen=True)
class Option:
    """One way to do a stage.

    Attributes:
        accepts: formats it takes; empty for options at the start of a chain.
        returns: format it gives; `None`: the one it took.
        requires: Python packages that must be installed.
        device: `cuda` if it needs such a device.
        before: options (as `stage` or `stage=option`) that cannot follow it, each with the reason.
        uses_calibration: it reads calibration examples.
        part: module of the stage's package that holds its function; empty: the stage is one module.
    """

    stage: str
    name: str
    accepts: tuple[str, ...] = ()
    returns: str | None = None
    requires: tuple[str, ...] = ()
    device: str | None = None
    before: dict[str, str] = field(default_factory=dict)
    uses_calibration: bool = False
    part: str = ""

    @property
    def module(self) -> str:
        """Name of the module that holds the option's function."""
        return f"strop.stages.{self.stage}" + (f".{self.part}" if self.part else "")


_TORCHAO = "torchao's packed tensors have no form there"
_BF16 = "its bfloat16 operators have no kernels there"


def _torchao(name: str, device: str | None = None) -> Option:
    cannot = {"export": _TORCHAO, "compile=torchscript": _TORCHAO}
    return Option("quantize", name, ("torch",), "torch", ("torch", "torchao"), device, cannot, part="torch")


def _nncf(name: str, uses_calibration: bool = False) -> Option:
    needs = ("nncf", "openvino")
    return Option("quantize", name, ("onnx",), "openvino", needs, uses_calibration=uses_calibration, part="openvino")


OPTIONS: dict[tuple[str, str], Option] = {
    (option.stage, option.name): option
    for option in (
        Option("dataset", "reviews"),
        Option("dataset", "photos", requires=("PIL",)),
        Option("dataset", "blobs"),
        Option("dataset", "arrays"),
        Option("dataset", "texts"),
        Option("model", "transformers", returns="torch", requires=("torch", "transformers")),
        Option("model", "factory", returns="torch", requires=("torch",)),
        Option("model", "onnx", returns="onnx", requires=("onnx", "onnxruntime")),
        Option("prune", "magnitude", ("torch",), "torch", ("torch",), part="sparse"),
        Option("prune", "two_four", ("torch",), "torch", ("torch",), part="sparse"),
        Option("prune", "structured", ("torch",), "torch", ("torch", "torch_pruning"), part="structured"),
        Option("export", "onnx", ("torch",), "onnx", ("torch", "onnx", "onnxscript", "onnxruntime")),
        Option("export", "optimum", ("torch",), "onnx", ("torch", "optimum", "onnxruntime")),
        Option("optimize", "onnxslim", ("onnx",), "onnx", ("onnx", "onnxslim")),
        Option("optimize", "ort_transformers", ("onnx",), "onnx", ("onnx", "onnxruntime", "sympy")),
        Option("optimize", "onnxscript_fusions", ("onnx",), "onnx", ("onnx", "onnxscript")),
        Option("optimize", "conv_bn", ("torch",), "torch", ("torch",)),
        Option("quantize", "ort_int8_dynamic", ("onnx",), "onnx", ("onnx", "onnxruntime"), part="onnx_int8"),
        Option(
            "quantize",
            "ort_int8_static",
            ("onnx",),
            "onnx",
            ("onnx", "onnxruntime"),
            uses_calibration=True,
            part="onnx_int8",
        ),
        Option(
            "quantize",
            "sensitivity",
            ("onnx",),
            "onnx",
            ("onnx", "onnxruntime"),
            uses_calibration=True,
            part="onnx_int8",
        ),
        Option("quantize", "ort_int4", ("onnx",), "onnx", ("onnx", "onnxruntime"), part="onnx_weights"),
        Option("quantize", "ort_int8_weights", ("onnx",), "onnx", ("onnx", "onnxruntime"), part="onnx_weights"),
        Option("quantize", "onnx_fp16", ("onnx",), "onnx", ("onnx", "onnxruntime", "onnx_ir"), part="onnx_float"),
        Option("quantize", "onnx_bf16", ("onnx",), "onnx", ("onnx", "onnxruntime", "onnx_ir"), part="onnx_float"),
        _nncf("nncf_int8", uses_calibration=True),
        _nncf("nncf_accuracy", uses_calibration=True),
        _nncf("nncf_weights"),
        _torchao("torchao_int8_dynamic"),
        _torchao("torchao_int8_weights"),
        _torchao("torchao_int4_weights"),
        _torchao("torchao_fp8_weights"),
        _torchao("torchao_fp8", device="cuda"),
        Option("quantize", "bf16", ("torch",), "torch", ("torch",), before={"export": _BF16}, part="torch"),
        Option("compile", "torchscript", ("torch",), "torchscript", ("torch",)),
        Option("compile", "inductor", ("torch",), "torch_compile", ("torch",)),
        Option("compile", "torch_export", ("torch",), "torch_export", ("torch",)),
        Option("compile", "aot_inductor", ("torch",), "aot_inductor", ("torch",)),
        Option("engine", "onnxruntime", ("onnx",), "ort", ("onnxruntime",)),
        Option("engine", "onnxruntime_cuda", ("onnx",), "ort", ("onnxruntime",), device="cuda"),
        Option("engine", "onnxruntime_tensorrt", ("onnx",), "ort", ("onnxruntime",), device="cuda"),
        Option("engine", "onnxruntime_openvino", ("onnx",), "ort", ("onnxruntime",)),
        Option("engine", "openvino", ("onnx", "openvino"), "openvino", ("openvino",)),
        Option("engine", "openvino_blob", ("onnx", "openvino"), "openvino", ("openvino",)),
        Option("engine", "tensorrt", ("onnx",), "tensorrt", ("tensorrt",), device="cuda"),
        Option("evaluate", "classification"),
        Option("benchmark", "single_stream"),
        Option("benchmark", "offline"),
        Option("profile", "operators"),
    )
}


def option(stage: str, name: str) -> Option:
    """Return the option `name` of `stage`.

    Raises:
        StropError: there is none; the message names the nearest one.
    """
    if (stage, name) not in OPTIONS:
        names = [known for of, known in OPTIONS if of == stage]
        raise StropError(f"{stage}.method '{name}' is not known; {nearest(name, names)}")
    return OPTIONS[stage, name]


@functools.cache
def reads(stage: str, method: str) -> tuple[str, ...]:
    """Return the settings that an option's function takes: its keyword-only parameters, read without importing it."""
    module = option(stage, method).module
    path = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == method:
            return tuple(argument.arg for argument in node.args.kwonlyargs)
    raise LookupError(f"{module} has no function '{method}'")
