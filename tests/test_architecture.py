"""Imports point down, as DESIGN's layers say; heavy libraries load only where they are used; scripts stay thin."""

import ast
from pathlib import Path

import pytest

from strop.options import CHAIN_STAGES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "strop"
# The longest prefix of a module's name decides its layer.
LAYERS = {
    "strop": 1,
    "strop.errors": 1,
    "strop.settings": 1,
    "strop.settings_chain": 1,
    "strop.ids": 1,
    "strop.artifact": 1,
    "strop.records": 1,
    "strop.machine": 1,
    "strop.examples": 1,
    "strop.compare": 1,
    "strop.columns": 1,
    "strop.process": 1,
    "strop.job": 1,
    "strop.stats": 1,
    "strop.options": 2,
    "strop.requirements": 2,
    "strop.graph": 2,
    "strop.sources": 2,
    "strop.preprocess": 2,
    "strop.zoo": 2,
    "strop.runtimes": 2,
    "strop.decide": 2,
    "strop.tracking": 2,
    "strop.report": 2,
    "strop.check": 3,
    "strop.audit": 3,
    "strop.plan": 3,
    "strop.measure": 3,
    "strop.supervise": 3,
    "strop.stages": 4,
    "strop.workflow": 4,
    "strop.progress": 4,
    "strop.head_to_head": 4,
    "strop.explain": 4,
    "strop.cli": 4,
}
ONLY_USER = {"mlflow": "strop.tracking", "hydra": "strop.plan", "snakemake": "strop.progress", "altair": "strop.report"}
HEAVY = {
    "torch",
    "onnxruntime",
    "openvino",
    "transformers",
    "mlflow",
    "altair",
    "sklearn",
    "nncf",
    "torchao",
    "optimum",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    prefix = max((name for name in LAYERS if f"{module}.".startswith(f"{name}.")), key=len)
    return LAYERS[prefix]


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: module_name(p))
def test_imports_point_down(path):
    name = module_name(path)
    assert name == "strop" or layer(name) != 1 or any(name == known or name.startswith(f"{known}.") for known in LAYERS)
    for imported in imports(ast.parse(path.read_text())):
        if imported.startswith("strop."):
            assert layer(imported) <= layer(name), f"{name} (layer {layer(name)}) imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: module_name(p))
def test_libraries_have_one_user_and_heavy_ones_load_late(path):
    name, tree = module_name(path), ast.parse(path.read_text())
    for library, user in ONLY_USER.items():
        if any(found.split(".")[0] == library for found in imports(tree)):
            assert name.startswith(user), f"{name} imports {library}, which belongs to {user}"
    if "zoo" in name:
        return  # factories are loaded by their user, inside a function
    top = {
        word.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for word in imports(node)
    }
    assert not top & HEAVY, f"{name} loads {top & HEAVY} when it is imported"


def test_scripts_are_adapters():
    for path in (ROOT / "workflow" / "scripts").glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(lines) <= 15, f"{path.name} has {len(lines)} lines"


def test_common_rules_are_short():
    assert len((ROOT / "workflow/rules/common.smk").read_text().splitlines()) <= 120


def test_every_stage_has_its_rooms():
    stages = [*CHAIN_STAGES, "dataset", "evaluate", "benchmark"]
    for stage in [*stages, "track", "aggregate", "report"]:
        assert (ROOT / "workflow" / "rules" / f"{stage}.smk").is_file()
        assert (SOURCE / "stages" / f"{stage}.py").is_file() or (SOURCE / "stages" / stage / "__init__.py").is_file()
    for stage in stages:
        assert (ROOT / "conf" / stage).is_dir()
        assert (ROOT / "tests" / "stages" / f"test_{stage}.py").is_file()
