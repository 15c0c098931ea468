"""The import contracts of pyproject.toml, and what they cannot say."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
STANDALONE = ["interop_tests", "spark_jobs"]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("pykbroker", cache_dir=None)


def test_the_contracts_hold() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def below(graph: grimp.ImportGraph, package: str) -> set[str]:
    return {package} | set(graph.find_descendants(package))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        # Raft carries opaque entries; what they mean is not its business, nor is consensus that of the metadata.
        ("pykbroker.controller.raft", "controller.metadata"),
        ("pykbroker.controller.metadata", "controller.raft"),
    ],
)
def test_who_must_not_know_whom(graph: grimp.ImportGraph, importer: str, imported: str) -> None:
    forbidden = below(graph, f"pykbroker.{imported}")
    found = [
        f"{module} imports {other}"
        for module in sorted(below(graph, importer))
        for other in sorted(graph.find_modules_directly_imported_by(module) & forbidden)
    ]
    assert found == []


def test_no_module_imports_itself_by_way_of_others(graph: grimp.ImportGraph) -> None:
    """Imports for annotations and inside functions count: they too are how a reader learns what depends on what."""
    sorter = graphlib.TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) - {"pykbroker"} for module in graph.modules}
    )
    sorter.prepare()


def test_every_package_is_in_the_graph(graph: grimp.ImportGraph) -> None:
    # A folder without __init__.py would silently escape every contract.
    folders = {
        path.parent.relative_to(ROOT / name).as_posix()
        for name in ("protocol", "logstore", "controller", "pykbroker")
        for path in (ROOT / name).rglob("*.py")
    }
    assert {folder for folder in folders if "__pycache__" in folder} == set()
    for name in ("protocol", "logstore", "controller", "pykbroker"):
        for path in (ROOT / name).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py"


@pytest.mark.parametrize("folder", STANDALONE)
def test_stock_clients_know_nothing_of_ours(folder: str) -> None:
    ours = {"pykbroker", "protocol", "logstore", "controller", "tests"}
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported_names(node)
        if name.partition(".")[0] in ours
    ]
    assert found == []


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []
