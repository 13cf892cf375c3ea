"""From a sweep to a plan: variants, chains, steps with content ids, runs. Equal steps are one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop import machine
from strop.columns import TIMED_LIMITS
from strop.decide import check_question
from strop.ids import digest
from strop.options import CHAIN_STAGES, TRANSFORMS, Option, option, reads
from strop.plan.chain import NoChain, format_of, resolve
from strop.plan.compose import Composed, Composer
from strop.plan.content import local_content
from strop.plan.names import ON_DEVICE, joined, name_apart, name_of
from strop.plan.sweep import Sweep, make_sweep
from strop.requirements import option_problem
from strop.settings import NOT_IN_IDS

PLAN_VERSION = 1
SHOWN = ("model", "dataset", *TRANSFORMS)


@dataclass
class Plan:
    """A plan in the making; `make_plan` returns it as plain JSON values."""

    project: Path
    study: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, list[float]] = field(default_factory=dict)


def make_plan(overrides: list[str], conf: Path) -> dict[str, Any]:
    """Plan a study.

    Args:
        overrides: Hydra overrides, sweeps included; `study=name` chooses the study.
        conf: folder of the config groups; paths in settings are relative to its parent.

    Returns:
        The plan as JSON values: `study`, `device`, `tracking`, `profile` (settings of the step that `strop explain`
        makes), `steps` (key -> step), `variants`, `runs`; and `contents`, the stamps of the user's own files that it
        rests on.

    Raises:
        StropError: anything that is wrong with the overrides or conf/; one line.
    """
    composer = Composer(conf)
    sweep = make_sweep(overrides, composer)
    base = composer.compose(list(sweep.combinations[0]))
    study = base.values["study"]
    check_question(study["limits"], study["objective"], study["tie_breaker"])
    plan = Plan(conf.resolve().parent, study["name"])
    reached = {_add_combination(plan, list(combination), sweep, composer) for combination in sweep.combinations}
    name_apart(plan.variants, plan.runs)
    return {
        "plan_version": PLAN_VERSION,
        "study": {**study, "option": sweep.study},
        "axes": sweep.axes,
        "on_failure": base.values["on_failure"],
        "device": {
            "name": base.choices["device"],
            **base.values["device"],
            "fingerprint": machine.fingerprint(base.values["device"]),
        },
        "tracking": base.values["tracking"],
        "profile": base.values["profile"],
        "contents": plan.contents,
        "combinations": len(sweep.combinations),
        "distinct": len(reached),
        "skipped": len(reached - plan.variants.keys()),
        "steps": plan.steps,
        "variants": list(plan.variants.values()),
        "runs": list(plan.runs.values()),
    }


def _add_combination(plan: Plan, combination: list[str], sweep: Sweep, composer: Composer) -> str:
    """Add the combination and its reference, and return the id of its variant, or its own id if it is skipped."""
    composed = composer.compose(combination)
    reference = composer.compose(_reference_overrides(combination, composed))
    reference_chain = _chain_or_reason(reference)
    variant_id = ""
    for at, is_reference in ((reference, True), (composed, False)):
        words = " ".join(w for w in combination if w.partition("=")[0].lstrip("+") in sweep.named)
        chain = _chain_or_reason(at)
        if not isinstance(chain, str) and isinstance(reference_chain, str):
            chain = f"the reference cannot work: {reference_chain}"
        if isinstance(chain, str):
            variant_id = _add_skipped(plan, at, words, chain)
            continue
        keys = _add_chain(plan, at, chain)
        variant = _add_variant(plan, at, chain, keys, "" if is_reference else words, sweep)
        variant_id = variant["variant_id"]
        if not isinstance(reference_chain, str):
            reference_keys = _add_chain(plan, reference, reference_chain)
            _add_run(plan, at, variant, keys, reference_keys)
    return variant_id


def _reference_overrides(combination: list[str], composed: Composed) -> list[str]:
    """Return the combination with all transforming stages as the study's reference has them."""
    kept = [w for w in combination if w.partition("=")[0].lstrip("+").split(".")[0] not in TRANSFORMS]
    options = dict.fromkeys(TRANSFORMS, "none") | {"export": "auto"} | composed.values["study"]["reference"]
    if composed.values["model"]["method"] == "onnx" and options["engine"] == "none":
        options["engine"] = "onnxruntime"  # an ONNX file has no eager form: its author's runtime is ONNX Runtime
    return kept + [f"{stage}={name}" for stage, name in options.items()]


def _chain_or_reason(at: Composed) -> list[Option] | str:
    methods = {stage: at.values[stage]["method"] for stage in CHAIN_STAGES}
    try:
        return resolve(methods, lambda item: option_problem(item, at.values["device"]["kind"]))
    except NoChain as reason:
        return str(reason)


