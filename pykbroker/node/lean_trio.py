"""Import of trio without the modules that only a part of it uses, which no plain broker does.

trio imports idna, ssl, hashlib and hmac at once, and ctypes.util, which runs ldconfig to find a library. During the
import each of them is replaced by a stand-in, which imports the module at its first use. Only trio has the stand-ins:
afterwards `import ssl` imports ssl as usual. This saves 5 of 34 MB of an idle broker (measured on CPython 3.11 and
trio 0.35).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final

from pykbroker.node.process_memory import has_glibc

STOOD_IN_FOR: Final = ("idna", "ssl", "hashlib", "hmac")
"""Modules that trio imports and does not use while it is imported."""

_CTYPES_UTIL: Final = "ctypes.util"


class StandIn(ModuleType):
    """A module that is imported when one of its names is first looked up."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Look-ups by the import system must not import the module.
            raise AttributeError(name)
        module = self.__name__
        if sys.modules.get(module) is self:
            del sys.modules[module]
        found = importlib.import_module(module)
        # From now on the look-up of a name costs no more than in the module.
        self.__dict__.update(vars(found))
        return getattr(found, name)


def import_trio() -> None:
    """Imports trio, if it is not imported yet."""
    if "trio" in sys.modules:
        return
    stand_ins = {name: StandIn(name) for name in STOOD_IN_FOR if name not in sys.modules}
    ctypes = _without_ldconfig(stand_ins)
    sys.modules.update(stand_ins)
    try:
        importlib.import_module("trio")
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
        if ctypes is not None:
            vars(ctypes).pop("util", None)


def _without_ldconfig(stand_ins: dict[str, StandIn]) -> ModuleType | None:
    """Adds a stand-in for ctypes.util; returns the package ctypes, or None where ldconfig is needed."""
    if _CTYPES_UTIL in sys.modules or not has_glibc():
        return None
    ctypes = importlib.import_module("ctypes")
    util = stand_ins[_CTYPES_UTIL] = StandIn(_CTYPES_UTIL)
    # trio looks for the function that names a thread, which glibc has.
    vars(util)["find_library"] = {"pthread": "libpthread.so.0"}.get
    vars(ctypes)["util"] = util
    return ctypes
