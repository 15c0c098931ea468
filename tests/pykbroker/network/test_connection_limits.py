"""Limits on connections: of the broker, a listener, an address and the rate, in virtual time."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.network.connection_limits import ConnectionLimits, parse_overrides
from pykbroker.network.listener import Listener, ListenerLimits, bind
from pykbroker.quotas.switch import QuotaSwitch
from tests.support.data_path import DataPath, cluster_image

TWO_LISTENERS = "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0"


@asynccontextmanager
async def listening(folder: Path, **settings: str) -> AsyncIterator[tuple[dict[str, Listener], ListenerLimits]]:
    """Listeners by name, served until the block ends."""
    properties = {key.replace("_", "."): value for key, value in settings.items()}
    path = DataPath(folder, cluster_image(), properties)
    limits = ListenerLimits(path.services)
    listeners = {
        address.name: Listener(address.name, bind("127.0.0.1", 0), path.services, None, limits)
        for address in path.services.config.network.listeners
    }
    async with trio.open_nursery() as nursery:
        for listener in listeners.values():
            listener.open()
            nursery.start_soon(listener.serve, nursery)
        yield listeners, limits
        nursery.cancel_scope.cancel()
    path.close()


async def settled() -> None:
    """Until nothing more happens: the kernel's part included."""
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.fixture
def connect() -> Any:
    opened = []

    def connect(listener: Listener) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", listener.port), timeout=5)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


Connect = Callable[[Listener], socket.socket]


async def test_at_max_connections_clients_wait_in_the_backlog(tmp_path: Path, connect: Connect) -> None:
    """As in Kafka: nobody is refused, the next one is accepted when one goes."""
    async with listening(tmp_path, max_connections="2") as (listeners, limits):
        listener = listeners["PLAINTEXT"]
        clients = [connect(listener) for _ in range(3)]
        await settled()
        assert (len(listener.connections), limits.connections.count) == (2, 2)
        clients[0].close()
        await settled()
        assert len(listener.connections) == 2
        clients[1].close()
        await settled()
        assert len(listener.connections) == 1