def _add_step(
    plan: Plan,
    at: Composed,
    item: Option,
    upstream: dict[str, str],
    label: str,
    limits: dict[str, float] | None = None,
) -> str:
    """Add a step, unless an equal one is there, and return its key `<stage>/<id>`.

    Limits that its sampling may stop by, if there are any, are part of what it is.
    """
    values = at.values["export" if item.stage == "export" else item.stage]
    settings = {name: values[name] for name in reads(item.stage, item.name)}
    if "min_cosine" in values:
        settings["min_cosine"] = values["min_cosine"]
    content = local_content(settings, plan.project, plan.contents, item.stage)
    identity: dict[str, Any] = {"stage": item.stage, "option": item.name, "settings": settings, "upstream": upstream}
    if content:
        identity["content"] = content
    if limits:
        identity["limits"] = limits
    if item.stage in ON_DEVICE:
        identity["device"] = machine.fingerprint(at.values["device"])
    key = f"{item.stage}/{digest(identity)}"
    plan.steps.setdefault(
        key,
        {
            "stage": item.stage,
            "id": key.partition("/")[2],
            "option": item.name,
            "settings": settings,
            "upstream": upstream,
            "label": label,
            "requires": list(item.requires),
            "device": at.values["device"],
            **{name: values[name] for name in sorted(NOT_IN_IDS - {"method"})},
        },
    )
    return key


def _add_chain(plan: Plan, at: Composed, chain: list[Option]) -> list[str]:
    dataset = _add_step(plan, at, option("dataset", at.values["dataset"]["method"]), {}, at.choices["dataset"])
    model = _add_step(plan, at, chain[0], {"dataset": dataset}, at.choices["model"])
    keys = [dataset, model]
    label = at.choices["model"]
    for item in chain[1:]:
        label = item.name if item.stage == "export" else at.choices[item.stage]
        keys.append(_add_step(plan, at, item, {"source": keys[-1], "model": model}, label))
        plan.steps[keys[-1]]["context"] = {"min_cosine": _floor(plan, keys)}
    return keys


def _add_variant(
    plan: Plan, at: Composed, chain: list[Option], keys: list[str], words: str, sweep: Sweep
) -> dict[str, Any]:
    variant_id = digest(keys)
    return plan.variants.setdefault(
        variant_id,
        {
            "variant": name_of(at, chain, sweep),
            "variant_id": variant_id,
            **{stage: at.choices[stage] for stage in SHOWN},
            "overrides": words,
            "format": format_of(chain),
            "chain": keys,
            "status": "planned",
            "reason": None,
        },
    )


def _add_skipped(plan: Plan, at: Composed, words: str, reason: str) -> str:
    """Add one row for all combinations of these options and this reason, and return an id of this combination.

    The row names options only: swept settings do not change why the options cannot work.
    """
    options = {stage: at.choices[stage] for stage in SHOWN}
    variant_id = digest({"skipped": options, "reason": reason})
    plan.variants.setdefault(
        variant_id,
        {
            "variant": joined([at.choices[stage] for stage in TRANSFORMS]) or "eager",
            "variant_id": variant_id,
            **options,
            "overrides": " ".join(word for word in words.split(" ") if "." not in word.partition("=")[0]),
            "format": None,
            "chain": [],
            "status": "skipped",
            "reason": reason,
        },
    )
    return digest({"skipped": options, "words": words})


def _add_run(plan: Plan, at: Composed, variant: dict[str, Any], keys: list[str], reference: list[str]) -> None:
    dataset, model = keys[0], keys[1]
    name = variant["variant"]
    evaluate = _add_step(plan, at, _of(at, "evaluate"), {"source": keys[-1], "model": model}, name)
    on_reference = _add_step(plan, at, _of(at, "evaluate"), {"source": reference[-1], "model": model}, "reference")
    upstream = {"source": keys[-1], "reference": reference[-1], "model": model}
    limits = _stopping_limits(at, is_reference=keys == reference)
    benchmark = _add_step(plan, at, _of(at, "benchmark"), upstream, name, limits)
    plan.steps[benchmark]["context"] = {"min_cosine": _floor(plan, keys)} | ({"limits": limits} if limits else {})
    run_id = benchmark.partition("/")[2]
    track = digest({"run": run_id, "study": plan.study, "tracking": at.values["tracking"]})
    plan.runs.setdefault(
        run_id,
        {
            "run_id": run_id,
            **{key: variant[key] for key in ("variant", "variant_id", *SHOWN, "overrides", "format")},
            "is_reference": keys == reference,
            "scenario": at.choices["benchmark"],
            "batch_size": at.values["benchmark"]["batch_size"],
            "device": at.choices["device"],
            "threads": at.values["device"]["threads"],
            "chain": keys[1:],
            "dataset_step": dataset,
            "evaluate": evaluate,
            "reference_evaluate": on_reference,
            "benchmark": benchmark,
            "track": f"track/{track}",
        },
    )


def _stopping_limits(at: Composed, *, is_reference: bool) -> dict[str, float]:
    """Return the study's limits that timed calls decide.

    The reference against itself has none: its interval is the study's noise floor, and no decision on the reference
    may leave it wide.
    """
    limits = at.values["study"]["limits"]
    return {} if is_reference else {name: limits[name] for name in sorted(TIMED_LIMITS & limits.keys())}


def _of(at: Composed, stage: str) -> Option:
    return option(stage, at.values[stage]["method"])


def _floor(plan: Plan, keys: list[str]) -> float:
    """Return the lowest agreement with the reference that a chain's steps allow [1]."""
    return float(min(plan.steps[key]["settings"].get("min_cosine", 0.999) for key in keys))
