"""Settings of Streams groups: those of the broker, and those of a group that override them (`streams.*`)."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.values import MemberTimeValues
from pykbroker.groups.modern.settings import bounded, times_of_group
from pykbroker.named_tuple import NamedTuple

NUM_STANDBY_REPLICAS = "num.standby.replicas"


class StreamsGroupSettings(NamedTuple):
    """Times in ms. The names are those of Kafka's keys after `group.streams.`."""

    times: MemberTimeValues
    initial_rebalance_delay_ms: int
    num_standby_replicas: int
    max_standby_replicas: int
    max_size: int

    @property
    def assignment_configs(self) -> dict[str, str]:
        """Configs that are passed to the assignor; a change of one makes a new assignment necessary."""
        return {NUM_STANDBY_REPLICAS: str(self.num_standby_replicas)}

    @classmethod
    def from_config(cls, config: BrokerConfig) -> StreamsGroupSettings:
        """Settings of Streams groups from the broker's configuration."""
        streams_groups = config.streams_groups
        return cls(
            streams_groups,
            streams_groups.initial_rebalance_delay_ms,
            streams_groups.num_standby_replicas,
            streams_groups.max_standby_replicas,
            streams_groups.max_size,
        )

    def of_group(self, configs: Mapping[str, str]) -> StreamsGroupSettings:
        """The settings of one group, from the configs of its GROUP resource, kept within the broker's bounds."""
        times = times_of_group(self.times, "streams", configs)
        standbys = bounded(
            configs, "streams.num.standby.replicas", self.num_standby_replicas, 0, self.max_standby_replicas
        )
        delay_ms = int(configs.get("streams.initial.rebalance.delay.ms", self.initial_rebalance_delay_ms))
        return self._replace(times=times, num_standby_replicas=standbys, initial_rebalance_delay_ms=delay_ms)
