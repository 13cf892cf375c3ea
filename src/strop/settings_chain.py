"""Settings of the stages that make an artifact, from the model to the engine; `strop.settings` holds the rest."""

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
class Recover:
    """Training after pruning, on the train split: what was removed stays removed."""

    epochs: int = setting(0, "times through the train split; 0: no training [1]")
    learning_rate: float = setting(
        5e-5, "of AdamW, at its highest: it rises over the first tenth of the steps, then falls to 0"
    )
    batch_size: int = setting(32, "examples of one step [1]")
    distill: float = setting(0.5, "share of the loss that follows the reference's answers; the rest follows labels [1]")
    temperature: float = setting(2.0, "divides the logits that are compared with the reference's [1]")
    held_out: float = setting(0.1, "share of the train split that chooses the best epoch, and is not trained on [1]")
    seed: int = setting(0, "seed of what is held out, of the order, and of dropout")


@dataclass(frozen=True)
class Prune(Stage):
    """Take weights out, as zeros or for good."""

    amount: float = setting(0.0, "magnitude, structured: share of the weights or channels that go [1]")
    scope: str = setting(
        "global",
        "magnitude, structured: `global`: one threshold for all layers; `layer`: the same share of each layer",
        ("global", "layer"),
    )
    round_to: int = setting(
        8, "structured: channels that stay in a layer are a multiple of this; narrower layers stay whole [1]"
    )
    keep: list[str] = setting(
        list, "structured: names of layers whose channels all stay; `*` stands for any letters, `?` for one"
    )
    recover: Recover = setting(Recover, "training afterwards")
    min_cosine: float = setting(0.5, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Export(Stage):
    """Write the torch model as a graph file."""

    opset: int = setting(18, "version of ONNX's operator set")
    min_cosine: float = setting(0.999, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Optimize(Stage):
    """Rewrite the graph without changing what it computes."""

    model_type: str = setting(
        "auto",
        "ort_transformers: whose patterns to look for; `auto`: by the model's configuration, else `bert`",
        ("auto", "bart", "bert", "clip", "gpt2", "gpt_neox", "phi", "qwen3", "swin", "t5", "vit"),
    )
    num_heads: int = setting(0, "ort_transformers: attention heads; 0: by the model's configuration or its graph [1]")
    hidden_size: int = setting(0, "ort_transformers: width of the states; 0: as `num_heads` [1]")
    level: str = setting(
        "extended",
        "ort_transformers: ONNX Runtime's own fusions that come first: `disabled`, `basic` or `extended`",
        ("disabled", "basic", "extended"),
    )
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
    calibration_percentile: float = setting(
        99.999, "ort_int8_static by `percentile`: share of a tensor's values that its range holds [%]"
    )
    activation_type: str = setting(
        "uint8", "ort_int8_static: type of the quantized activations: `uint8` or `int8`", ("uint8", "int8")
    )
    op_types: list[str] = setting(list, "operators to quantize; empty: all that the library knows")
    reduce_range: bool = setting(True, "7-bit weights: no saturation on CPUs with AVX2 but without VNNI")
    block_size: int = setting(
        32,
        "ort_int4, ort_int8_weights, and torchao_int4_weights and nncf_weights in 4 bits: weights that share a scale; "
        "for the first two 16, 32, 64, 128 or 256 [1]",
    )
    symmetric: bool = setting(False, "ort_int4, ort_int8_weights: no zero points beside the scales")
    accuracy_level: str = setting(
        "auto",
        "ort_int4, ort_int8_weights: least precision of the activations inside of a product; `auto`: float32",
        ("auto", "f32", "f16", "bf16", "int8"),
    )
    keep_float: list[str] = setting(
        list, "ONNX options: names of nodes that stay in float32; `*` stands for any letters, `?` for one"
    )
    keep_sensitive: int = setting(
        0,
        "ONNX options: so many layers stay in float32, those that lose most when they alone are quantized; "
        "measured on calibration examples [1]",
    )
    sensitivity_file: Optional[str] = setting(
        None, "with keep_sensitive: a sensitivity.json of an earlier run, relative to the project; nothing is measured"
    )
    sensitivity_time_s: float = setting(300.0, "longest time of measuring which layers lose most [s]")
    model_type: str = setting(
        "auto",
        "nncf: `transformer` treats attention and its masks with care; `auto`: if the graph has attention",
        ("auto", "none", "transformer"),
    )
    smooth_quant_alpha: float = setting(
        0.95,
        "nncf_int8, nncf_accuracy, in transformers: SmoothQuant's share of the range that moves from activations into "
        "weights, 0 to 1; below 0: none [1]",
    )
    max_drop: float = setting(
        0.01, "nncf_accuracy: loss of accuracy on the calibration examples down to which layers return to float [1]"
    )
    weight_mode: str = setting(
        "int8_asym",
        "nncf_weights: bits of the weights, with a zero point beside the scale (`asym`) or without (`sym`)",
        ("int8_asym", "int8_sym", "int4_asym", "int4_sym"),
    )
    int4_ratio: float = setting(1.0, "nncf_weights in 4 bits: share of the weights that get them; others get 8 [1]")
    all_layers: bool = setting(False, "nncf_weights in 4 bits: embeddings and the last layer get them, too, not 8")
    data_aware: str = setting(
        "none",
        "nncf_weights in 4 bits: what chooses scales by calibration examples: `awq` or `scale_estimation`",
        ("none", "awq", "scale_estimation"),
    )
    min_cosine: float = setting(0.9, "outputs less like the reference's than this are `wrong_output` [1]")


@dataclass(frozen=True)
class Compile(Stage):
    """Compile the torch model."""

    dynamic: bool = setting(True, "one program for all shapes instead of one per shape")
    mode: str = setting(
        "default",
        "torch.compile's mode: `reduce-overhead` captures CUDA graphs, `max-autotune` times kernels while it compiles",
        ("default", "reduce-overhead", "max-autotune"),
    )
    optimize_for_inference: bool = setting(
        False, "TorchScript: weights in the layout of the CPU's library, fused operators; done each time it is loaded"
    )
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
    file_format: str = setting(
        "onnx", "ONNX Runtime: `onnx`, or `ort`, which a build without ONNX's reader loads, too", ("onnx", "ort")
    )
    spinning: bool = setting(True, "ONNX Runtime: threads without work wait awake for a while before they sleep")
    execution: str = setting(
        "sequential",
        "ONNX Runtime: `sequential`: all threads in one operator; `parallel`: one each, branches side by side",
        ("sequential", "parallel"),
    )
    performance_hint: str = setting(
        "none",
        "OpenVINO: lets it choose `streams` for one call's time or for many calls at once",
        ("none", "latency", "throughput"),
    )
    streams: int = setting(1, "OpenVINO, without a performance hint: calls at once that share the threads [1]")
    workspace_bytes: int = setting(2**30, "TensorRT: scratch memory that the builder may use [byte]")
    tf32: bool = setting(False, "TensorRT: products of float32 in TensorFloat-32, which keeps 10 bits of each factor")
    min_cosine: float = setting(
        0.999,
        "outputs less like the reference's than this are `wrong_output`; a lower value of a step before holds on [1]",
    )
