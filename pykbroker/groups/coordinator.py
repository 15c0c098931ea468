"""The group coordinator of one broker: its shards, their settings and topics, and the expiry of offsets.

`GroupShard` has groups and offsets, `CoordinatorRuntime` has the part that all coordinators share. Requests are
functions with the coordinator as their first argument (`member_requests`, `offset_commit`, `offset_fetch`,
`offset_delete`, `administration`). Requests about modern groups are methods of `consumer`, `share` and `streams`.

The state machine and the messages are imported where they are used first. Their import takes 26 ms, which a broker
without groups does not spend.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pykbroker.completion import Completion
from pykbroker.controller.metadata.features import consumer_groups_enabled, streams_groups_enabled
from pykbroker.coordination.internal_topic import offsets_topic
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.coordination.runtime import CoordinatorRuntime
from pykbroker.errors import CoordinatorError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    import random

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.runtime import CoordinatorEnvironment
    from pykbroker.groups.consumer.requests import ConsumerGroupRequests
    from pykbroker.groups.modern.topics import GroupTopics
    from pykbroker.groups.result import GroupResult
    from pykbroker.groups.shard import GroupShard
    from pykbroker.groups.share.requests import ShareGroupRequests, ShareStates
    from pykbroker.groups.streams.requests import StreamsGroupRequests

log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 128
"""Topics in the states of a share group up to which it forgets deleted ones at once; the record has all that stay."""
DELETED_AT_ONCE = 200
"""Committed offsets of a deleted topic up to which they are deleted with it, in one step: about 2 ms."""

SHARD_MODULES = (
    "pykbroker.groups.assignors.streams.sticky",
    "pykbroker.groups.classic.members",
    "pykbroker.groups.result",
    "pykbroker.groups.classic.group",
    "pykbroker.groups.modern.group",
    "pykbroker.groups.consumer.group",
    "pykbroker.groups.consumer.heartbeat",
    "pykbroker.groups.streams.topology",
    "pykbroker.groups.offset_log",
    "pykbroker.groups.consumer.groups",
    "pykbroker.groups.share.groups",
    "pykbroker.groups.streams.groups",
    "pykbroker.groups.shard",
)
"""Modules of a shard, in an order in which each imports few others: steps of 1 to 4 ms."""


class Parked(Completion):
    """A JoinGroup or SyncGroup request that waits for its group."""

    __slots__ = ("_response",)

    def __init__(self) -> None:
        super().__init__()
        self._response: Any = None

    @property
    def is_answered(self) -> bool:
        """True if the request has its response."""
        return self._response is not None

    def answer(self, response: Any) -> None:
        """Completes the request with this response."""
        self._response = response
        self.complete()

    async def wait_answer(self) -> Any:
        """Waits without a deadline: every group has timers that end a rebalance."""
        await self.wait()
        return self._response


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        config: the broker's settings.
        environment: the parts of the broker.
        random: for member ids.
        share_states: the state of share partitions.

    Attributes:
        config: the broker's settings as they are now.
        runtime: carries operations out on the shards; must be run.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: CoordinatorEnvironment,
        random: random.Random,
        share_states: ShareStates,
    ) -> None:
        self.config = config
        self.random = random
        self._metadata = environment.metadata
        self._group_topics: GroupTopics | None = None
        self._share_states = share_states
        self._consumer: ConsumerGroupRequests | None = None  # made with the first request about a consumer group
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            environment,
            make_shard=self._make_shard,
            deliver=self._deliver,
            append_timeout_ms=config.groups.offsets_commit_timeout_ms,
            codec=config.groups.offsets_topic_compression_codec,
            shard_modules=SHARD_MODULES,
        )

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads and unloads shards; deletes the committed offsets of deleted topics."""
        if self._group_topics is not None:
            changed = self._group_topics.update(new)
            for shard in self.runtime.shards.values():
                for groups in shard.modern_groups:
                    groups.topics_changed(changed)
        self.runtime.on_metadata_change(old, new)
        deleted = {topic.name: topic.topic_id for topic in new.delta.deleted_topics}
        if deleted and not self.runtime.has_ended:
            self._delete_offsets(deleted)
            self._forget_topics(frozenset(deleted.values()))

    def _delete_offsets(self, topics: dict[str, bytes]) -> None:
        """Deletes the committed offsets of deleted topics: few at once, many in a task, in turns with others.

        In Kafka they are always deleted by the coordinator's threads, some time after the topic.
        """
        shards, nursery = self.runtime.shards, self.runtime.nursery
        if not shards:
            return
        from pykbroker.groups import offset_cleanup

        count = sum(shard.offsets.count_of_topics(topics) for shard in shards.values())
        in_turns = nursery is not None and count > DELETED_AT_ONCE
        deletions = [
            (number, shard, offset_cleanup.delete_topics(shard, topics, in_turns=in_turns))
            for number, shard in shards.items()
        ]
        if nursery is not None and in_turns:
            for number, shard, results in deletions:
                self.runtime.carry_out_in_batches(number, shard, next(results))
            nursery.start_soon(self.runtime.carry_out_in_turns, deletions)
            return
        for number, shard, results in deletions:
            for result in results:
                self.runtime.carry_out_in_batches(number, shard, result)

    def _forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Removes deleted topics from the states of share groups: of small groups at once, of large ones in tasks."""
        nursery = self.runtime.nursery
        for number, shard in self.runtime.shards.items():
            for group in shard.share.with_topics(topic_ids):
                from pykbroker.groups.modern_writes import TOPICS_FORGOTTEN
                from pykbroker.groups.result import DeletedTopics

                deleted = DeletedTopics(group.group_id, topic_ids)
                if nursery is not None and len(group.initialized) + len(group.initializing) > TOPICS_AT_ONCE:
                    nursery.start_soon(self.share.forget_topics, deleted)
                else:
                    result = TOPICS_FORGOTTEN.carry_out(shard, self.runtime.now_ms(), deleted)
                    self.runtime.carry_out(number, shard, result)

    def follow_config(self, config: BrokerConfig) -> None:
        """Uses the broker's settings after a change of dynamic ones: the assignment intervals of groups (P-432)."""
        if config is self.config:
            return
        self.config = config
        if self._consumer is not None:
            self._consumer.settings = config.consumer_groups
        for shard in self.runtime.shards.values():
            shard.use_config(config)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Starts the creation of `__consumer_offsets`, unless one is in flight (P-89)."""
        self.runtime.request_topic_creation(offsets_topic(self.config.groups, live_broker_count))

    def _make_shard(self, leader_epoch: int) -> GroupShard:
        from pykbroker.groups.assignors.streams import sticky
        from pykbroker.groups.consumer.groups import ConsumerGroups
        from pykbroker.groups.shard import GroupShard
        from pykbroker.groups.share.groups import ShareGroups
        from pykbroker.groups.streams.groups import StreamsGroups

        config = self.config
        return GroupShard(
            config,
            ConsumerGroups(config.consumer_groups, self._topics, self._configs_of),
            ShareGroups(config.share_groups, self._topics, self._configs_of),
            StreamsGroups(config.streams_groups, self._topics, self._configs_of, sticky.assign),
        )

    @property
    def _topics(self) -> GroupTopics:
        if self._group_topics is None:
            from pykbroker.groups.modern.topics import GroupTopics

            self._group_topics = GroupTopics(self._metadata.image)
        return self._group_topics

    def _configs_of(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.image.group_config(group_id)

    # Modern groups

    @property
    def serves_consumer_groups(self) -> bool:
        """True if this broker's settings and the cluster's features have consumer groups."""
        return "consumer" in self.config.groups.rebalance_protocols and consumer_groups_enabled(self._metadata.image)

    @property
    def serves_streams_groups(self) -> bool:
        """True if this broker's settings and the cluster's features have Streams groups."""
        return "streams" in self.config.groups.rebalance_protocols and streams_groups_enabled(self._metadata.image)

    @property
    def consumer(self) -> ConsumerGroupRequests:
        """Requests about consumer groups."""
        if self._consumer is None:
            from pykbroker.groups.consumer.requests import ConsumerGroupRequests

            self._consumer = ConsumerGroupRequests(self.runtime, self.config.consumer_groups, self._topics, self.random)
        return self._consumer

    @cached_property
    def share(self) -> ShareGroupRequests:
        """Requests about share groups."""
        from pykbroker.groups.share.requests import ShareGroupRequests

        return ShareGroupRequests(self.runtime, self._share_states)

    @cached_property
    def streams(self) -> StreamsGroupRequests:
        """Requests about Streams groups."""
        from pykbroker.groups.streams.requests import StreamsGroupRequests

        return StreamsGroupRequests(self.runtime)

    # Offsets

    def offsets_partition(self, group_id: str) -> Any:
        """The `Partition` that stores a group's offsets, for the verification of a transaction.

        Raises:
            CoordinatorError: this broker does not coordinate the group.
        """
        if group_id == "":
            raise CoordinatorError(ErrorCode.INVALID_GROUP_ID)
        number, _ = self.runtime.find(group_id)
        partition = self.runtime.partition(number)
        if partition is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        return partition

    def is_loaded(self, number: int) -> bool:
        """True if the groups of a partition of `__consumer_offsets` are served here."""
        return number in self.runtime.shards

    def end_transaction(self, number: int, end_offset: int, producer_id: int, is_commit: bool) -> None:
        """Applies a producer's marker, which is in the partition below `end_offset` (P-139).

        Once it is replicated, the pending offsets of the transaction become committed offsets or are dropped.
        """
        shard = self.runtime.shards.get(number)
        if shard is not None:
            self.runtime.when_replicated(number, end_offset, shard.end_transaction, producer_id, is_commit)

    # Results

    def _deliver(self, number: int, shard: GroupShard, result: GroupResult) -> None:
        """Sends replies, logs notes and details, and schedules the expiry of offsets if there are groups."""
        for detail in result.details:
            log.debug("%s", detail)
        for note in result.notes:
            log.info("%s", note)
        for waiter, response in result.replies:
            assert isinstance(waiter, Parked)
            waiter.answer(response)
        if result.first_assignment is not None and self.runtime.nursery is not None:
            self.runtime.nursery.start_soon(self.streams.assign_first, result.first_assignment)
        if shard.has_offsets_to_expire:
            self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        self.runtime.schedule("expiry", self.config.groups.offsets_retention_check_interval_ms, self._expire_offsets)

    async def _expire_offsets(self) -> None:
        """Begins to delete expired offsets. Timers fire meanwhile."""
        assert self.runtime.nursery is not None
        self.runtime.nursery.start_soon(self._expire_in_turns)

    async def _expire_in_turns(self) -> None:
        """Deletes expired offsets; runs again after the check interval only if there is still a group (P-114)."""
        from pykbroker.groups import offset_cleanup

        now_ms, shards = self.runtime.now_ms(), self.runtime.shards
        await self.runtime.carry_out_in_turns(
            (number, shard, offset_cleanup.expire_offsets(shard, now_ms)) for number, shard in [*shards.items()]
        )
        if any(shard.has_offsets_to_expire for shard in self.runtime.shards.values()):
            self._schedule_expiry()
