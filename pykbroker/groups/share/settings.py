"""Settings of share groups' membership: those of the broker, and those of a group that override them."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.values import MemberTimeValues
from pykbroker.groups.modern.settings import times_of_group
from pykbroker.named_tuple import NamedTuple


class ShareGroupSettings(NamedTuple):
    """Times in ms. The names are those of Kafka's keys after `group.share.`."""

    times: MemberTimeValues
    max_size: int
    initialize_retry_interval_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ShareGroupSettings:
        """Settings of share groups from the broker's configuration."""
        share_groups = config.share_groups
        return cls(
            share_groups,
            share_groups.max_size,
            share_groups.initialize_retry_interval_ms,
        )

    def of_group(self, configs: Mapping[str, str]) -> ShareGroupSettings:
        """The settings of one group, from the configs of its GROUP resource, kept within the broker's bounds."""
        return self._replace(times=times_of_group(self.times, "share", configs))
