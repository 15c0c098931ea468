"""Settings of consumer groups: those of the broker, and those of a group that override them (`group.consumer.*`)."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.values import GroupValues, MemberTimeValues
from pykbroker.groups.modern.settings import times_of_group
from pykbroker.named_tuple import NamedTuple


class ConsumerGroupSettings(NamedTuple):
    """Times in ms. The names are those of Kafka's keys after `group.consumer.`.

    `classic` are the settings of the classic group that a consumer group may become.
    """

    times: MemberTimeValues
    max_size: int
    assignors: tuple[str, ...]
    migration_policy: str
    regex_refresh_interval_ms: int
    classic: GroupValues

    @property
    def is_upgrade_enabled(self) -> bool:
        """True if a classic group becomes a consumer group when a member of the consumer protocol joins it."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def is_downgrade_enabled(self) -> bool:
        """True if a consumer group becomes a classic group when its last member of the consumer protocol leaves."""
        return self.migration_policy in ("downgrade", "bidirectional")

    @property
    def is_migration_enabled(self) -> bool:
        """True if members of the classic protocol may join a consumer group."""
        return self.migration_policy != "disabled"

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ConsumerGroupSettings:
        """Settings of consumer groups from the broker's configuration."""
        consumer_groups = config.consumer_groups
        return cls(
            consumer_groups,
            consumer_groups.max_size,
            consumer_groups.assignors,
            consumer_groups.migration_policy.lower(),
            consumer_groups.regex_refresh_interval_ms,
            config.groups,
        )

    def of_group(self, configs: Mapping[str, str]) -> ConsumerGroupSettings:
        """The settings of one group, from the configs of its GROUP resource, kept within the broker's bounds."""
        return self._replace(times=times_of_group(self.times, "consumer", configs))
