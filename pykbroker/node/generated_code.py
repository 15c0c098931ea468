"""Bytecode of source texts that libraries make while they are imported, kept in a file beside Python's own bytecode.

attrs compiles the methods of each class that it makes, and trio has 79 such classes: 15 ms at each start of a broker.
`CompiledTexts` compiles a text once and keeps the bytecode as Python keeps that of modules: in `__pycache__`, not if
PYTHONDONTWRITEBYTECODE is set, and silently not where that directory cannot be written. The bytecode is found by the
whole text and the name of its file, so it is right whatever version of a library made the text.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib
from contextlib import suppress
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import CodeType

_Compiled = dict[tuple[str, str], bytes]


class CompiledTexts:
    """The bytecode of texts, in a file.

    Args:
        source: path of the Python file in whose `__pycache__` the file is.
    """

    def __init__(self, source: str) -> None:
        self._path = cache_from_source(source).removesuffix(".pyc") + ".generated"
        self._prefix = MAGIC_NUMBER + sys.flags.optimize.to_bytes(1, "big")
        self._found = self._read()
        self._used: _Compiled = {}
        self._has_new = False

    def compile(self, text: str, file_name: str, mode: str) -> CodeType:
        """The code object of a text, as the built-in function `compile` makes it."""
        key = (text, file_name)
        kept = self._found.get(key) if mode == "exec" else None
        if kept is not None:
            self._used[key] = kept
            made: CodeType = marshal.loads(kept)  # noqa: S302  our own file, trusted as bytecode is
            return made
        made = compile(text, file_name, mode, dont_inherit=True)
        if mode == "exec":
            self._used[key] = marshal.dumps(made)
            self._has_new = True
        return made

    def save(self) -> None:
        """Writes the file, if texts were compiled that it does not have; it keeps only those that were used."""
        if not self._has_new or sys.dont_write_bytecode:
            return
        content = marshal.dumps(self._used)
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(self._prefix + zlib.crc32(content).to_bytes(4, "big") + content)
            os.replace(temporary, self._path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)

    def _read(self) -> _Compiled:
        try:
            with open(self._path, "rb") as file:
                content = memoryview(file.read())
        except OSError:
            return {}
        start = len(self._prefix) + 4
        check = zlib.crc32(content[start:]).to_bytes(4, "big")
        # The checksum finds a file that was cut off, for example by a loss of power.
        if content[:start] != self._prefix + check:
            return {}
        found: _Compiled = marshal.loads(content[start:])  # noqa: S302  our own file, trusted as bytecode is
        return found
