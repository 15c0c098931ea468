"""Base of the operations of `Cluster`: an admin client, and requests with explained errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""


class ClusterCalls:
    """Base of the classes that `Cluster` is made of; `Cluster` opens the connection and implements the calls."""

    _admin: Any
    """A KafkaAdminClient."""

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Calls a method of the admin client, and repeats the call on retriable errors; raises CliError."""
        raise NotImplementedError

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        """Sends one of the client library's requests to a broker (None: any) and returns its response; raises CliError.

        The caller checks the error codes in the response.
        """
        raise NotImplementedError

    def _ask_coordinator(
        self, coordinator_type: int, key: str, request: Any, error_code_of: Callable[[Any], int]
    ) -> tuple[int, Any]:
        """Sends a request to the coordinator of a key; returns that broker's id and the response.

        On a retriable error the coordinator is looked up again and the request repeated, until the deadline.

        Raises:
            CliError: no coordinator was found, or the error lasted. The caller checks all other error codes.
        """
        from kafka.errors import RetriableError, for_code
        from kafka.protocol.metadata import FindCoordinatorRequest

        manager = self._admin._manager

        def ask() -> tuple[int, Any]:
            # Version 3 is the last one with a single key; every Kafka serves it or an older one.
            find = FindCoordinatorRequest(key=key, key_type=coordinator_type, max_version=3)
            found = manager.run(manager.send, find, None)
            if found.error_code:
                raise for_code(found.error_code)(found.error_message or "")
            response = manager.run(manager.send, request, found.node_id)
            error = for_code(error_code_of(response))
            if issubclass(error, RetriableError):
                raise error
            return found.node_id, response

        answer: tuple[int, Any] = self._ask(ask)
        return answer
