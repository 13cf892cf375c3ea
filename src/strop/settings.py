"""Every setting of strop: its name, type, default, unit and meaning, and no other place says any of it.

What makes an artifact, from the model to the engine, is in `strop.settings_chain` and is imported here.

These dataclasses are Hydra's structured configs (`conf/` holds values, never names) and the source of
`docs/reference/settings.md`. Units are SI and stand at the end of a name (`timeout_s`, `memory_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from strop.settings_chain import (
    Compile,
    Dataset,
    Engine,
    Export,
    Model,
    Optimize,
    Prune,
    Quantize,
    Stage,
    setting,
)
from strop.settings_chain import Recover as Recover
from strop.settings_chain import Source as Source

# Hydra's structured configs read these annotations at run time, and OmegaConf knows Optional[X], not X | None.
# ruff: noqa: UP045


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
class Profile(Stage):
    """Which operators take the time of a call; `strop explain` asks for it."""

    calls: int = setting(50, "calls that are profiled, after as many that warm up [1]")
    batch_size: int = setting(0, "examples in a call; 0: as many as the benchmark's calls have [1]")


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
    optimize: Optimize = setting(Optimize, "")
    quantize: Quantize = setting(Quantize, "")
    compile: Compile = setting(Compile, "")
    engine: Engine = setting(Engine, "")
    evaluate: Evaluate = setting(Evaluate, "")
    benchmark: Benchmark = setting(Benchmark, "")
    profile: Profile = setting(Profile, "")
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
    "optimize": Optimize,
    "quantize": Quantize,
    "compile": Compile,
    "engine": Engine,
    "evaluate": Evaluate,
    "benchmark": Benchmark,
    "profile": Profile,
}
GROUPS: dict[str, type] = {**STAGE_SETTINGS, "device": Device, "tracking": Tracking}
NOT_IN_IDS = frozenset({"method", "timeout_s", "memory_bytes"})
