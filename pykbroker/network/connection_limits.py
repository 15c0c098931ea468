"""Limits on connections: in all, of one listener, from one address, and new ones per second.

As in Kafka's ConnectionQuotas: at `max.connections` (of the broker or of a listener) and above
`max.connection.creation.rate` the listener does not accept, and clients wait in the backlog. A connection above
`max.connections.per.ip` is closed at once, one above the quota of its address when its throttle time is over. An
inter-broker listener beside others accepts above the broker's limit; the least recently used connection of another
listener is then closed. When `max.connections` becomes lower, the connections above it are closed in the same order.
"""

from __future__ import annotations

import resource
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from pykbroker.quotas.switch import QuotaSwitch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.quotas.rates import WindowedRate

UNLIMITED = 2**31 - 1

LOG_SHARE = 4
DESCRIPTORS_RESERVED = 64
"""File descriptors that connections cannot use: one in `LOG_SHARE` is for segments (see `broker.DESCRIPTORS_KEPT`), and
`DESCRIPTORS_RESERVED` are for files that are open for a moment."""


class LimitedConnection(Protocol):
    """A connection that may be closed to make room for a connection of another broker."""

    @property
    def last_used(self) -> float:
        """Time of the last received bytes, in seconds of trio's clock."""

    def close(self, reason: str) -> None: ...


