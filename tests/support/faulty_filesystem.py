"""The real file system with calls that fail when they are told to: for whole brokers, whose bytes leave by sendfile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import Any

from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import OsFileSystem

# Those that the system can refuse; `trim` and `unlock` are a part of others.
METHODS = (
    "open",
    "close",
    "read",
    "append",
    "append_mapped",
    "trim_idle",
    "truncate",
    "sync",
    "sync_file",
    "view",
    "file_size",
    "modified_ms",
    "list",
    "read_file",
    "write_file",
    "create_file",
    "rename",
    "remove",
    "make_directory",
    "remove_tree",
    "sync_directory",
    "sync_volume",
    "lock",
    "space",
)


class FaultyFileSystem(OsFileSystem):
    """Counts its calls in `clock`; those whose numbers are in `faults` raise StorageError."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0
        self.faults: Container[int] = ()
        self._lock = threading.Lock()
        for name in METHODS:
            setattr(self, name, self._wrapped(name, getattr(self, name)))

    def _wrapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                number = self.clock
                self.clock += 1
            if number not in self.faults:
                return method(*arguments, **options)
            if name == "close":
                method(*arguments)
            path = next((text for text in arguments if isinstance(text, str)), "file")
            raise StorageError(path, f"Input/output error at call {number}, {name}")

        return call
