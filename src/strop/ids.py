"""Content ids: equal work has an equal name, so it is done once."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
ID_DIGITS = 12


def canonical(value: Any) -> str:
    """Return `value` as JSON with sorted keys, no spaces and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Return the first 12 hex digits of the sha256 of `value` as canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:ID_DIGITS]


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache
def source_digest(module: str) -> str:
    """Return a digest of a module's code and of all that it imports from strop, without comments and docstrings.

    Snakemake reruns a job when this changes. A reworded comment changes nothing, so it reruns nothing.
    """
    seen: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        path = _module_path(name)
        if name in seen or path is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        seen[name] = ast.dump(_without_docstrings(tree))
        todo.extend(_imports(tree))
    return digest(seen)


def _module_path(name: str) -> Path | None:
    base = PACKAGE.parent.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("strop"):
            names.append(node.module)
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names if alias.name.startswith("strop"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("strop."):
            names.append(node.value)  # what is imported by name, such as a runtime
    return names


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return tree
