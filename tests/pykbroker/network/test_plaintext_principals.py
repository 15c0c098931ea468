"""A user's principal builder on a listener with neither TLS nor SASL."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from pykbroker.network.listener import Listener, bind
from pykbroker.security.principals import AuthenticationContext, CheckedPrincipalBuilder
from tests.support.data_path import DataPath, cluster_image


class ByListener:
    """Names clients by their listener, and refuses those of one."""

    def build(self, context: AuthenticationContext) -> str:
        assert (context.client_host, context.mechanism, context.principal) == (
            "127.0.0.1",
            "PLAINTEXT",
            "User:ANONYMOUS",
        )
        if context.listener_name == "CLOSED":
            raise ValueError("nobody")
        return f"User:of {context.listener_name}"


@pytest.mark.parametrize(("name", "principals"), [("CLIENT", ["User:of CLIENT"]), ("CLOSED", [])])
async def test_the_builder_names_clients_without_a_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, principals: list[str]
) -> None:
    """P-331."""
    path = DataPath(tmp_path, cluster_image())
    services = path.services.replaced(principal_builder=CheckedPrincipalBuilder(ByListener()))
    listener = Listener(name, bind("127.0.0.1", 0), services)
    async with trio.open_nursery() as nursery:
        listener.open()
        nursery.start_soon(listener.serve, nursery)
        with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as client:
            for _ in range(3):
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert [connection.info.principal for connection in listener.connections] == principals
            if not principals:
                assert client.recv(1) == b""
                assert "ByListener has refused User:ANONYMOUS" in caplog.text
        nursery.cancel_scope.cancel()
    path.close()
