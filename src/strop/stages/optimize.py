"""Rewrite a graph without changing what it computes: fold, fuse, drop what nothing needs.

Each manifest says what became of the graph: `nodes_before` and `nodes` by type, and their difference, `fusions`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure, one_line
from strop.graph import compared, load_graph, node_counts, side_cars, tensors
from strop.job import Job, Made
from strop.runtimes.modules import load_module, read_spec, save_like
from strop.runtimes.onnxruntime import model_path
from strop.runtimes.rewrites import fold_norms
from strop.stages.compile import by_place, operators
from strop.stages.export import example_feeds

if TYPE_CHECKING:
    import torch

MODEL = "model.onnx"
# `model_type` of transformers' configurations -> the patterns for it in ONNX Runtime's optimizer (its MODEL_TYPES).
FAMILIES = {
    **dict.fromkeys(("albert", "camembert", "deberta", "distilbert", "electra", "mpnet", "roberta"), "bert"),
    **dict.fromkeys(("deit", "vit"), "vit"),
    **dict.fromkeys(("gpt_neo", "gpt2"), "gpt2"),
    **{name: name for name in ("bart", "bert", "clip", "gpt_neox", "phi", "qwen3", "swin", "t5")},
}


def onnxslim(job: Job) -> Made:
    """OnnxSlim: constants folded, shapes inferred, equal sub-graphs shared, Conv and what follows it merged."""
    from onnxslim import slim

    source = model_path(job.artifact("source").verify())
    return _written(job, source, slim(str(source)))


def ort_transformers(job: Job, *, model_type: str, num_heads: int, hidden_size: int, level: str) -> Made:
    """ONNX Runtime's optimizer for transformers: attention, layer and embedding normalization, GELU, each as one node.

    Its patterns are those of torch's TorchScript exporter.
    """
    from onnxruntime.transformers.optimizer import optimize_model

    source = model_path(job.artifact("source").verify())
    config = _config(job)
    family = FAMILIES.get(str(config.get("model_type")), "bert") if model_type == "auto" else model_type
    heads = num_heads or int(config.get("num_attention_heads") or config.get("n_head") or 0)
    size = hidden_size or int(config.get("hidden_size") or config.get("n_embd") or 0)
    levels = {"disabled": 0, "basic": 1, "extended": 2}
    optimized = optimize_model(str(source), family, heads, size, opt_level=levels[level])
    return _written(
        job, source, optimized.model, {"model_type": family, "num_heads": heads, "hidden_size": size, "level": level}
    )


def _config(job: Job) -> dict[str, Any]:
    """Return the configuration of a model of the transformers library; of others, nothing."""
    model = job.artifact("model")
    found = read_spec(model)["args"].get("config", {}) if model.manifest.format == "torch" else {}
    return found if isinstance(found, dict) else {}


def onnxscript_fusions(job: Job) -> Made:
    """ONNX Script's fusions for ONNX Runtime, made for what torch's dynamo exporter writes."""
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    source = model_path(job.artifact("source").verify())
    model, _ = optimize_for_ort(onnx_ir.load(str(source)))
    onnx_ir.external_data.load_to_model(model)  # weights beside the source would go on to be named there
    return _written(job, source, onnx_ir.to_proto(model))


def _written(job: Job, source: Path, model: Any, details: dict[str, Any] | None = None) -> Made:
    """Write an optimized model, with its weights beside it if the source has them there, and say what changed."""
    import onnx

    before = load_graph(source)
    beside = bool(side_cars(before))
    onnx.save(
        model, str(job.folder / MODEL), save_as_external_data=beside, location=f"{MODEL}.data" if beside else None
    )
    after = load_graph(job.folder / MODEL)
    found = {**compared(node_counts(before), node_counts(after)), **(details or {})}
    if not found["fusions"] and len(before.graph.initializer) == len(after.graph.initializer):
        reason = "it found nothing to change: the same operators, as often as before"
        found |= {"status": "no_effect", "status_reason": reason}
    constants = frozenset(tensor.name for tensor in after.graph.initializer)
    inputs = {tensor.name for tensor in tensors(after.graph.input, constants)}
    kept = tuple(tensor for tensor in job.artifact("source").manifest.inputs if tensor.name in inputs)
    return Made("onnx", kept, details=found)


def conv_bn(job: Job) -> Made:
    """PyTorch: batch normalization multiplied into the weights of the convolution or linear layer before it."""
    import torch

    source = job.artifact("source")
    module = load_module(source)
    graph = _graph_of(module, job)
    norms = sum(isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) for layer in module.modules())
    pairs = _norms_after_layers(module, graph)
    before = operators(graph)
    if not pairs:
        reason = f"none of {norms} batch normalizations follows a layer of its own" if norms else "it has none to fold"
        return Made("torch", details={**compared(before, before), "status": "no_effect", "status_reason": reason})
    folded = [_folded(module, *pair) for pair in pairs]
    fold_norms(module, pairs)
    for (name, _), (weight, bias) in zip(pairs, folded, strict=True):
        layer: Any = module.get_submodule(name)
        layer.weight, layer.bias = weight, bias
    rewrites = [*read_spec(source)["rewrites"], {"name": "fold_norms", "pairs": pairs}]
    save_like(source, module, job.folder, rewrites=rewrites)
    after = operators(_graph_of(module, job))
    return Made("torch", details={**compared(before, after), "folded": len(pairs), "norms": norms})


def _graph_of(module: torch.nn.Module, job: Job) -> Any:
    """Return the module's program as torch.export sees it: which result goes where, whatever the classes are."""
    import torch

    source = job.artifact("source")
    feeds = example_feeds(job, source.manifest.inputs)
    values = tuple(torch.from_numpy(feeds[tensor.name]) for tensor in source.manifest.inputs)
    try:
        return torch.export.export(by_place(module, source), values)
    except Exception as error:
        raise StageFailure("build_failed", f"torch.export: {one_line(error)}") from error


