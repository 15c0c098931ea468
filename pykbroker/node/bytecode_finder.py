"""Quick import of the modules of packages: found in a listing of the package's directory, and read from their bytecode.

Python takes 80 us to find and to read a module of a package: its finder asks for the state of the directory and of the
file, and its loader reads the bytecode through a file object. A broker has 300 such modules when it is ready. Here each
directory is listed once, and the bytecode is opened at once. It is compared with its source as Python does it.

Top-level modules, extension modules, packages of several directories, and bytecode that is missing, old or of another
form are left to Python.
"""

from __future__ import annotations

import importlib
import marshal
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, ModuleType

_set_file_name: Callable[[CodeType, str], None] | None = getattr(
    importlib.import_module("_imp"), "_fix_co_filename", None
)

_READ = 1 << 16
"""Bytes of one read. Nearly all files of bytecode are smaller."""

_HEADER = 16
_OF_TIME_AND_SIZE = MAGIC_NUMBER + bytes(4)
"""Beginning of the header of bytecode that is valid for a source of a certain time and size, which follow (PEP 552)."""

_MASK = 0xFFFFFFFF


def import_from_bytecode() -> None:
    """Has the modules of packages imported in this way in this process."""
    if sys.pycache_prefix is None and not any(isinstance(finder, BytecodeFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, BytecodeFinder())


class BytecodeFinder:
    """A finder for `sys.meta_path`."""

    def __init__(self) -> None:
        self._listings: dict[str, frozenset[str]] = {}
        directory, name = os.path.split(cache_from_source("module.py"))
        self._prefix = os.sep + directory + os.sep
        self._suffix = name.removeprefix("module")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a Python file, or of a package with `__init__.py`, in a package of one directory; else None."""
        if not isinstance(path, list) or len(path) != 1:
            return None
        directory = path[0]
        if not os.path.isabs(directory):
            return None
        name = fullname.rpartition(".")[2]
        names = self._names(directory)
        locations = None
        if name in names:
            directory += os.sep + name
            names = self._names(directory)
            locations = [directory]
            name = "__init__"
        # An extension module has priority over a Python file of the same name.
        if f"{name}.py" not in names or any(name + suffix in names for suffix in EXTENSION_SUFFIXES):
            return None
        bytecode = f"{directory}{self._prefix}{name}{self._suffix}"
        loader = BytecodeLoader(fullname, f"{directory}{os.sep}{name}.py", bytecode)
        spec = ModuleSpec(fullname, loader, origin=loader.path)
        spec.submodule_search_locations = locations
        spec.cached = bytecode
        spec.has_location = True
        return spec

    def _names(self, directory: str) -> frozenset[str]:
        names = self._listings.get(directory)
        if names is None:
            try:
                names = frozenset(os.listdir(directory))
            except OSError:
                # In a zip file, or a file of this name that is no directory.
                names = frozenset()
            self._listings[directory] = names
        return names

    def invalidate_caches(self) -> None:
        """Forgets the listings, for `importlib.invalidate_caches`."""
        self._listings.clear()


class BytecodeLoader(SourceFileLoader):
    """Loads a Python file from its bytecode.

    Args:
        fullname: name of the module.
        path: path of its source.
        bytecode: path of its bytecode.
    """

    def __init__(self, fullname: str, path: str, bytecode: str) -> None:
        super().__init__(fullname, path)
        self._bytecode = bytecode

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code: of the bytecode if it belongs to the source, else as Python finds it."""
        try:
            content = _content_of(self._bytecode)
            source = os.stat(self.path)
        except OSError:
            return super().get_code(fullname)
        time, size = int(source.st_mtime) & _MASK, source.st_size & _MASK
        if content[:_HEADER] != _OF_TIME_AND_SIZE + time.to_bytes(4, "little") + size.to_bytes(4, "little"):
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(content)[_HEADER:])  # noqa: S302  Python's own bytecode
        if code.co_filename != self.path:
            # The source was compiled under another path.
            if _set_file_name is None:  # pragma: no cover: another Python than CPython
                return super().get_code(fullname)
            _set_file_name(code, self.path)
        return code


def _content_of(path: str) -> bytes:
    """Content of a file, in fewer system calls than by a file object."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _READ)
        if len(content) < _READ:
            return content
        parts = [content]
        while parts[-1]:
            parts.append(os.read(descriptor, _READ))
        return b"".join(parts)
    finally:
        os.close(descriptor)
