"""Settings that are texts stay as they were written, though Hydra and YAML read a number or a truth in them."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from pathlib import Path
from typing import Any

from strop.errors import StropError
from strop.settings import Config

WORD = r"[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d[\d_]*)?|[+-]?inf|nan|true|false"
# A quoted text, or such a word alone in its place of a list.
PLACES = re.compile(
    rf"""(?P<quoted>'[^']*'|"[^"]*")|(?P<before>(?:^|[,\[]|\bchoice\()\s*)(?P<word>{WORD})(?=\s*(?:$|[,\])]))""",
    re.IGNORECASE,
)
NO_TEXT = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")


def is_text(key: str) -> bool:
    """Return whether a setting is a text or a list of texts, whatever it looks like."""
    cls: Any = Config
    for part in key.split("."):
        cls = typing.get_type_hints(cls).get(part) if dataclasses.is_dataclass(cls) else None
    return cls in (str, typing.Optional[str], list[str])  # noqa: UP045 # as the settings are written


def as_text(value: str) -> str:
    """Put quotes around what Hydra's grammar would read as a number or a truth: `12e5,007` becomes `'12e5','007'`."""
    if re.match(r"(range|interval)\(", value):
        return value
    return PLACES.sub(lambda found: found["quoted"] or f"{found['before']}'{found['word']}'", value)


def check_texts(conf: Path, choices: dict[str, str]) -> None:
    """Look into the files of the chosen options and the study: YAML has lost the spelling once it is read.

    Raises:
        StropError: a text setting without quotes that YAML reads as a number or a truth.
    """
    for group, name in choices.items():
        path = conf / group / f"{name}.yaml"
        prefix = "" if group == "study" else f"{group}."
        for key, value, line in _unquoted(path) if path.is_file() else ():
            key = key.removeprefix("hydra.sweeper.params.")
            if is_text(f"{prefix}{key}"):
                raise StropError(
                    f"conf/{group}/{name}.yaml: line {line}: {prefix}{key} is a text, and YAML reads {value} as "
                    "a number or a truth; put it in quotes"
                )


@functools.cache
def _unquoted(path: Path) -> tuple[tuple[str, str, int], ...]:
    """Return (key, text, line) of each value in a file that is no text to YAML and stands without quotes."""
    import yaml

    found: list[tuple[str, str, int]] = []

    def walk(node: Any, key: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                walk(value, f"{key}.{name.value}" if key else str(name.value))
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                walk(value, key)
        elif node.style is None and (node.tag in NO_TEXT or re.fullmatch(WORD, node.value, re.IGNORECASE)):
            found.append((key, str(node.value), node.start_mark.line + 1))

    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    if root is not None:
        walk(root, "")
    return tuple(found)
