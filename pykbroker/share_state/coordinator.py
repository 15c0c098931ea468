"""The share coordinator of one broker: requests about share partitions, each an operation on a shard (KIP-932).

`ShareStateShard` decides, `CoordinatorRuntime` has the part that all coordinators share. This module has the rest:
deletion of the state of deleted topics, snapshots of share partitions that have become cold, and deletion of records
that later snapshots make redundant. The state machine is imported before the first shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykbroker.coordination.internal_topic import share_state_topic
from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC
from pykbroker.coordination.runtime import CoordinatorRuntime, Write
from pykbroker.logstore.errors import LogError

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.partition_writer import InternalPartition
    from pykbroker.coordination.runtime import CoordinatorEnvironment
    from pykbroker.share_state.shard import ShareStateShard
    from pykbroker.share_state.state import PartitionState, Refusal, SharePartitionKey, WriteState

log = logging.getLogger(__name__)

SHARD_MODULES = (
    "pykbroker.coordination.shard",
    "pykbroker.coordination.coordinator_records",
    "pykbroker.protocol.log_messages.share_state_records",
    "pykbroker.share_state.state",
    "pykbroker.share_state.batches",
    "pykbroker.share_state.records",
    "pykbroker.share_state.shard",
)
"""Modules of a shard, in an order in which each imports few others."""

STATES_AT_ONCE = 100
"""Share partitions up to which those of deleted topics are deleted at once; each tombstone takes 20 us."""


class ShareCoordinator:
    """All share partitions whose partition of `__share_group_state` this broker leads.

    Args:
        config: the broker's settings.
        environment: the parts of the broker.

    Attributes:
        runtime: carries operations out on the shards; must be run.
    """

    def __init__(self, config: BrokerConfig, environment: CoordinatorEnvironment) -> None:
        self._config = config
        self._metadata = environment.metadata
        self.runtime: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            SHARE_STATE_TOPIC,
            environment,
            make_shard=self._make_shard,
            deliver=self._deliver,
            append_timeout_ms=config.share_coordinator.write_timeout_ms,
            codec=config.share_coordinator.state_topic_compression_codec,
            shard_modules=SHARD_MODULES,
        )

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads and unloads shards; deletes the state of share partitions of deleted topics."""
        self.runtime.on_metadata_change(old, new)
        deleted = [topic.topic_id for topic in new.delta.deleted_topics]
        if not deleted or self.runtime.has_ended:
            return
        shards, nursery = self.runtime.shards, self.runtime.nursery
        work = ((number, shard, shard.delete_topics(deleted)) for number, shard in [*shards.items()])
        if nursery is not None and sum(len(shard.states) for shard in shards.values()) > STATES_AT_ONCE:
            nursery.start_soon(self.runtime.carry_out_in_turns, work)
            return
        for number, shard, results in work:
            for result in results:
                self.runtime.carry_out_in_batches(number, shard, result)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Starts the creation of `__share_group_state`, unless one is in flight (P-89)."""
        self.runtime.request_topic_creation(share_state_topic(self._config.share_coordinator, live_broker_count))

    def _make_shard(self, leader_epoch: int) -> ShareStateShard:
        from pykbroker.share_state.shard import ShareStateShard

        return ShareStateShard(
            self._config.share_coordinator.snapshot_update_records_per_snapshot, self._partition_count
        )

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._metadata.image.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    # Requests; a result is None or a state for success, or a refusal. All raise CoordinatorError.

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Refusal | None:
        """Creates the state of a share partition or replaces it."""
        from pykbroker.share_state.shard import ShareStateShard

        found: Refusal | None = await self._write(key, ShareStateShard.initialize, state_epoch, start_offset)
        return found

    async def write(self, key: SharePartitionKey, write: WriteState) -> Refusal | None:
        """Stores what has changed of a share partition."""
        from pykbroker.share_state.shard import ShareStateShard

        found: Refusal | None = await self._write(key, ShareStateShard.write, write)
        return found

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> PartitionState | Refusal:
        """The state of a share partition; older leaders are refused from now on."""
        from pykbroker.share_state.shard import ShareStateShard

        found: PartitionState | Refusal = await self._write(key, ShareStateShard.read, leader_epoch)
        return found

    async def delete(self, key: SharePartitionKey) -> Refusal | None:
        """Deletes the state of a share partition, if there is one."""
        from pykbroker.share_state.shard import ShareStateShard

        found: Refusal | None = await self._write(key, ShareStateShard.delete)
        return found

    async def read_summary(self, key: SharePartitionKey) -> PartitionState | Refusal:
        """The state of a share partition without its batches."""
        number, shard = self.runtime.find(key.coordinator_key)
        found = shard.read_summary(key)
        await self.runtime.wait_replicated(number)
        return found

    def begin_write(self, key: SharePartitionKey, write: WriteState) -> Write[Any]:
        """As `write`, without the wait for replication, for which `finish` must be called."""
        from pykbroker.share_state.shard import ShareStateShard

        return self.runtime.begin_write(key.coordinator_key, ShareStateShard.write, key, write)

    async def _write(self, key: SharePartitionKey, operation: Callable[..., Any], *arguments: Any) -> Any:
        return await self.finish(key, self.runtime.begin_write(key.coordinator_key, operation, key, *arguments))

    async def finish(self, key: SharePartitionKey, write: Write[Any]) -> Any:
        """Waits until everything that the response depends on is replicated, earlier records included."""
        await self.runtime.settled(key.coordinator_key, write)
        return write.result.response

    # Housekeeping

    def _deliver(self, number: int, shard: ShareStateShard, result: Any) -> None:
        """Schedules the housekeeping, as there is a share partition now."""
        if result.records:
            settings = self._config.share_coordinator
            self.runtime.schedule("cold", settings.cold_partition_snapshot_interval_ms, self._snapshot_cold)
            self.runtime.schedule("prune", settings.state_topic_prune_interval_ms, self._prune_records)

    async def _snapshot_cold(self) -> None:
        """Begins to make snapshots of share partitions whose last one is old. Timers fire meanwhile."""
        assert self.runtime.nursery is not None
        self.runtime.nursery.start_soon(self._snapshot_in_turns)

    async def _snapshot_in_turns(self) -> None:
        """Makes the snapshots; again after the interval, if there are any share partitions."""
        interval_ms = self._config.share_coordinator.cold_partition_snapshot_interval_ms
        now_ms = self.runtime.now_ms()
        shards = list(self.runtime.shards.items())
        await self.runtime.carry_out_in_turns(
            (number, shard, shard.snapshot_cold(interval_ms, now_ms)) for number, shard in shards
        )
        if any(shard.states for shard in self.runtime.shards.values()):
            self.runtime.schedule("cold", interval_ms, self._snapshot_cold)

    async def _prune_records(self) -> None:
        """Deletes records that later snapshots make redundant, as far as they are replicated."""
        for number, shard in list(self.runtime.shards.items()):
            partition = self.runtime.partition(number)
            offset = shard.redundant_offset
            if partition is None or offset <= partition.log.log_start_offset:
                continue
            self.runtime.when_replicated(number, partition.log.log_end_offset, _delete, partition, offset)
        if any(shard.states for shard in self.runtime.shards.values()):
            self.runtime.schedule(
                "prune", self._config.share_coordinator.state_topic_prune_interval_ms, self._prune_records
            )


def _delete(partition: InternalPartition, offset: int) -> None:
    try:
        partition.advance_log_start(offset)
    except LogError as error:
        log.warning("%s: records before offset %d cannot be deleted: %s", SHARE_STATE_TOPIC, offset, error)
