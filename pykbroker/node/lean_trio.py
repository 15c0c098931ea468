"""Import of trio without the modules that only a part of it uses, which no plain broker does.

trio and attrs import idna, ssl, hashlib, inspect, subprocess, traceback and others at once, and ctypes.util, which runs
ldconfig to find a library. During the import each of them is replaced by a stand-in, which imports the module at its
first use. Only trio and attrs have the stand-ins: afterwards `import ssl` imports ssl as usual. Parts of trio itself
come late, too (late_parts.py). This saves 5 of 34 MB
of an idle broker and 11 ms of its start (measured on CPython 3.11 and trio 0.35).
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

from pykbroker.node.generated_code import CompiledTexts
from pykbroker.node.late_parts import import_with_late_parts
from pykbroker.node.process_memory import has_glibc

STOOD_IN_FOR: Final = ("idna", "ssl", "hashlib", "hmac", "inspect", "platform", "subprocess", "tokenize", "traceback")
"""Modules that trio and attrs import and hardly use while they are imported."""

_ATTRS: Final = "attr._make"
_CTYPES_UTIL: Final = "ctypes.util"


class StandIn(ModuleType):  # pragma: no cover: tests import trio in processes of their own
    """A module that is imported when one of its names is first looked up."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Look-ups by the import system must not import the module.
            raise AttributeError(name)
        module = self.__name__
        if sys.modules.get(module) is self:
            del sys.modules[module]
        found = importlib.import_module(module)
        # Later look-ups of names take no longer than in the module itself.
        self.__dict__.update(vars(found))
        return getattr(found, name)


def import_trio() -> None:  # pragma: no cover: tests import trio in processes of their own
    """Imports trio, if it is not imported yet."""
    if "trio" in sys.modules:
        return
    stand_ins = {name: StandIn(name) for name in STOOD_IN_FOR if name not in sys.modules}
    ctypes = _without_ldconfig(stand_ins)
    answers = _install_answers(stand_ins)
    sys.modules.update(stand_ins)
    try:
        with _kept_bytecode():
            import_with_late_parts()
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
        for stand_in, name, answer in answers:
            if vars(stand_in).get(name) is answer:
                delattr(stand_in, name)
        if ctypes is not None:
            vars(ctypes).pop("util", None)


@contextmanager
def _kept_bytecode() -> Iterator[None]:  # pragma: no cover: tests import trio in processes of their own
    """Methods that attrs makes in the block are compiled once, and their bytecode is kept for other starts.

    attrs makes classes of its own already while it is imported, so its module gets our functions before it is executed.
    """
    if _ATTRS in sys.modules:
        yield
        return
    texts = CompiledTexts(__file__)
    # attrs writes the hash of a class's name into its texts, as salt: a number that is another one in each process.
    finder: Any = _FinderOfAttrs({"compile": texts.compile, "hash": _same_hash})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.names if _ATTRS in sys.modules else ():
            vars(sys.modules[_ATTRS]).pop(name, None)
    texts.save()


class _FinderOfAttrs:  # pragma: no cover: tests import trio in processes of their own
    """Finds the module of attrs that makes classes, and puts names into it before it is executed."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _ATTRS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                vars(module).update(self.names)
                execute(module)

            vars(spec.loader)["exec_module"] = exec_module
        return spec


def _same_hash(value: object) -> int:  # pragma: no cover: tests import trio in processes of their own
    return zlib.crc32(value.encode()) if isinstance(value, str) else hash(value)


def _without_ldconfig(  # pragma: no cover: tests import trio in processes of their own
    stand_ins: dict[str, StandIn],
) -> ModuleType | None:
    """Adds a stand-in for ctypes.util; returns the package ctypes, or None where ldconfig is needed."""
    if _CTYPES_UTIL in sys.modules or not has_glibc():
        return None
    ctypes = importlib.import_module("ctypes")
    util = stand_ins[_CTYPES_UTIL] = StandIn(_CTYPES_UTIL)
    # trio looks for the function that names a thread, which glibc has.
    vars(util)["find_library"] = {"pthread": "libpthread.so.0"}.get
    vars(ctypes)["util"] = util
    return ctypes


def _install_answers(  # pragma: no cover: tests import trio in processes of their own
    stand_ins: dict[str, StandIn],
) -> list[tuple[StandIn, str, Any]]:
    """Gives stand-ins the functions that are called during the import; returns them, to be removed after it."""
    answers = []
    for module, name, answer in (
        # attrs asks whether this is PyPy.
        ("platform", "python_implementation", _python_implementation),
        # attrs annotates a constructor's parameter with the type that its converter takes, if that can be found.
        ("inspect", "signature", _no_signature),
        # trio.Path has the documentation of pathlib.Path's methods, which are indented otherwise.
        ("inspect", "cleandoc", str),
    ):
        if module in stand_ins:
            vars(stand_ins[module])[name] = answer
            answers.append((stand_ins[module], name, answer))
    return answers


def _python_implementation() -> str:  # pragma: no cover: tests import trio in processes of their own
    return {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, sys.implementation.name)


def _no_signature(_: object) -> None:  # pragma: no cover: tests import trio in processes of their own
    raise ValueError("no signature during the import of trio")
