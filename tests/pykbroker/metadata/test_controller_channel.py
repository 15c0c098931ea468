"""The connections over which a broker asks the active controller."""

from __future__ import annotations

from typing import Any

import trio

from pykbroker.controller.node_client import NodeAddress
from pykbroker.metadata.controller_channel import ControllerChannel

OLD, NEW = NodeAddress("old", 9093), NodeAddress("new", 9093)


class SlowClient:
    """A connection whose end takes a while."""

    def __init__(self, address: NodeAddress) -> None:
        self.address = address
        self.closed = 0

    async def close(self) -> None:
        await trio.sleep(1)
        self.closed += 1


async def test_connections_to_an_earlier_controller_are_closed_once() -> None:
    """Several requests may find at the same moment that another controller is the active one."""
    unused: Any = None
    channel = ControllerChannel(unused, unused, unused, unused, client_id="test", request_timeout_ms=1000)
    old = [SlowClient(OLD), SlowClient(OLD)]
    idle: Any = [*old, SlowClient(NEW)]
    channel._idle = idle[:]
    found: list[Any] = []

    async def ask() -> None:
        found.append(await channel._client(NEW))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert [client.closed for client in old] == [1, 1]
    assert [client.address for client in found] == [NEW, NEW, NEW]
    assert sum(client is idle[2] for client in found) == 1
    assert not channel._idle
