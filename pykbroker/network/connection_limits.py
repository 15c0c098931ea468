"""Limits on connections: in all, of one listener, from one address, and new ones per second.

As Kafka's ConnectionQuotas: at `max.connections` (of the broker or of a listener) and above
`max.connection.creation.rate` nobody is accepted and clients wait in the backlog; only a connection above
`max.connections.per.ip` is closed at once. The inter-broker listener, where it is not the only one, is let in above the
broker's limit; then the least recently used connection of another listener goes.
"""

from __future__ import annotations

import math
import resource
import socket
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pykbroker.config.broker_config import BrokerConfig

RATE_SECONDS = 11
"""Kafka's rates look back over eleven samples of a second (`quota.window.num`)."""

UNLIMITED = 2**31 - 1

LOG_SHARE = 4
DESCRIPTORS_RESERVED = 64
"""Of the process's open files: one in so many is for segments (see `broker.DESCRIPTORS_KEPT`), and some are for what is
opened for a moment."""

DELAY_MAX_S = 1.0
"""Longest single pause for the rate; then it is looked at again."""


class AcceptanceRate:
    """New connections over the last seconds, a counter for each."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def record(self, now: float) -> None:
        """Counts one."""
        second = math.floor(now)
        self._counts[second] = self._counts.get(second, 0) + 1
        for old in [known for known in self._counts if known <= second - RATE_SECONDS]:
            del self._counts[old]

    def delay_s(self, limit_per_second: int, now: float) -> float:
        """Seconds to wait before the next connection keeps to the rate; at most `DELAY_MAX_S`, 0.0 for no wait."""
        oldest = math.floor(now) - RATE_SECONDS
        count = sum(number for second, number in self._counts.items() if second > oldest)
        excess = count + 1 - limit_per_second * (RATE_SECONDS - 1)
        return min(DELAY_MAX_S, excess / max(limit_per_second, 1)) if excess > 0 else 0.0


class LimitedConnection(Protocol):
    """A connection that may be closed in favour of one between brokers."""

    @property
    def last_used(self) -> float:
        """The time of trio's clock at which bytes last came, in seconds."""

    def close(self, reason: str) -> None: ...


class LimitedListener(Protocol):
    """A listener whose connections are counted."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> Collection[LimitedConnection]: ...


class ConnectionLimits:
    """The connections of all listeners, counted.

    Args:
        config: gives the settings as they are now: all limits here may be changed while the broker runs.
    """

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._listeners: list[LimitedListener] = []
        self._by_host: dict[str, int] = {}
        self._rate = AcceptanceRate()
        self._listener_rates: dict[str, AcceptanceRate] = {}
        self._overrides: tuple[str, dict[str, int]] = "", {}
        self._freed = trio.Event()
        self._capacity = connection_capacity()
        self.count = 0

    def add_listener(self, listener: LimitedListener) -> None:
        """Every listener has to be known: a limit of the broker is about all of them."""
        self._listeners.append(listener)
        self._listener_rates[listener.name] = AcceptanceRate()

    async def wait_for_slot(self, listener: LimitedListener) -> None:
        """Returns when the listener may accept one more."""
        while not self._has_slot(listener):
            await self._freed.wait()

    async def keep_to_rate(self, listener: LimitedListener) -> None:
        """Waits as long as a connection that was accepted has to, for the sake of the rate."""
        config = self._config()
        rates = [(int(config.listener_property(listener.name, "max.connection.creation.rate") or 0), listener.name)]
        if not self._is_protected(listener, config):
            rates.append((config.connections.max_creation_rate, ""))
        for limit, name in rates:
            if limit == UNLIMITED:
                continue
            rate = self._listener_rates[name] if name else self._rate
            delay_s = rate.delay_s(limit, trio.current_time())
            while delay_s:
                await trio.sleep(delay_s)
                delay_s = rate.delay_s(limit, trio.current_time())
            rate.record(trio.current_time())

    def admit(self, listener: LimitedListener, host: str) -> str | None:
        """Counts a connection that was accepted; gives the reason why it must be closed instead, if there is one."""
        config = self._config()
        per_host = self._by_host.get(host, 0)
        limit = self._limit_of(host, config)
        if per_host >= limit:
            return f"its address already has the configured maximum of {limit} connections (max.connections.per.ip)"
        self._by_host[host] = per_host + 1
        self.count += 1
        if self.count > config.connections.max_total and self._is_protected(listener, config):
            self._close_least_recently_used(listener)
        return None

    def leave(self, host: str) -> None:
        """A connection that was admitted is closed."""
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self.look_again()

    def look_again(self) -> None:
        """Wakes listeners that wait for a slot: a connection went, or a limit was changed."""
        self._freed.set()
        self._freed = trio.Event()

    def _has_slot(self, listener: LimitedListener) -> bool:
        if self.count >= self._capacity:
            return False
        config = self._config()
        if len(listener.connections) >= int(config.listener_property(listener.name, "max.connections") or 0):
            return False
        return self._is_protected(listener, config) or self.count < config.connections.max_total

    def _is_protected(self, listener: LimitedListener, config: BrokerConfig) -> bool:
        return len(self._listeners) > 1 and listener.name == config.network.inter_broker_listener

    def _limit_of(self, host: str, config: BrokerConfig) -> int:
        text = config.connections.max_per_ip_overrides
        if text != self._overrides[0]:
            self._overrides = text, dict(parse_overrides(text))
        return self._overrides[1].get(host, config.connections.max_per_ip)

    def _close_least_recently_used(self, but_not_of: LimitedListener) -> None:
        others = [
            connection
            for listener in self._listeners
            if listener is not but_not_of
            for connection in listener.connections
        ]
        if others:
            min(others, key=lambda connection: connection.last_used).close(
                "the broker has max.connections, and the inter-broker listener needs one"
            )


def connection_capacity() -> int:
    """Connections that the process's limit of open files leaves room for.

    Kafka accepts until nothing can be opened, and then its own logs fail. Here logs keep a quarter of the descriptors.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    return max(1, soft - soft // LOG_SHARE - DESCRIPTORS_RESERVED)


def parse_overrides(text: str) -> list[tuple[str, int]]:
    """``host:count,host:count`` as addresses and counts; a name stands for all its addresses, or for none.

    Raises:
        ValueError: an entry is not of that form.
    """
    found: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not count.strip().isdigit():
            raise ValueError(f"{entry!r} is not of the form host:count")
        try:
            addresses = {info[4][0] for info in socket.getaddrinfo(host.strip().strip("[]"), None)}
        except OSError:
            addresses = set()
        found.extend((str(address), int(count)) for address in addresses)
    return found
