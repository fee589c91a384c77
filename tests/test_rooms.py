"""The order of the rooms, read from the imports of the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = [
    "harness.errors", "harness.spec", "harness.declare", "harness.fields", "harness.ops", "harness.config",
    "harness.environment", "harness.records", "harness.data", "harness.contract", "variants", "ablations",
    "harness.registry", "harness.model", "harness.train", "harness.cost", "harness.measures", "harness.statistics",
    "harness.presets", "harness.tasks", "harness.events", "harness.arms", "harness.equal", "harness.plans", "harness.experiment",
    "harness.execute", "harness.bench", "harness.tune", "harness.report",
    "harness.commands", "harness.cli",
]  # fmt: skip
WITHOUT_TORCH = ("harness.records", "harness.statistics", "harness.report", "harness.environment")
FILES = [file for folder in ("harness", "variants", "ablations") for file in sorted((ROOT / folder).rglob("*.py"))]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    found = [room for room in ROOMS if module == room or module.startswith(room + ".")]
    assert found or module == "harness", f"{module} lies in no room: add it to the order"
    return found[0] if found else "harness"


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module in ("harness", "harness.train") and node.module == "harness"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if whole else {node.module}
    return names


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_room_imports_only_rooms_above_it(file: Path) -> None:
    own = room_of(module_of(file))
    for name in imported(file):
        if name.split(".")[0] in ("harness", "variants", "ablations") and own != "harness":
            other = room_of(name)
            assert ROOMS.index(other) <= ROOMS.index(own), f"{own} imports {other}, which lies below it"


@pytest.mark.parametrize("file", [file for file in FILES if file.parent.name == "variants"], ids=module_of)
def test_a_variant_imports_spec_and_ops_only(file: Path) -> None:
    ours = {name for name in imported(file) if name.split(".")[0] in ("harness", "variants")}
    assert all(name.startswith(("harness.spec", "harness.ops")) for name in ours)


@pytest.mark.parametrize("file", [f for f in FILES if module_of(f).startswith(WITHOUT_TORCH)], ids=module_of)
def test_rooms_that_only_read_numbers_do_not_import_torch(file: Path) -> None:
    assert not any(name == "torch" or name.startswith("torch.") for name in imported(file))


def test_reading_and_judging_records_loads_no_torch() -> None:
    code = (
        "import harness.records, harness.statistics, harness.report, harness.report.progress, sys; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_only_the_registry_imports_by_name(file: Path) -> None:
    uses = any(name.startswith("importlib") and name != "importlib.metadata" for name in imported(file))
    metadata_only = "from importlib import metadata" in file.read_text()
    assert not uses or metadata_only or module_of(file) == "harness.registry"


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_only_the_command_line_prints_and_nothing_asserts(file: Path) -> None:
    tree = ast.parse(file.read_text())
    calls = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert "print" not in calls
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


@pytest.mark.parametrize("file", [*FILES, ROOT / "run.py"], ids=module_of)
def test_files_and_functions_stay_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 300
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef):
            described = ast.get_docstring(node, clean=False) or ""
            assert (node.end_lineno or 0) - node.lineno - described.count("\n") < 60, f"{node.name} is long"