async def test_the_limit_is_of_all_listeners_and_one_may_have_a_lower(tmp_path: Path, connect: Connect) -> None:
    settings = {
        "listeners": f"{TWO_LISTENERS},INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": (
            "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listener_name_external_max_connections": "1",
        "inter_broker_listener_name": "INTERNAL",
        "max_connections": "3",
    }
    async with listening(tmp_path, **settings) as (listeners, limits):
        for name in ("EXTERNAL", "EXTERNAL", "PLAINTEXT", "PLAINTEXT", "PLAINTEXT"):
            connect(listeners[name])
            await settled()
        counts = {name: len(listener.connections) for name, listener in listeners.items()}
        assert counts == {"EXTERNAL": 1, "PLAINTEXT": 2, "INTERNAL": 0}
        assert limits.connections.count == 3


async def test_the_inter_broker_listener_gets_in_and_the_least_recently_used_goes(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "listeners": TWO_LISTENERS,
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "max_connections": "2",
    }
    async with listening(tmp_path, **settings) as (listeners, _):
        oldest = connect(listeners["EXTERNAL"])
        await settled()
        await trio.sleep(5)
        connect(listeners["EXTERNAL"])
        await settled()
        connect(listeners["PLAINTEXT"])
        await settled()
        assert {name: len(listener.connections) for name, listener in listeners.items()} == {
            "EXTERNAL": 1,
            "PLAINTEXT": 1,
        }
        assert oldest.recv(1) == b""
    assert "the inter-broker listener needs one" in caplog.text


async def test_addresses_may_have_limits_of_their_own(tmp_path: Path, connect: Connect) -> None:
    settings = {"max_connections_per_ip": "0", "max_connections_per_ip_overrides": "127.0.0.1:2,10.0.0.1:7"}
    async with listening(tmp_path, **settings) as (listeners, _):
        clients = [connect(listeners["PLAINTEXT"]) for _ in range(3)]
        await settled()
        assert len(listeners["PLAINTEXT"].connections) == 2
        assert clients[2].recv(1) == b""


async def test_new_connections_per_second(tmp_path: Path, connect: Connect) -> None:
    """P-305: max.connection.creation.rate holds over Kafka's windows: twenty at once, then one each half second."""
    async with listening(tmp_path, max_connection_creation_rate="2") as (listeners, _):
        listener = listeners["PLAINTEXT"]
        for _ in range(24):
            connect(listener)
        await trio.testing.wait_all_tasks_blocked()
        assert len(listener.connections) <= 20
        began = trio.current_time()
        while len(listener.connections) < 24:
            await trio.sleep(0.5)
        # Two of these looks come at the instant of an accept, before or after it.
        assert 1.5 <= trio.current_time() - began <= 4


class QuietListener:
    """A listener that accepts nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[UsedConnection] = []


class UsedConnection:
    """A connection that notes why it was closed."""

    def __init__(self, last_used: float) -> None:
        self.last_used = last_used
        self.reason: str | None = None

    def close(self, reason: str) -> None:
        self.reason = reason


def test_connections_above_a_lower_limit_are_closed() -> None:
    """P-390: the least recently used ones of all listeners but the one between brokers."""
    settings = {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "max.connections": "6", **LISTENERS}
    config = BrokerConfig.from_properties(settings)
    limits = ConnectionLimits(lambda: config)
    listeners = {name: QuietListener(name) for name in "AB"}
    for listener in listeners.values():
        limits.add_listener(listener)
    opened = {"A": [UsedConnection(used) for used in (3, 1, 2)], "B": [UsedConnection(0)]}
    for name, connections in opened.items():
        listeners[name].connections = connections
        for _ in connections:
            assert limits.admit(listeners[name], "127.0.0.1") is None
    limits.settings_changed()
    assert [connection.reason for connection in opened["A"]] == [None, None, None]
    config = BrokerConfig.from_properties({**settings, "max.connections": "2"})
    limits.settings_changed()
    assert [connection.reason is not None for connection in opened["A"]] == [False, True, True]
    assert "max.connections, which is lower now" in str(opened["A"][1].reason)
    assert opened["B"][0].reason is None


async def delays(settings: dict[str, str], *names: str) -> list[float]:
    """Seconds for which a connection to each of these listeners, one after the other, was held back."""
    config = BrokerConfig.from_properties({"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", **LISTENERS, **settings})
    limits = ConnectionLimits(lambda: config)
    listeners: dict[str, Any] = {name: QuietListener(name) for name in ("A", "B")}
    for listener in listeners.values():
        limits.add_listener(listener)
    found = []
    for name in names:
        began = trio.current_time()
        await limits.throttle_creation(listeners[name])
        found.append(round(trio.current_time() - began, 3))
    return found


LISTENERS = {
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "B",
}


async def test_the_delay_is_that_of_quotas() -> None:
    """P-305: (rate - limit) / limit of the windows, at most one window; the first ten windows count from the start."""
    one = {"max.connection.creation.rate": "1"}
    assert await delays(one, *["A"] * 12) == [0.0] * 10 + [1.0, 1.0]
    assert await delays({"max.connection.creation.rate": "4"}, *["A"] * 42) == [0.0] * 40 + [0.25, 0.25]
    longer = one | {"quota.window.num": "3", "quota.window.size.seconds": "5"}
    assert await delays(longer, *["A"] * 12) == [0.0] * 10 + [1.0, 1.0]
    assert await delays({"max.connection.creation.rate": "0"}, "A") == [1.0]


async def test_the_inter_broker_listener_has_its_own_rate() -> None:
    """P-305: it does not count for the broker's, and a listener's limit takes the place of none."""
    settings = {"max.connection.creation.rate": "1", "listener.name.b.max.connection.creation.rate": "100"}
    assert await delays(settings, *["B"] * 20, *["A"] * 11) == [0.0] * 30 + [1.0]
    narrow = {"listener.name.a.max.connection.creation.rate": "1"}
    assert await delays(narrow, *["A"] * 11, *["B"] * 20) == [0.0] * 10 + [1.0] + [0.0] * 20


async def test_overrides_of_host_names_are_resolved_in_the_background() -> None:
    config = BrokerConfig.from_properties(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.2:1,localhost:1"}
    )
    switch = QuotaSwitch(config)
    limits = ConnectionLimits(lambda: config, switch)
    listener: Any = QuietListener("A")
    assert limits.admit(listener, "127.0.0.2") is None
    assert "maximum of 0" in str(limits.admit(listener, "127.0.0.1"))
    async with trio.open_nursery() as nursery:
        switch.begin(nursery)
    assert limits.admit(listener, "127.0.0.1") is None
    assert "maximum of 1" in str(limits.admit(listener, "127.0.0.1"))


def test_overrides() -> None:
    found = parse_overrides("127.0.0.1:5, [::1]:6,no.such.host.invalid:7")
    assert dict(found) == {"127.0.0.1": 5, "::1": 6, "no.such.host.invalid": 7}
    with pytest.raises(ValueError, match="host:count"):
        parse_overrides("127.0.0.1")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"max.connections.per.ip.overrides": "localhost"}, "max.connections.per.ip.overrides"),
        ({"queued.max.request.bytes": "1000"}, "queued.max.request.bytes"),
    ],
)
def test_limits_that_cannot_be(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(settings)
    assert refused.value.name == key
