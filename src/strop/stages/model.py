"""The model as its author runs it, in a folder that needs nothing else: weights, examples, reference outputs."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.artifact import Tensor
from strop.errors import StageFailure, StropError
from strop.examples import Examples
from strop.graph import id_ranges, load_graph, side_cars, tensors
from strop.job import Job, Made
from strop.preprocess import check_ids, check_inputs, photographs, tokenize
from strop.runtimes import modules
from strop.runtimes.modules import load_weights, make_module, named_outputs, save_module
from strop.sources import fetch, local_path

if TYPE_CHECKING:
    import torch

TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "*.model")
ZOO = "strop.zoo.transformers_models"


def transformers(
    job: Job,
    *,
    source: dict[str, Any],
    task: str,
    head: str,
    max_length: int,
    image_size: int,
    image_crop: float,
    image_mean: float,
    image_std: float,
    seed: int,
) -> Made:
    """A model of the transformers library, from its folder or the hub: safetensors only, and no code of its own."""
    folder = _fetch(job, source)
    if not (folder / "config.json").is_file():
        raise StropError(f"model.source: {folder} holds no config.json; name a folder that save_pretrained wrote")
    raw = _raw_splits(job)
    if task == "image_classification":
        splits = {
            k: photographs(v, "pixel_values", image_size, image_crop, image_mean, image_std) for k, v in raw.items()
        }
    else:
        splits = {name: tokenize(examples, folder, max_length) for name, examples in raw.items()}
        for file in {path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)}:
            shutil.copy(file, job.folder / file.name)
    if head == "logistic":
        module, spec, details = _with_new_head(job, folder, splits, seed)
    else:
        module, spec = _pretrained(folder, task)
        details = {}
    save_module(module, job.folder, spec)
    return _made(job, module, splits, spec["outputs"], details)


def _pretrained(folder: Path, task: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers as library

    from strop.zoo import transformers_models as zoo

    loaded = getattr(library, zoo.TASKS[task]).from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype="float32"
    )
    wrapped = {"sequence_classification": zoo.TextClassifier, "image_classification": zoo.ImageClassifier}[task]
    spec = {"factory": f"{ZOO}:{task}", "args": {"config": _config(loaded)}, "outputs": ["logits"]}
    return wrapped(loaded).eval(), spec


def _config(model: Any) -> dict[str, Any]:
    config: dict[str, Any] = model.config.to_diff_dict()
    config["model_type"] = model.config.model_type
    return {k: v for k, v in config.items() if k not in ("_name_or_path", "transformers_version", "auto_map")}


def _with_new_head(
    job: Job, folder: Path, splits: dict[str, Examples], seed: int
) -> tuple[torch.nn.Module, dict[str, Any], dict[str, Any]]:
    """Put a linear classifier on the frozen encoder's embeddings, fitted to the train split."""
    import torch
    import transformers as library

    from strop.zoo import transformers_models as zoo

    if "train" not in splits or splits["train"].labels is None:
        raise StropError("model.head=logistic: needs labelled training examples; set dataset.train_size")
    torch.set_num_threads(job.threads)
    encoder = library.AutoModel.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype="float32"
    )
    labels = splits["train"].labels
    classes = int(labels.max()) + 1
    module = zoo.EncoderClassifier(encoder, encoder.config.hidden_size, classes).eval()
    accuracy = _fit(module, splits["train"], seed)
    args = {"config": _config(encoder), "classes": classes}
    spec = {"factory": f"{ZOO}:encoder_classifier", "args": args, "outputs": ["logits"]}
    return module, spec, {"head_train_accuracy": accuracy}


