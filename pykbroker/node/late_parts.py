"""Import of trio without parts that a broker does not use: channels, DTLS, subprocesses, files and paths.

The packages `trio` and `trio.lowlevel` offer the names of all parts. While they are imported, a stand-in answers for
each late part, with a mark for each name. Afterwards the marks are removed, and the packages get a `__getattr__`
(PEP 562) that imports a part when one of its names is looked up. The rest of 7 ms of a start is that of pathlib and
urllib, which only these parts import (CPython 3.11, trio 0.35).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final

LATE: Final = ("trio._channel", "trio._dtls", "trio._file_io", "trio._path", "trio._ssl", "trio._subprocess")
"""Parts of trio that are imported at their first use."""

_OFFERING: Final = ("trio", "trio.lowlevel")
"""Packages in which the names of late parts are looked up."""


class _Mark:  # pragma: no cover: tests import trio in processes of their own
    """A name of a late part."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class _LatePart(ModuleType):  # pragma: no cover: tests import trio in processes of their own
    """Stands for a late part while trio is imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Look-ups by the import system.
            raise AttributeError(name)
        return _Mark(self.__name__, name)


def import_with_late_parts() -> None:  # pragma: no cover: tests import trio in processes of their own
    """Imports trio; parts of it follow when they are used.

    A trio whose modules use a late part while they are imported is imported as usual.
    """
    parts = {name: _LatePart(name) for name in LATE}
    sys.modules.update(parts)
    try:
        importlib.import_module("trio")
    except Exception:
        for name in [name for name in sys.modules if name == "trio" or name.startswith("trio.")]:
            del sys.modules[name]
        importlib.import_module("trio")
        return
    for name, part in parts.items():
        if sys.modules.get(name) is part:
            del sys.modules[name]
    for module in [module for name, module in sys.modules.items() if name == "trio" or name.startswith("trio.")]:
        _remove_marks(module)


def _remove_marks(module: ModuleType) -> None:  # pragma: no cover: tests import trio in processes of their own
    """Replaces marks in a module: by a look-up at their first use in the offering packages, elsewhere at once."""
    names = vars(module)
    late = {name: value for name, value in names.items() if isinstance(value, _Mark)}
    for name, value in list(names.items()):
        if isinstance(value, _LatePart):
            names[name] = importlib.import_module(value.__name__)
    if module.__name__ not in _OFFERING:
        for name, mark in late.items():
            names[name] = getattr(importlib.import_module(mark.module), mark.name)
        return
    if not late:
        return
    other_names = names.get("__getattr__")

    def look_up(name: str) -> Any:
        mark = late.get(name)
        if mark is None:
            if other_names is not None:
                return other_names(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        part = importlib.import_module(mark.module)
        values = {other: getattr(part, at.name) for other, at in late.items() if at.module == mark.module}
        # trio gives everything that a package offers the package's name, for its documentation and pickle.
        rename = getattr(importlib.import_module("trio._util"), "fixup_module_metadata", None)
        if rename is not None:
            rename(module.__name__, values)
        names.update(values)
        return values[name]

    for name in late:
        del names[name]
    names["__getattr__"] = look_up
