"""The ground on which the operations of `Cluster` stand: an admin client, and requests with explained errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ClusterCalls:
    """Base of the classes that `Cluster` is made of; `Cluster` opens the connection and implements the calls."""

    _admin: Any
    """A KafkaAdminClient."""

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Call a method of the admin client, again while the cluster says "not yet"; raises CliError."""
        raise NotImplementedError

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        """Send one of the client library's requests to a broker (None: any) and return its response; raises CliError.

        The error codes in the response are the caller's.
        """
        raise NotImplementedError
