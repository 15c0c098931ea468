"""Settings of consumer groups: those of the broker, and those of a group that override them (`group.consumer.*`)."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.groups.modern.settings import MemberTimes
from pykbroker.named_tuple import NamedTuple


class ConsumerGroupSettings(NamedTuple):
    """Times in ms; Kafka's defaults. The names are those of Kafka's keys after `group.consumer.`.

    `classic_max_size` is the greatest number of members of a classic group, for a downgrade.
    """

    times: MemberTimes = MemberTimes()
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: str = "bidirectional"
    regex_refresh_interval_ms: int = 600_000
    classic_max_size: int = 2**31 - 1

    @property
    def is_upgrade_enabled(self) -> bool:
        """True if a classic group becomes a consumer group when a member of the new protocol joins it."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def is_downgrade_enabled(self) -> bool:
        """True if a consumer group becomes a classic group when its last member of the new protocol leaves."""
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
            MemberTimes.from_values(consumer_groups),
            consumer_groups.max_size,
            consumer_groups.assignors,
            consumer_groups.migration_policy.lower(),
            consumer_groups.regex_refresh_interval_ms,
            config.groups.max_size,
        )

    def of_group(self, configs: Mapping[str, str]) -> ConsumerGroupSettings:
        """The settings of one group, from the configs of its GROUP resource, kept within the broker's bounds."""
        if not configs:
            return self
        times = self.times.of_group("consumer", configs)
        return self._replace(times=times)