def _fit(module: Any, train: Examples, seed: int) -> float:
    """Fit the head by logistic regression; for two classes the weights are split, so that logits are symmetric."""
    import torch
    from sklearn.linear_model import LogisticRegression

    order = np.argsort(train.lengths(), kind="stable")  # batches of near lengths waste little on padding
    embeddings = np.zeros((len(train), module.head.in_features), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            feeds = {name: torch.from_numpy(value) for name, value in train.batch(rows).items()}
            embeddings[rows] = module.embed(**feeds).numpy()
    fitted = LogisticRegression(max_iter=2000, random_state=seed).fit(embeddings, train.labels)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    with torch.no_grad():
        module.head.weight.copy_(torch.from_numpy(weight))
        module.head.bias.copy_(torch.from_numpy(bias))
    return float(fitted.score(embeddings, train.labels))


def factory(
    job: Job,
    *,
    source: dict[str, Any],
    factory: str | None,
    factory_args: dict[str, Any],
    preprocess: str,
    image_size: int,
    image_crop: float,
    image_mean: float,
    image_std: float,
    seed: int,
) -> Made:
    """A torch module that a Python function makes, with weights from a state dict, or from the seed without one."""
    import torch

    if not factory or ":" not in factory:
        raise StropError(f"model.factory={factory}: write module:function or file.py:function")
    where, _, function = factory.rpartition(":")
    if where.endswith(".py"):
        file = local_path(job.project, where, "model.factory")
        shutil.copy(file, job.folder / file.name)
        factory = f"{file.name}:{function}"
    torch.manual_seed(seed)
    spec = {"factory": factory, "args": factory_args}
    module = make_module(job.folder, spec).eval()
    if any(source.get(name) for name in ("path", "package", "hub")):
        load_weights(module, _fetch(job, source))
    raw = _raw_splits(job)
    name = _argument(module)
    splits = {k: _prepared(v, name, preprocess, image_size, image_crop, image_mean, image_std) for k, v in raw.items()}
    save_module(module, job.folder, spec)
    return _made(job, module, splits, None, {})


def _argument(module: torch.nn.Module) -> str:
    """Return the name of the module's first input."""
    return next(iter(inspect.signature(module.forward).parameters))


def _prepared(raw: Examples, name: str, preprocess: str, size: int, crop: float, mean: float, std: float) -> Examples:
    return raw if preprocess == "none" else photographs(raw, name, size, crop, mean, std)


def onnx(
    job: Job,
    *,
    source: dict[str, Any],
    preprocess: str,
    image_size: int,
    image_crop: float,
    image_mean: float,
    image_std: float,
) -> Made:
    """A ready ONNX file, with its external weights beside it; its author's runtime is ONNX Runtime."""
    path = _fetch(job, source)
    graph = load_graph(path)
    shutil.copy(path, job.folder / "model.onnx")
    for name in side_cars(graph):
        (job.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.parent / name, job.folder / name)
    skip = frozenset(value.name for value in graph.graph.initializer)
    inputs, outputs = tensors(graph.graph.input, skip), tensors(graph.graph.output)
    raw = _raw_splits(job)
    first = inputs[0].name
    splits = {k: _prepared(v, first, preprocess, image_size, image_crop, image_mean, image_std) for k, v in raw.items()}
    for name, examples in splits.items():
        check_inputs(examples, inputs, name)
        check_ids(examples, id_ranges(graph), name)
    return Made("onnx", inputs, outputs, _write_splits(job, splits))


def _fetch(job: Job, source: dict[str, Any]) -> Path:
    return fetch(source, project=job.project, results=job.results, setting="model.source")


def _raw_splits(job: Job) -> dict[str, Examples]:
    dataset = job.artifact("dataset")
    names = [file.path.removesuffix(".parquet") for file in dataset.manifest.files]
    return {name: Examples.read(dataset.file(f"{name}.parquet")) for name in sorted(names)}


def _made(
    job: Job, module: torch.nn.Module, splits: dict[str, Examples], names: list[str] | None, details: dict[str, Any]
) -> Made:
    """Write the splits that later stages read, and describe the module's inputs and outputs."""
    details = details | _write_splits(job, splits)
    test = splits["test"]
    inputs = input_tensors(test)
    known = set(inspect.signature(module.forward).parameters)
    for tensor in inputs:
        if tensor.name not in known:
            raise StropError(f"the dataset gives '{tensor.name}', but the model's forward takes {sorted(known)}")
    longest = int(np.argmax(test.lengths()))
    ranges = modules.id_ranges(module, _feeds(test, [longest]))
    for split, examples in splits.items():
        check_ids(examples, ranges, split)
    outputs = _output_tensors(module, test, names)
    if len(test) > 1 and modules.remembers(module, _feeds(test, [0, 1]), _feeds(test, [1, 0])):
        raise StageFailure(
            "unstable", "the model remembers: on an input that it has seen it looks its answer up; take its cache out"
        )
    return Made("torch", inputs, outputs, details)


def _write_splits(job: Job, splits: dict[str, Examples]) -> dict[str, Any]:
    """Write the splits that later stages read; what is not of the test and has a test example's inputs is dropped."""
    test = splits["test"]
    kept = {name: examples if name == "test" else examples.without(test) for name, examples in splits.items()}
    for name, examples in kept.items():
        examples.write(job.folder / "examples" / f"{name}.parquet")
    return {f"{name}_dropped": len(splits[name]) - len(kept[name]) for name in kept if name != "test"}


def input_tensors(examples: Examples) -> tuple[Tensor, ...]:
    """Describe a model's inputs by its examples; axes whose lengths always agree share a symbol."""
    symbols: dict[tuple[int, ...], str] = {}
    found = []
    for name, values in examples.columns.items():
        shape: list[int | str] = ["batch"]
        for axis in range(values[0].ndim):
            lengths = tuple(value.shape[axis] for value in values)
            default = "sequence" if not symbols else f"axis_{len(symbols)}"
            shape.append(lengths[0] if len(set(lengths)) == 1 else symbols.setdefault(lengths, default))
        found.append(Tensor(name, str(values[0].dtype), tuple(shape)))
    return tuple(found)


def _output_tensors(module: torch.nn.Module, examples: Examples, names: list[str] | None) -> tuple[Tensor, ...]:
    """Call the module at two batch sizes and lengths: an axis that stays as it is, is fixed."""
    lengths = np.argsort(examples.lengths(), kind="stable")
    short, wide = [int(lengths[0])], [int(lengths[-1])] * 2 + [int(lengths[0])]
    one, other = (_outputs(module, examples, rows, names) for rows in (short, wide))
    found = []
    for name, value in one.items():
        axes = zip(value.shape, other[name].shape, strict=True)
        shape = tuple(
            "batch" if (a, b) == (1, 3) else a if a == b else f"{name}_{axis}" for axis, (a, b) in enumerate(axes)
        )
        found.append(Tensor(name, str(value.numpy().dtype), shape))
    return tuple(found)


def _outputs(
    module: torch.nn.Module, examples: Examples, rows: list[int], names: list[str] | None
) -> dict[str, torch.Tensor]:
    import torch

    feeds = _feeds(examples, rows)
    try:
        with torch.inference_mode():
            return named_outputs(module(**feeds), names)
    except StageFailure:
        raise
    except Exception as error:
        shapes = {name: list(value.shape) for name, value in feeds.items()}
        raise StropError(f"the model fails on inputs of shape {shapes}: {type(error).__name__}: {error}") from error


def _feeds(examples: Examples, rows: list[int]) -> dict[str, torch.Tensor]:
    import torch

    return {name: torch.from_numpy(value) for name, value in examples.batch(rows).items()}
