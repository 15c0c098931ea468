"""A mend of kafka-python for tests, where an unclosed socket is an error.

kafka-python 3.0 leaves the socket of a refused connection to the garbage collector. Its ResourceWarning would come in
whatever test runs when that collects.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    # It loads its message definitions through deprecated functions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.inet import KafkaNetSocket


def close_refused_sockets(patch: pytest.MonkeyPatch) -> None:
    """Sockets whose connection is refused or given up are closed at once, until the patch is undone."""
    connect = KafkaNetSocket.sock_connect

    async def connect_or_close(self: Any, net: Any, sock: Any, *words: Any, **options: Any) -> Any:
        try:
            return await connect(self, net, sock, *words, **options)
        except BaseException:
            sock.close()
            raise

    patch.setattr(KafkaNetSocket, "sock_connect", connect_or_close)
