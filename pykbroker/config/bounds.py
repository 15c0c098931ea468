"""Settings that bound one another, and those whose values Kafka checks beyond their definition (KafkaConfig).

Most of them have no effect here, as what they are for is not served. They are checked all the same: a file that Apache
Kafka would refuse should not start us, and a dynamic change that it would refuse should be refused to the same client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pykbroker.config.definitions import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.listener_addresses import is_host

_MIB = 1 << 20
_INT_MAX = (1 << 31) - 1
_CODEC_ID_MAX = 4

_ASSIGNORS = {
    "group.consumer.assignors": {
        "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
        "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    },
    "group.share.assignors": {"simple": "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"},
}


class _Order(NamedTuple):
    """Two keys of which the first must not exceed the second, or must be below it."""

    lower: str
    upper: str
    is_strict: bool = False


def _orders() -> list[_Order]:
    orders = [
        _Order("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        _Order("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        _Order("group.share.max.size", "group.share.max.share.sessions"),
        _Order("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ]
    bounded = [
        (kind, rest)
        for kind in ("consumer", "share", "streams")
        for rest in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    ]
    bounded += [
        ("share", rest) for rest in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
    ]
    for kind, rest in bounded:
        least, key, most = f"group.{kind}.min.{rest}", f"group.{kind}.{rest}", f"group.{kind}.max.{rest}"
        orders += [_Order(least, most), _Order(least, key), _Order(key, most)]
    for kind in ("consumer", "share", "streams"):
        orders.append(_Order(f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", is_strict=True))
    return orders


def check_bounds(texts: Mapping[str, str], *, is_start: bool) -> None:
    """Checks what was given against what it is bound to, given or by default.

    Args:
        texts: the given settings.
        is_start: False for a dynamic change, at which Kafka looks at less.

    Raises:
        ConfigError: a value is out of its bounds. It names a key that was given, as that is the one to mend.
    """
    # Kafka's defaults agree with one another, and most files have few keys.
    if any(key.startswith(("group.", "replica.")) for key in texts):
        for order in _orders():
            if order.lower in texts or order.upper in texts:
                _check_order(texts, order)
    _check_cleaner(texts)
    for key, names in _ASSIGNORS.items():
        _check_assignors(texts, key, names)
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if key in texts and not 0 <= _value(texts, key) <= _CODEC_ID_MAX:
            raise ConfigError(key, texts[key], f"must be the number of a compression codec, from 0 to {_CODEC_ID_MAX}")
    protocols = "group.coordinator.rebalance.protocols"
    if protocols in texts and "classic" not in _value(texts, protocols):
        raise ConfigError(protocols, texts[protocols], "must have classic: Kafka does not support groups without it")
    _check_connection_limits(texts)
    _check_cordoned(texts)
    if is_start and texts.get("remote.log.storage.system.enable", "").lower() == "true":
        check_local_retention(texts)


def _value(texts: Mapping[str, str], key: str) -> Any:
    """The typed value of a key, given or by default; None where there is neither."""
    definition = BROKER_CONFIGS[key]
    text = texts.get(key, definition.default)
    return None if text is None else definition.parse(key, text)


def _check_order(texts: Mapping[str, str], order: _Order) -> None:
    low, high = _value(texts, order.lower), _value(texts, order.upper)
    if low < high or (low == high and not order.is_strict):
        return
    if order.lower in texts:
        relation = "be less than" if order.is_strict else "not exceed"
        raise ConfigError(order.lower, low, f"must {relation} {order.upper}, which is {high}")
    relation = "exceed" if order.is_strict else "not be below"
    raise ConfigError(order.upper, high, f"must {relation} {order.lower}, which is {low}")


def _check_cleaner(texts: Mapping[str, str]) -> None:
    size_key, threads_key = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if size_key not in texts and threads_key not in texts:
        return
    size, threads = _value(texts, size_key), _value(texts, threads_key)
    if threads < 1:
        raise ConfigError(threads_key, threads, "must be at least 1")
    if size // threads <= _MIB:
        reason = f"must be more than 1 MiB ({_MIB}) for each of the {threads} threads of {threads_key}"
        if size_key in texts:
            raise ConfigError(size_key, size, reason)
        raise ConfigError(threads_key, threads, f"{size_key}, which is {size}, {reason}")


def _check_assignors(texts: Mapping[str, str], key: str, names: Mapping[str, str]) -> None:
    if key not in texts:
        return
    given = _value(texts, key)
    for name in given:
        # Kafka also takes classes of others, which would have to be loaded.
        if name not in names and name not in names.values():
            raise ConfigError(key, name, f"must be an assignor of Kafka's own: {', '.join(names)}")
    if key == "group.share.assignors" and len(given) != 1:
        raise ConfigError(key, texts[key], "must name exactly one assignor")


def _check_connection_limits(texts: Mapping[str, str]) -> None:
    key = "max.connections.per.ip.overrides"
    # Commas at the end count for nothing in Java's split, unlike other empty entries.
    given = texts.get(key, "").rstrip(", ")
    for entry in given.split(",") if given else ():
        host, colon, count = entry.rpartition(":")
        if not colon or not re.fullmatch(r"[+-]?\d+", count.strip()) or abs(int(count)) > _INT_MAX:
            raise ConfigError(key, texts[key], f"{entry!r} is not of the form host:count")
        if not is_host(host.strip()):
            raise ConfigError(key, texts[key], f"{host!r} is not the name or address of a host")
    if _value(texts, "max.connections.per.ip") == 0 and not texts.get(key):
        raise ConfigError("max.connections.per.ip", 0, f"can be zero only where {key} lets somebody in")


def _check_cordoned(texts: Mapping[str, str]) -> None:
    key = "cordoned.log.dirs"
    cordoned = _value(texts, key)
    if cordoned == ["*"] or "broker" not in texts.get("process.roles", "broker"):
        return
    directories = _value(texts, "log.dirs") or _value(texts, "log.dir")
    for directory in cordoned:
        if directory == "*":
            raise ConfigError(key, texts[key], "* stands for all directories and must be alone")
        if directory not in directories:
            raise ConfigError(key, directory, "must be one of log.dirs")


def check_local_retention(texts: Mapping[str, str]) -> None:
    """Local retention must be within the retention of the whole log.

    Kafka looks at it at the start where remote storage is enabled, and at each dynamic change of a setting of logs.

    Raises:
        ConfigError: -1 (all), or more than the whole log is kept for.
    """
    hours, minutes = _value(texts, "log.retention.hours"), _value(texts, "log.retention.minutes")
    whole_ms = _value(texts, "log.retention.ms")
    if whole_ms is None:
        whole_ms = hours * 3_600_000 if minutes is None else minutes * 60_000
    for key, whole, name in (
        ("log.local.retention.ms", whole_ms, "log.retention.ms"),
        ("log.local.retention.bytes", _value(texts, "log.retention.bytes"), "log.retention.bytes"),
    ):
        local = _value(texts, key)
        if whole < 0 or local == -2:
            continue
        if local == -1:
            raise ConfigError(key, local, f"Value must not be -1 as {name} value is set as {whole}.")
        if local > whole:
            raise ConfigError(key, local, f"Value must not be more than {name} property value: {whole}")
