"""Checks of connections and of the memory for their requests."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.listener_addresses import is_host
from pykbroker.config.values import ConfigValues
from pykbroker.java_order import java_int, trim


def check_request_memory(config: ConfigValues) -> None:
    queued, largest = config.sockets.queued_max_request_bytes, config.sockets.request_max_bytes
    if 0 < queued < largest:
        raise ConfigError(
            "queued.max.request.bytes", queued, f"must not be below socket.request.max.bytes, which is {largest}"
        )


def check_idle_time(config: ConfigValues) -> None:
    """Checks that a connection is not closed as idle before the delayed response to its failed login is sent."""
    idle_ms, delay_ms = config.connections.max_idle_ms, config.connections.failed_authentication_delay_ms
    if 0 <= idle_ms <= delay_ms:
        raise ConfigError(
            "connections.max.idle.ms",
            idle_ms,
            f"must exceed connection.failed.authentication.delay.ms, which is {delay_ms}",
        )


def check_limits_per_address(config: ConfigValues) -> None:
    key = "max.connections.per.ip.overrides"
    text = config.connections.max_per_ip_overrides
    # Java's split drops empty entries at the end, but not others.
    given = text.rstrip(", ")
    for entry in given.split(",") if given else ():
        host, colon, count = entry.rpartition(":")
        if not colon or java_int(trim(count)) is None:
            # The texts of Java's exceptions.
            problem = f"Error parsing configuration property '{key}': begin 0, end -1, length {len(entry)}"
            if colon:
                problem = f'For input string: "{trim(count)}"'
            raise ConfigError(key, text, f"{entry!r} is not of the form host:count", problem)
        if not is_host(trim(host)):
            raise ConfigError(key, text, f"{host!r} is not the name or address of a host")
    if config.connections.max_per_ip == 0 and not text:
        reason = f"can be zero only where {key} allows connections of an address"
        problem = f"requirement failed: max.connections.per.ip can be set to zero only if {key} property is set."
        raise ConfigError("max.connections.per.ip", 0, reason, problem)


CHECKS = (check_request_memory, check_idle_time, check_limits_per_address)
