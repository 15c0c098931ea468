"""CRC-32C, by the extension module inside the `crc32c` package.

Only the extension is loaded. The package around it imports importlib.metadata, argparse and ctypes, for its version
number and a command-line tool: a twelfth of what a broker executes until it answers its first request, and 2 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import Any

_EXTENSION = "crc32c._crc32c"


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        found = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
        if found is not None and isinstance(found.loader, ExtensionFileLoader):
            extension: Any = found.loader.create_module(found)
            found.loader.exec_module(extension)
            loaded: Callable[..., int] = extension.crc32c
            return loaded
    # Installed in some other way: whatever `import` finds.
    from crc32c import crc32c as imported

    return imported


crc32c: Callable[..., int] = _load()
"""`crc32c(data, value=0)`: the CRC-32C of bytes-like `data`, continued from `value`."""
