"""Settings of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pykbroker.config.values import GroupValues


class ClassicGroupSettings(NamedTuple):
    """Times in ms. The names are those of Kafka's keys after `group.`."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    initial_rebalance_delay_ms: int

    @classmethod
    def from_values(cls, values: GroupValues) -> ClassicGroupSettings:
        """Settings of classic groups from the broker's configuration."""
        return cls(
            values.min_session_timeout_ms,
            values.max_session_timeout_ms,
            values.max_size,
            values.initial_rebalance_delay_ms,
        )
