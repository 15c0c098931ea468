"""Import of the modules of packages from their bytecode, compared with that of Python's own finder and loader."""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import os
import py_compile
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from pykbroker.node.bytecode_finder import BytecodeFinder, BytecodeLoader


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of a module and a package, with bytecode."""
    (tmp_path / "inner").mkdir()
    for name in ("__init__.py", "module.py", "inner/__init__.py"):
        path = tmp_path / name
        path.write_text(f"def name(): return {name!r}\n")
        py_compile.compile(str(path), doraise=True)
    return tmp_path


def found(name: str, directory: Path) -> ModuleSpec:
    spec = BytecodeFinder().find_spec(f"package.{name}", [str(directory)])
    assert spec is not None
    return spec


def code_of(spec: ModuleSpec) -> CodeType:
    assert isinstance(spec.loader, BytecodeLoader)
    code = spec.loader.get_code(spec.name)
    assert code is not None
    return code


def value_of(spec: ModuleSpec) -> Any:
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module.name()


@pytest.mark.parametrize("name", ["module", "inner"])
def test_a_module_is_that_of_pythons_finder(package: Path, name: str) -> None:
    spec = found(name, package)
    expected = PathFinder.find_spec(f"package.{name}", [str(package)])
    assert expected is not None
    attributes = ("name", "origin", "cached", "has_location", "submodule_search_locations", "parent")
    assert [getattr(spec, it) for it in attributes] == [getattr(expected, it) for it in attributes]
    module, other = importlib.util.module_from_spec(spec), importlib.util.module_from_spec(expected)
    others = {key: value for key, value in vars(other).items() if key not in ("__loader__", "__spec__")}
    assert {key: vars(module)[key] for key in others} == others
    assert vars(module).keys() == vars(other).keys()
    assert isinstance(expected.loader, SourceFileLoader)
    assert code_of(spec) == expected.loader.get_code(spec.name)
    assert code_of(spec).co_filename == spec.origin


def test_the_bytecode_is_what_is_loaded(package: Path) -> None:
    """With a source of the same time and size Python loads the bytecode, and so does this loader."""
    path = package / "module.py"
    before = path.stat()
    path.write_text(path.read_text().replace("module.py", "edited.py"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert value_of(found("module", package)) == "module.py"


@pytest.mark.parametrize("with_bytecode", [True, False])
def test_a_changed_source_is_compiled(package: Path, with_bytecode: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    spec = found("module", package)
    (package / "module.py").write_text("def name(): return 'changed'\n")
    assert spec.cached is not None
    if not with_bytecode:
        Path(spec.cached).unlink()
    assert value_of(spec) == "changed"
    assert marshal.loads(Path(spec.cached).read_bytes()[16:]) == code_of(spec)


def test_bytecode_that_python_refuses_is_compiled_anew(package: Path) -> None:
    cached = found("module", package).cached
    assert cached is not None
    for content in (b"", b"\0" * 40, Path(cached).read_bytes()[:12]):
        Path(cached).write_bytes(content)
        assert value_of(found("module", package)) == "module.py"


def test_bytecode_with_a_checksum_of_its_source_is_left_to_python(package: Path) -> None:
    path = package / "module.py"
    path.write_text("def name(): return 'changed'\n")
    py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    assert value_of(found("module", package)) == "changed"


def test_bytecode_compiled_under_another_path_names_the_present_one(package: Path) -> None:
    path = package / "module.py"
    py_compile.compile(str(path), dfile="/build/module.py", doraise=True)
    code = code_of(found("module", package))
    inner = next(each for each in code.co_consts if isinstance(each, CodeType))
    assert (code.co_filename, inner.co_filename) == (str(path), str(path))


def test_bytecode_longer_than_one_read(package: Path) -> None:
    text = "".join(f"v{number} = '{number:0100}'\n" for number in range(2_000))
    (package / "module.py").write_text(f"{text}def name(): return v1999\n")
    py_compile.compile(str(package / "module.py"), doraise=True)
    assert value_of(found("module", package)) == f"{1999:0100}"


def test_what_is_left_to_pythons_finder(package: Path) -> None:
    finder = BytecodeFinder()
    (package / f"compiled{EXTENSION_SUFFIXES[0]}").touch()
    (package / "compiled.py").touch()
    (package / "namespace").mkdir()
    directory = str(package)
    assert finder.find_spec("package.compiled", [directory]) is None
    assert finder.find_spec("package.namespace", [directory]) is None
    assert finder.find_spec("package.missing", [directory]) is None
    assert finder.find_spec("package.module", [f"{directory}/library.zip"]) is None
    assert finder.find_spec("package.module", [directory, directory]) is None
    assert finder.find_spec("package.module", [os.path.relpath(directory)]) is None
    assert finder.find_spec("module", None) is None


def test_a_directory_is_listed_again_on_demand(package: Path) -> None:
    finder = BytecodeFinder()
    assert finder.find_spec("package.late", [str(package)]) is None
    (package / "late.py").touch()
    assert finder.find_spec("package.late", [str(package)]) is None
    finder.invalidate_caches()
    assert finder.find_spec("package.late", [str(package)]) is not None


def test_a_start_imports_its_modules_in_this_way() -> None:
    """Of the process that answers: no module of a package of one directory came from Python's finder."""
    program = """
import sys
from importlib.machinery import SourceFileLoader
from pykbroker.node.bytecode_finder import BytecodeLoader, import_from_bytecode
import_from_bytecode()
import_from_bytecode()
before = set(sys.modules)
from pykbroker.node.lean_trio import import_trio
import_trio()
import pykbroker.node.broker, trio
others = []
for name in sorted(set(sys.modules) - before):
    loader = getattr(sys.modules[name].__spec__, "loader", None)
    if "." in name and isinstance(loader, SourceFileLoader) and not isinstance(loader, BytecodeLoader):
        others.append(name)
print([type(finder).__name__ for finder in sys.meta_path].count("BytecodeFinder"), others)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("1 ['attr._make']", "")
