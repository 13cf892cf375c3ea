"""Hydra's composition of conf/, with errors that fit in one line and name the nearest right word."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strop.errors import StropError, nearest, one_line
from strop.plan.texts import check_texts
from strop.settings import GROUPS, Config, Recover, Source, Study

Choices = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Composed:
    """A composed configuration: plain values, the option chosen in each group, the study file's axes."""

    values: dict[str, Any]
    choices: Choices
    axes: dict[str, str]


class Composer:
    """Composes studies from one folder of config groups.

    Args:
        conf: the folder; must exist.
    """

    def __init__(self, conf: Path) -> None:
        if not (conf / "config.yaml").is_file():
            raise StropError(f"{conf / 'config.yaml'}: not there; run strop in a folder that has conf/ and a Snakefile")
        self.conf = conf.resolve()
        if braces := re.search(r"[{}]", str(self.conf)):  # Snakemake formats the paths of its environments
            raise StropError(
                f"{self.conf.parent}: Snakemake cannot work in a folder with '{braces[0]}' in its name; rename it"
            )
        self._cache: dict[tuple[str, ...], Composed] = {}

    @functools.cached_property
    def groups(self) -> dict[str, list[str]]:
        """Group -> names of its options, sorted."""
        names = [*GROUPS, "study"]
        return {name: sorted(path.stem for path in (self.conf / name).glob("*.yaml")) for name in names}

    def expand(self, overrides: list[str]) -> list[list[str]]:
        """Return the combinations of a list of overrides that may sweep, in Hydra's own grammar and order."""
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
        from hydra.core.override_parser.overrides_parser import OverridesParser

        with self._hydra() as loader:
            try:
                parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
                batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
            except Exception as error:
                raise StropError(f"{_unreadable(overrides)}{one_line(str(error).splitlines()[0])}") from error
        return [list(combination) for batch in batches for combination in batch]

    def compose(self, overrides: list[str]) -> Composed:
        """Compose one configuration: the same values as Hydra's `compose`, part by part.

        Hydra takes about 0.1 s for each composition, and a sweep has as many as the product of its axes. Each group's
        part depends on the study and on the overrides of that group alone, as long as no option file reaches into
        another group; so the parts are composed once each, and their number is the sum of the axes.

        Raises:
            StropError: an option, key, value or file that is wrong; one line.
        """
        if not self._separable:
            return self._compose_once(tuple(overrides))
        study = [word for word in overrides if word.startswith("study=")]
        parts: dict[str, list[str]] = {}
        for word in overrides:
            if word not in study:
                parts.setdefault(word.lstrip("+").partition("=")[0].partition(".")[0], []).append(word)
        whole = self._compose_once(tuple(study))
        values, choices = dict(whole.values), dict(whole.choices)
        for group, words in parts.items():
            part = self._compose_once((*study, *words))
            values[group] = part.values[group]
            if group in choices:
                choices[group] = part.choices[group]
        return Composed(values, choices, whole.axes)

    @functools.cached_property
    def _separable(self) -> bool:
        """Whether no option file places, overrides or interpolates what belongs to another group."""
        files = [path for group in GROUPS for path in (self.conf / group).glob("*.yaml")]
        texts = [path.read_text(encoding="utf-8") for path in (*files, self.conf / "config.yaml")]
        return not any(re.search(r"@package|\boverride |@_?\w+|\$\{", text) for text in texts)

    def _compose_once(self, overrides: tuple[str, ...]) -> Composed:
        if overrides not in self._cache:
            self._cache[overrides] = self._compose(list(overrides))
        return self._cache[overrides]

    def _compose(self, overrides: list[str]) -> Composed:
        from hydra import compose
        from omegaconf import DictConfig, OmegaConf

        with self._hydra():
            try:
                config = compose("config", overrides=overrides, return_hydra_config=True)
                axes: Any = OmegaConf.to_container(config.hydra.sweeper.params or DictConfig({}))
                choices: Any = OmegaConf.to_container(config.hydra.runtime.choices)
                own = OmegaConf.masked_copy(config, list(_hints(Config)))
                values: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
            except Exception as error:
                raise StropError(self._explain(error)) from error
        _check_choices(Config, values, "")
        check_texts(self.conf, {str(group): str(name) for group, name in choices.items() if group in self.groups})
        return Composed(
            values,
            {str(group): str(name) for group, name in choices.items() if group in self.groups},
            {str(key): str(value) for key, value in axes.items()},
        )

    @contextlib.contextmanager
    def _hydra(self) -> Iterator[Any]:
        from hydra import initialize_config_dir
        from hydra.core.global_hydra import GlobalHydra

        register_schema()
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(self.conf), version_base="1.3"):
            yield GlobalHydra.instance().config_loader()

    def _explain(self, error: BaseException) -> str:
        """Turn Hydra's error into one line: where, what, the nearest right word."""
        text, cause = str(error), str(error.__cause__ or "")
        where = re.search(r"In '([^']+)'", text)
        prefix = f"conf/{where[1]}.yaml: " if where else ""
        if found := re.search(r"Could not find '([^'/]+)/([^']+)'", text):
            group, name = found.groups()
            return f"{group}={name}: conf/{group}/ has no option '{name}'; {nearest(name, self.groups.get(group, []))}"
        if found := re.search(r"Could not override '([^']+)'\. No match", text):
            return f"{prefix}no group '{found[1]}'; {nearest(found[1], self.groups)}"
        if found := re.search(r"Key '([^']+)' (?:is )?not in '?(\w+)'?", text + cause):
            return f"{prefix}no key '{found[1]}'; {nearest(found[1], _names_in(found[2]))}"
        if found := re.search(r"Error merging override (.+)", text):
            return f"{found[1]}: {_first_line(cause) or 'wrong type'}"
        if found := re.search(r"Missing mandatory value: (\S+)", text):
            return f"{found[1]}: has no value; give it one, as {found[1]}=..."
        if found := re.search(r'in "(?P<file>[^"]+)", line (?P<line>\d+), column', text):
            file = Path(found["file"]).relative_to(self.conf)
            return f"conf/{file}: line {found['line']}: not YAML ({_first_line(text)})"
        return prefix + _first_line(text.split("raised while composing config:")[-1].strip())


def _unreadable(overrides: list[str]) -> str:
    """Return the first override that breaks Hydra's grammar, with a colon after it; empty if each one keeps it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for word in overrides:
        try:
            OverridesParser.create().parse_override(word)
        except Exception:
            return f"{word.lstrip('+')}: not in Hydra's grammar; put texts in quotes: "
    return ""


def _first_line(text: str) -> str:
    return one_line(text.strip().splitlines()[0]) if text.strip() else ""


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _names_in(class_name: str) -> list[str]:
    """Return the names of the settings in a class of `strop.settings`."""
    known = {cls.__name__: cls for cls in (Config, Study, Source, Recover, *GROUPS.values())}
    return list(_hints(known[class_name])) if class_name in known else []


@functools.cache
def _mutable(cls: type) -> type:
    """Return a class with the same fields that is not frozen: OmegaConf makes frozen ones read-only."""
    made: list[Any] = []
    for item in dataclasses.fields(cls):
        hint = _hints(cls)[item.name]
        if dataclasses.is_dataclass(hint):
            twin = _mutable(typing.cast("type", hint))
            made.append((item.name, twin, dataclasses.field(default_factory=twin)))
        elif item.default is dataclasses.MISSING:
            made.append((item.name, hint, dataclasses.field(default_factory=typing.cast("Any", item.default_factory))))
        else:
            made.append((item.name, hint, dataclasses.field(default=item.default)))
    return dataclasses.make_dataclass(cls.__name__, made)


@functools.cache
def register_schema() -> None:
    """Give Hydra the settings' types as the config `schema`, which `conf/config.yaml` starts from."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=_mutable(Config), provider="strop.settings")


def _check_choices(cls: type, values: dict[str, Any], prefix: str) -> None:
    for item in dataclasses.fields(cls):
        hint, value = _hints(cls)[item.name], values[item.name]
        if dataclasses.is_dataclass(hint):
            _check_choices(typing.cast("type", hint), value, f"{prefix}{item.name}.")
        elif (allowed := item.metadata.get("choices")) and value not in allowed:
            raise StropError(f"{prefix}{item.name}={value}: not a choice; {nearest(str(value), allowed)}")


def key_kind(key: str) -> str:
    """Return what an override's key names: `group`, `value`, or `item` of a free dictionary such as study.limits.

    Raises:
        StropError: nothing has this name; the message names the nearest one.
    """
    if key in GROUPS or key == "study":
        return "group"
    cls: Any = Config
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if typing.get_origin(cls) is dict:
            return "item"
        if not dataclasses.is_dataclass(cls) or part not in _hints(typing.cast("type", cls)):
            names = _hints(typing.cast("type", cls)) if dataclasses.is_dataclass(cls) else ()
            near = nearest(part, [".".join([*parts[:depth], name]) if depth else name for name in names])
            near = nearest(part, names) if "did you" not in near else near
            near = near if depth else _nearest_anywhere(part, near)
            raise StropError(f"{key}: no such setting; {near}")
        cls = _hints(typing.cast("type", cls))[part]
    return "item" if typing.get_origin(cls) is dict else "value"


def _nearest_anywhere(word: str, near: str) -> str:
    """Return the setting of any group whose own name is very like `word`, as `benchmark.batch_size`, else `near`."""
    names = [f"{group}.{name}" for group, cls in GROUPS.items() for name in _hints(cls)]
    found = difflib.get_close_matches(word, {name.partition(".")[2] for name in names}, n=1, cutoff=0.8)
    if not found or difflib.get_close_matches(word, [*GROUPS, *_hints(Config)], n=1, cutoff=0.8):
        return near
    return " or ".join(f"'{name}'" for name in names if name.partition(".")[2] == found[0]).join(("did you mean ", "?"))
