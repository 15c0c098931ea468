"""Checks of pairs of keys, one of which bounds the other: minimum, value, maximum of groups, times of replicas."""

from __future__ import annotations

from functools import cache

from pykbroker.config.definitions import ConfigError
from pykbroker.config.values import ConfigValues

KINDS = ("consumer", "share", "streams")
_OF_SHARE_GROUPS = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
BOUNDED = tuple(
    (kind, rest)
    for kind in KINDS
    for rest in (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        *(_OF_SHARE_GROUPS if kind == "share" else ()),
        "assignment.interval.ms",
    )
)
"""(kind of groups, rest) of the keys `group.<kind>.<rest>` with bounds `group.<kind>.min.<rest>` and `max`.

The setting `<kind>.<rest>` of one group has the same bounds.
"""


@cache
def orders() -> tuple[tuple[str, str, bool], ...]:
    """Lower key, upper key, and True if their values must differ.

    Computed when a file has a key of groups or replicas for the first time.
    """
    found = [
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", False),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", False),
        ("group.share.max.size", "group.share.max.share.sessions", False),
        ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas", False),
    ]
    for kind, rest in BOUNDED:
        least, key, most = f"group.{kind}.min.{rest}", f"group.{kind}.{rest}", f"group.{kind}.max.{rest}"
        found += [(least, most, False), (least, key, False), (key, most, False)]
    for kind in KINDS:
        found.append((f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", True))
    return tuple(found)


def check_orders(config: ConfigValues) -> None:
    texts = config.static_properties
    # Kafka's defaults pass the checks, and most files have none of these keys.
    if not any(key.startswith(("group.", "replica.")) for key in texts):
        return
    for lower, upper, is_strict in orders():
        if lower in texts or upper in texts:
            _check_order(config, lower, upper, is_strict)


def _check_order(config: ConfigValues, lower: str, upper: str, is_strict: bool) -> None:
    low, high = config.value(lower), config.value(upper)
    if low < high or (low == high and not is_strict):
        return
    if lower in config.static_properties:
        relation = "be less than" if is_strict else "not exceed"
        raise ConfigError(lower, low, f"must {relation} {upper}, which is {high}")
    relation = "exceed" if is_strict else "not be below"
    raise ConfigError(upper, high, f"must {relation} {lower}, which is {low}")


CHECKS = (check_orders,)