class LimitedListener(Protocol):
    """A listener whose connections are counted."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> Collection[LimitedConnection]: ...


class ConnectionLimits:
    """Counts the connections of all listeners and applies the limits.

    Args:
        config: returns the current settings: all limits here can be changed while the broker runs.
        quotas: client quotas, which limit new connections from single addresses.
    """

    def __init__(self, config: Callable[[], BrokerConfig], quotas: QuotaSwitch | None = None) -> None:
        self._config = config
        self._listeners: list[LimitedListener] = []
        self._by_host: dict[str, int] = {}
        # By listener, "" for the broker; made when one has a limit.
        self._rates: dict[str, WindowedRate] = {}
        self._quotas = QuotaSwitch() if quotas is None else quotas
        # Rates of addresses that have a quota and have opened a connection lately.
        self._address_rates: dict[str, WindowedRate] = {}
        self._overrides: tuple[str, dict[str, int]] = "", {}
        self._freed = trio.Event()
        self._capacity = connection_capacity()
        self.count = 0
        self._read_overrides(config())

    def add_listener(self, listener: LimitedListener) -> None:
        """Adds a listener to those whose connections count towards the broker's limits."""
        self._listeners.append(listener)

    def remove_listener(self, listener: LimitedListener) -> None:
        """Forgets a listener that was closed; its connections are counted until they have ended."""
        self._listeners.remove(listener)
        self._rates.pop(listener.name, None)

    async def wait_for_slot(self, listener: LimitedListener) -> None:
        """Returns when the listener may accept another connection."""
        while not self._has_slot(listener):
            await self._freed.wait()

    async def throttle_creation(self, listener: LimitedListener) -> None:
        """Delays an accepted connection until it keeps to the rates of its listener and of the broker (P-305).

        The longest delay is one window.
        """
        rates = self._rates_of(listener)
        if not rates:
            return
        now_ms = int(trio.current_time() * 1000)
        throttle_ms = 0
        for rate, limit in rates:
            rate.record(1, now_ms)
            throttle_ms = max(throttle_ms, rate.throttle_ms(limit, now_ms))
        if throttle_ms:
            await trio.sleep(min(throttle_ms, self._config().quotas.window_size_seconds * 1000) / 1000)

    def address_throttle_ms(self, listener: LimitedListener, host: str) -> int:
        """Time in ms after which an accepted connection is closed; 0 to serve it.

        It is closed if its address opens too many in too short a time (`connection_creation_rate`, KIP-612). A
        connection that is not served counts for no rate.
        """
        quotas = self._quotas.active
        limit = None if quotas is None else quotas.connection_limit(host)
        if quotas is None or limit is None:
            return 0
        from pykbroker.quotas.rates import WindowedRate

        now_ms = int(trio.current_time() * 1000)
        rate = self._address_rates.get(host)
        if rate is None:
            idle = [known for known, of_host in self._address_rates.items() if of_host.is_idle(now_ms)]
            for known in idle:
                del self._address_rates[known]
            rate = self._address_rates[host] = WindowedRate(quotas.windows)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), quotas.windows.size_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            for counted, _ in self._rates_of(listener):
                counted.record(-1, now_ms)
        return throttle_ms

    def admit(self, listener: LimitedListener, host: str) -> str | None:
        """Counts an accepted connection and returns None, or returns the reason to close it.

        The reason is `max.connections.per.ip`, or an override of it for the host.
        """
        config = self._config()
        per_host = self._by_host.get(host, 0)
        limit = self._limit_of(host, config)
        if per_host >= limit:
            return f"its address already has the configured maximum of {limit} connections (max.connections.per.ip)"
        self._by_host[host] = per_host + 1
        self.count += 1
        if self.count > config.connections.max_total and self._is_protected(listener, config):
            self._close_excess(config, "the broker has max.connections, and the inter-broker listener needs one")
        return None

    def leave(self, host: str) -> None:
        """Uncounts an admitted connection that has ended."""
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self.wake_listeners()

    def settings_changed(self) -> None:
        """Wakes listeners that wait for a slot, and closes connections above a lower `max.connections`."""
        self._close_excess(self._config(), "the broker has more connections than max.connections, which is lower now")
        self.wake_listeners()

    def wake_listeners(self) -> None:
        """Wakes listeners that wait for a slot, after a connection has ended or a limit was changed."""
        self._read_overrides(self._config())
        self._freed.set()
        self._freed = trio.Event()

    def _rates_of(self, listener: LimitedListener) -> list[tuple[WindowedRate, int]]:
        """Rates that a connection to the listener counts for, with their limits per second; none that is unlimited."""
        config = self._config()
        limits = {listener.name: int(config.listener_property(listener.name, "max.connection.creation.rate") or 0)}
        if not self._is_protected(listener, config):
            limits[""] = config.connections.max_creation_rate
        return [(self._rate(name, config), limit) for name, limit in limits.items() if limit != UNLIMITED]

    def _rate(self, name: str, config: BrokerConfig) -> WindowedRate:
        rate = self._rates.get(name)
        if rate is None:
            # Most brokers limit no connections, so they do not import the rates.
            from pykbroker.quotas.rates import QuotaWindows, WindowedRate

            windows = QuotaWindows(config.quotas.window_num, config.quotas.window_size_seconds * 1000)
            rate = self._rates[name] = WindowedRate(windows)
        return rate

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
        self._read_overrides(config)
        return self._overrides[1].get(host, config.connections.max_per_ip)

    def _read_overrides(self, config: BrokerConfig) -> None:
        """Takes over `max.connections.per.ip.overrides`; host names have an effect when they are resolved."""
        text = config.connections.max_per_ip_overrides
        if text == self._overrides[0]:
            return
        from pykbroker.quotas.host_names import literal_address

        limits: dict[str, int] = {}
        self._overrides = text, limits
        for name, count in parse_overrides(text):
            address = literal_address(name)
            if address is None:
                self._quotas.resolve(name, partial(_set_limit, limits, count))
            else:
                limits[address] = count

    def _close_excess(self, config: BrokerConfig, reason: str) -> None:
        """Closes the least recently used connections above the broker's limit, but none between brokers."""
        excess = self.count - config.connections.max_total
        if excess <= 0:
            return
        closable = [
            connection
            for listener in self._listeners
            if not self._is_protected(listener, config)
            for connection in listener.connections
        ]
        for connection in sorted(closable, key=lambda connection: connection.last_used)[:excess]:
            connection.close(reason)


def connection_capacity() -> int:
    """Largest number of connections under the process's limit of open files.

    Kafka accepts connections until it cannot open its own log files. Here a quarter of the descriptors is for logs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    return max(1, soft - soft // LOG_SHARE - DESCRIPTORS_RESERVED)


def parse_overrides(text: str) -> list[tuple[str, int]]:
    """Hosts and counts of ``host:count,host:count``: addresses, of IPv6 without brackets, and host names.

    Raises:
        ValueError: an entry does not have this form.
    """
    found: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not count.strip().isdecimal():
            raise ValueError(f"{entry!r} is not of the form host:count")
        found.append((host.strip().strip("[]"), int(count)))
    return found


def _set_limit(limits: dict[str, int], count: int, address: str | None) -> None:
    if address is not None:
        limits[address] = count
