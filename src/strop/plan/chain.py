"""Chains: the options of one combination in the order that their formats allow, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable

from strop.options import NEEDS_ENGINE, OPTIONS, Option, option


class NoChain(Exception):
    """A combination that cannot work; its text is the reason."""


def resolve(methods: dict[str, str], problem: Callable[[Option], str | None]) -> list[Option]:
    """Order the options of a combination, with the export that the formats need put in.

    Args:
        methods: stage -> method for each of `CHAIN_STAGES`; `none` leaves a stage out, and `auto` for export puts
            the exporter `onnx` in where the next option needs it.
        problem: returns why an option cannot work on this machine, or None.

    Raises:
        NoChain: the formats do not fit, or an option lacks something here.
        StropError: a method that is not registered.
    """
    chosen = {stage: option(stage, name) for stage, name in methods.items() if name not in ("none", "auto")}
    export = chosen.get("export") or (option("export", "onnx") if methods["export"] == "auto" else None)
    chain = [chosen["model"]]
    for stage in ("prune", "optimize", "quantize", "compile", "engine"):
        if stage in chosen:
            _append(chain, chosen[stage], export)
    if methods["export"] not in ("none", "auto") and export is not None and export not in chain:
        _append(chain, export, None)
    _must_run(chain)
    for item in chain:
        if reason := problem(item):
            raise NoChain(f"{item.stage}={item.name}: {reason}")
    return chain


def _append(chain: list[Option], item: Option, export: Option | None) -> None:
    if format_of(chain) not in item.accepts and export is not None and export not in chain:
        can_export = format_of(chain) in export.accepts and export.returns in item.accepts
        if can_export:
            _must_follow(chain, export)
            chain.append(export)
    if format_of(chain) not in item.accepts:
        last = chain[-1]
        raise NoChain(
            f"{item.stage}={item.name} takes {' or '.join(item.accepts)}, "
            f"but {last.stage}={last.name} gives {format_of(chain)}"
        )
    _must_follow(chain, item)
    chain.append(item)


def _must_follow(chain: list[Option], item: Option) -> None:
    for earlier in chain:
        reason = earlier.before.get(item.stage) or earlier.before.get(f"{item.stage}={item.name}")
        if reason:
            raise NoChain(f"{item.stage}={item.name} cannot follow {earlier.stage}={earlier.name}: {reason}")


def _must_run(chain: list[Option]) -> None:
    last = chain[-1]
    given = format_of(chain)
    if given in NEEDS_ENGINE and last.stage != "engine":
        fitting = [item for item in OPTIONS.values() if item.stage == "engine" and given in item.accepts]
        first: dict[tuple[str, ...], str] = {}  # of each runtime, its plain form
        for item in fitting:
            if item.device is None:
                first.setdefault(item.requires, f"engine={item.name}")
        words = " or ".join(first.values())
        raise NoChain(f"{last.stage}={last.name} gives {given}, which needs an engine; add {words}")


def format_of(chain: list[Option]) -> str:
    """Return the format that a chain ends with."""
    for item in reversed(chain):
        if item.returns is not None:
            return item.returns
    return "?"
