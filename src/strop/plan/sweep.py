"""A study's sweep: the overrides of the command line, the axes of the study file, and their combinations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from strop.errors import StropError, nearest
from strop.plan.compose import Composer, key_kind
from strop.plan.texts import as_text, is_text


@dataclass(frozen=True)
class Sweep:
    """Combinations of overrides, in order. `axes` are the keys with more than one value.

    `fixed` are the overrides that hold for all combinations, the study's choice included. `named` are the keys by
    which a combination is known: the axes, and those of the study file that the command line made narrower.
    """

    study: str
    fixed: tuple[str, ...]
    axes: dict[str, str]
    combinations: tuple[tuple[str, ...], ...]
    named: frozenset[str]


def make_sweep(overrides: list[str], composer: Composer) -> Sweep:
    """Combine the command line's overrides with the study file's axes; the command line replaces an axis by its key.

    Raises:
        StropError: an override that is not `key=value`, a key given twice, an unknown key, option or study.
    """
    given = _by_key(overrides)
    study = given.pop("study", None) or composer.compose([]).choices["study"]
    _check_option("study", study, composer)
    file_axes = composer.compose([f"study={study}"]).axes
    for key in file_axes:
        _check_axis(key, f"conf/study/{study}.yaml: ")
    merged = {**file_axes, **given}
    words = {key: _word(key, value) for key, value in merged.items()}
    combinations = composer.expand([f"study={study}", *words.values()])
    for combination in combinations:
        for word in combination:
            key, _, value = word.partition("=")
            if key_kind(key.lstrip("+")) == "group":
                _check_option(key, value, composer)
    axes = {key: merged[key] for key in merged if len({_value_of(c, key) for c in combinations}) > 1}
    fixed = tuple(word for key, word in words.items() if key not in axes)
    named = frozenset([*axes, *file_axes])
    return Sweep(study, (f"study={study}", *fixed), axes, tuple(tuple(c) for c in combinations), named)


def _value_of(combination: list[str], key: str) -> str:
    return next(word.partition("=")[2] for word in combination if word.partition("=")[0].lstrip("+") == key)


def _by_key(overrides: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise StropError(f"{word}: not an override; write key=value, as quantize=none,ort_int8_dynamic")
        if found := re.match(r"[~+]+", key):
            raise StropError(f"{word}: '{found[0]}' is not supported; write {key.lstrip('~+')}=value")
        if not re.fullmatch(r"[A-Za-z_][\w.]*", key):
            raise StropError(f"{word}: '{key}' is not a setting's name")
        if key in given:
            raise StropError(f"{key}: given twice ({key}={given[key]} and {word}); to sweep, write {key}=a,b")
        _check_axis(key, "")
        given[key] = value
    return given


def _check_axis(key: str, where: str) -> None:
    try:
        key_kind(key)
    except StropError as error:
        raise StropError(f"{where}{error}") from None


def _word(key: str, value: str) -> str:
    """Return the override as Hydra is to read it: new items of free dictionaries said, texts as they were written.

    `12e5`, `123_456` and `true` are a number and a truth to Hydra; in a text setting they would change their spelling.
    """
    value = as_text(value) if is_text(key) else value
    return f"{'++' if key_kind(key) == 'item' else ''}{key}={value}"


def _check_option(group: str, name: str, composer: Composer) -> None:
    if name not in composer.groups[group]:
        raise StropError(
            f"{group}={name}: conf/{group}/ has no option '{name}'; {nearest(name, composer.groups[group])}"
        )