def _norms_after_layers(module: torch.nn.Module, program: Any) -> list[list[str]]:
    """Return names of layer and normalization, where the one's result goes to the other alone, and each works once."""
    import torch

    names = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    owners = {key: name.removeprefix("module.").rpartition(".")[0] for key, name in names.items()}
    calls = Counter(owners.get(node.name) for node in program.graph.nodes for _ in node.users if node.name in owners)
    pairs = []
    for node in program.graph.nodes:
        if "batch_norm" not in str(node.target) or node.args[5]:  # 5: it trains, and its numbers would change
            continue
        made_by = node.args[0]
        norm, layer = owners.get(node.args[3].name), owners.get(getattr(made_by.args[1], "name", ""))
        if norm is None or layer is None or len(made_by.users) != 1:
            continue
        kind = module.get_submodule(layer)
        uses = (calls[layer], calls[norm])
        once = uses == (len(_tensors(kind)), len(_tensors(module.get_submodule(norm))))
        if once and isinstance(kind, (torch.nn.modules.conv._ConvNd, torch.nn.Linear)):
            pairs.append([layer, norm])
    return pairs


def _tensors(layer: torch.nn.Module) -> list[str]:
    """Return the names of the tensors that a call of the layer reads; a batch normalization's count is not read."""
    names = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers())]
    return [name for name in names if name != "num_batches_tracked"]


def _folded(module: torch.nn.Module, layer_name: str, norm_name: str) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    """Return weight and bias of a layer that does its normalization's work, too."""
    import torch
    from torch.nn.utils import fusion

    layer: Any = module.get_submodule(layer_name)
    norm: Any = module.get_submodule(norm_name)
    values = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    if isinstance(layer, torch.nn.Linear):
        return fusion.fuse_linear_bn_weights(*values)
    transposed = isinstance(layer, torch.nn.modules.conv._ConvTransposeNd)
    return fusion.fuse_conv_bn_weights(*values, transpose=transposed)
