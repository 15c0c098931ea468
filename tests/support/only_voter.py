"""Settings of a node that is a broker and the only voter, and has a port for controllers beside that for clients."""

from __future__ import annotations

from interop_tests.ports import free_port


def only_voter(controller_port: int) -> dict[str, str | float]:
    """For `LocalBroker(config=...)`; without a controllers' listener such a node has none."""
    return {
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "node.id": 1,
    }
