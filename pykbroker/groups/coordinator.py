"""The group coordinator of one broker: the requests of members and administrators, each an operation on a shard.

`GroupShard` decides about groups and offsets, `CoordinatorRuntime` does what is the same for each kind of coordinator.
This module has the rest: requests that wait for their group, random member ids, the expiry of offsets.

The state machine and the messages are imported where they are used first. Their import takes 40 ms, which a broker
without groups does not spend.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from pykbroker.completion import Completion
from pykbroker.controller.metadata.features import consumer_groups_enabled, streams_groups_enabled
from pykbroker.controller.turns import Turn, in_turns
from pykbroker.coordination.internal_topic import offsets_topic
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.coordination.runtime import CoordinatorRuntime
from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.java_order import copied_order, partition_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.uuids import random_uuid

if TYPE_CHECKING:
    import random

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.runtime import CoordinatorEnvironment, Write
    from pykbroker.coordination.shard import TransactionalProducer
    from pykbroker.groups.consumer.requests import ConsumerGroupRequests
    from pykbroker.groups.modern.groups import ModernGroups
    from pykbroker.groups.modern.topics import GroupTopics
    from pykbroker.groups.offset_requests import PreparedDeletion
    from pykbroker.groups.result import GroupResult, Requester, Tombstones
    from pykbroker.groups.shard import GroupShard
    from pykbroker.groups.share.requests import ShareGroupRequests, ShareStates
    from pykbroker.groups.streams.requests import StreamsGroupRequests
    from pykbroker.logstore.producer_state import Verification
    from pykbroker.protocol.messages.describe_groups import DescribedGroup
    from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
    from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from pykbroker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
    from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from pykbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

Described = TypeVar("Described")

METADATA_BYTES_MAX = 256 * 1024 * 1024
"""Limit of the metadata of all classic members, in bytes. The broker holds metadata until the session expires, up to
half an hour after the client is gone. Kafka's only limit is its heap."""
LARGE_METADATA_BYTES = 65_536
"""Size of a join's metadata above which `METADATA_BYTES_MAX` is checked. A member of a very large group has some ten
kilobytes."""
TOPICS_AT_ONCE = 128
"""Topics in the states of a share group up to which it forgets deleted ones at once; the record has all that stay."""
DELETED_AT_ONCE = 200
"""Committed offsets of a deleted topic up to which they are deleted with it, in one step: about 2 ms."""


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

    `run`, `stop`, `load_missing` are those of the runtime.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: CoordinatorEnvironment,
        random: random.Random,
        share_states: ShareStates,
    ) -> None:
        self._config = config
        self._random = random
        self._metadata = environment.metadata
        self._group_topics: GroupTopics | None = None
        self._share_states = share_states
        self._consumer: ConsumerGroupRequests | None = None  # made with the first request about a consumer group
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            environment,
            make_shard=self._make_shard,
            deliver=self._deliver,
            append_timeout_ms=config.groups.offsets_commit_timeout_ms,
            codec=config.groups.offsets_topic_compression_codec,
        )
        self.run = self._runtime.run
        self.stop = self._runtime.stop
        self.load_missing = self._runtime.load_missing

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads and unloads shards; deletes the committed offsets of deleted topics."""
        if self._group_topics is not None:
            changed = self._group_topics.update(new)
            for shard in self._runtime.shards.values():
                for groups in shard.modern_groups:
                    groups.topics_changed(changed)
        self._runtime.on_metadata_change(old, new)
        deleted = {topic.name: topic.topic_id for topic in new.delta.deleted_topics}
        if deleted:
            self._delete_offsets(deleted)
            self._forget_topics(frozenset(deleted.values()))

    def _delete_offsets(self, topics: dict[str, bytes]) -> None:
        """Deletes the committed offsets of deleted topics: few at once, many in a task, in turns with others.

        In Kafka they are always deleted by the coordinator's threads, some time after the topic.
        """
        shards, nursery = self._runtime.shards, self._runtime.nursery
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
                self._runtime.carry_out_in_batches(number, shard, next(results))
            nursery.start_soon(self._carry_out_all, deletions)
            return
        for number, shard, results in deletions:
            for result in results:
                self._runtime.carry_out_in_batches(number, shard, result)

    def _forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Removes deleted topics from the states of share groups: of small groups at once, of large ones in tasks."""
        nursery = self._runtime.nursery
        for number, shard in self._runtime.shards.items():
            for group in shard.share.with_topics(topic_ids):
                from pykbroker.groups.result import DeletedTopics

                deleted = DeletedTopics(group.group_id, topic_ids)
                if nursery is not None and len(group.initialized) + len(group.initializing) > TOPICS_AT_ONCE:
                    nursery.start_soon(self.share.forget_topics, deleted)
                else:
                    self._runtime.carry_out(number, shard, shard.share.forget_topics(deleted, self._runtime.now_ms()))

    async def _carry_out_all(self, work: Iterable[tuple[int, GroupShard, Iterable[GroupResult]]]) -> None:
        for number, shard, results in work:
            if self._runtime.shards.get(number) is shard:
                await self._runtime.carry_out_in_turns(number, shard, results)

    def follow_config(self, config: BrokerConfig) -> None:
        """Uses the broker's settings after a change of dynamic ones: the assignment intervals of groups (P-432)."""
        if config is self._config:
            return
        self._config = config
        if self._consumer is not None:
            self._consumer.settings = config.consumer_groups
        for shard in self._runtime.shards.values():
            shard.use_config(config)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Starts the creation of `__consumer_offsets`, unless one is in flight (P-89)."""
        self._runtime.request_topic_creation(offsets_topic(self._config.groups, live_broker_count))

    def _make_shard(self, leader_epoch: int) -> GroupShard:
        from pykbroker.groups.assignors.streams import sticky
        from pykbroker.groups.consumer.groups import ConsumerGroups
        from pykbroker.groups.shard import GroupShard
        from pykbroker.groups.share.groups import ShareGroups
        from pykbroker.groups.streams.groups import StreamsGroups

        config = self._config
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

    # Requests of members

    async def join_group(
        self,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        api_version: int,
        may_describe: Callable[[str], bool],
    ) -> JoinGroupResponse:
        """Handles JoinGroup; waits for the end of the join phase unless the group answers at once.

        `may_describe` returns True if the client may DESCRIBE a topic that a regular expression of the group matches.
        """
        from pykbroker.groups.result import Requester
        from pykbroker.protocol.messages.join_group import JoinGroupResponse

        member_id, settings = request.member_id, self._config.groups
        if request.group_id == "":
            return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=member_id)
        longest_ms = settings.max_session_timeout_ms
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= longest_ms:
            return JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
        parked = Parked()
        fresh_uuid = random_uuid(self._random)
        requester = Requester(client_id, client_host, api_version, fresh_uuid, may_describe)
        write = self._runtime.begin_write(request.group_id, self._join, request, requester, parked)
        if write.result.regex_refresh is not None:
            self.consumer.refresh_regexes(write.result.regex_refresh)
        response: JoinGroupResponse = await self._answered(request.group_id, write, parked)
        return response

    async def _answered(self, group_id: str, write: Write[GroupResult], parked: Parked) -> Any:
        """Response to a parked request.

        A response of a consumer group that adds no record waits for the earlier ones (P-392): they may have given the
        member its partitions, and the next leader might not have them. A request that a classic group has parked
        waits for them as long as any write does, and then is refused.
        """
        if write.result.timers is not None:
            from pykbroker.groups.shard import GroupShard

            self._runtime.when_settled(group_id, GroupShard.start_timers, write.result.timers)
        if not write.result.records and not parked.is_answered:
            from pykbroker.groups import member_requests

            self._runtime.when_late(group_id, member_requests.refuse_parked, parked)
        response = await parked.wait_answer()
        return response if write.result.response is None else await self._runtime.confirmed(group_id, write)

    def _join(
        self, shard: GroupShard, now_ms: int, request: JoinGroupRequest, requester: Requester, parked: Parked
    ) -> GroupResult:
        from pykbroker.groups import member_requests
        from pykbroker.groups.classic.joins import refused_join

        if self._has_no_room_for(request):
            return refused_join(parked, ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
        return member_requests.join(shard, now_ms, request, requester, parked)

    def _has_no_room_for(self, request: JoinGroupRequest) -> bool:
        """True if a large join would take the metadata of all members above `METADATA_BYTES_MAX`.

        A join with at most `LARGE_METADATA_BYTES` is never refused for this: small ones are limited by their number.
        """
        size_bytes = sum(len(protocol.metadata) for protocol in request.protocols)
        if size_bytes <= LARGE_METADATA_BYTES:
            return False
        held = sum(
            len(metadata)
            for shard in self._runtime.shards.values()
            for group in shard.groups.values()
            for member in group.members
            for _, metadata in member.protocols
        )
        return held + size_bytes > METADATA_BYTES_MAX

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Handles SyncGroup; waits for the leader's assignment unless the group answers at once."""
        from pykbroker.groups import member_requests

        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        parked = Parked()
        write = self._runtime.begin_write(request.group_id, member_requests.sync, request, parked)
        response: SyncGroupResponse = await self._answered(request.group_id, write, parked)
        return response

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Handles Heartbeat; NONE while the group is being loaded (P-90).

        Like the answers of other requests without records it waits for earlier records, unless it is a refusal (P-392).
        """
        if request.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        from pykbroker.groups import member_requests

        try:
            number, shard, now_ms = self._runtime.find_now(request.group_id)
            code = member_requests.heartbeat(shard, request, now_ms)
            self._runtime.plan_timer(number, shard, request.group_id)
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                await self._runtime.wait_replicated(number)
        except CoordinatorError as error:
            code = error.error_code
            return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
        return code

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Handles LeaveGroup in the form of version 3.

        The error of an append is the response's; members of a classic group are gone all the same (P-392).
        """
        from pykbroker.groups import member_requests

        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        write = self._runtime.begin_write(request.group_id, member_requests.leave, request)
        response: LeaveGroupResponse = await self._runtime.confirmed(request.group_id, write)
        return response

    @property
    def serves_consumer_groups(self) -> bool:
        """True if this broker's settings and the cluster's features have consumer groups."""
        return "consumer" in self._config.groups.rebalance_protocols and consumer_groups_enabled(self._metadata.image)

    @property
    def serves_streams_groups(self) -> bool:
        """True if this broker's settings and the cluster's features have Streams groups."""
        return "streams" in self._config.groups.rebalance_protocols and streams_groups_enabled(self._metadata.image)

    @property
    def consumer(self) -> ConsumerGroupRequests:
        """Requests about consumer groups."""
        if self._consumer is None:
            from pykbroker.groups.consumer.requests import ConsumerGroupRequests

            self._consumer = ConsumerGroupRequests(
                self._runtime, self._config.consumer_groups, self._topics, self._random
            )
        return self._consumer

    @cached_property
    def share(self) -> ShareGroupRequests:
        """Requests about share groups."""
        from pykbroker.groups.share.requests import ShareGroupRequests

        return ShareGroupRequests(self._runtime, self._share_states)

    @cached_property
    def streams(self) -> StreamsGroupRequests:
        """Requests about Streams groups."""
        from pykbroker.groups.streams.requests import StreamsGroupRequests

        return StreamsGroupRequests(self._runtime)

    # Offsets

    async def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        """Commits offsets of existing topics; every topic of the request has its name and its id."""
        from pykbroker.coordination.shard import NO_PRODUCER

        return await self.commit_transactional_offsets(request, api_version, NO_PRODUCER, None)

    async def commit_transactional_offsets(
        self,
        request: OffsetCommitRequest,
        api_version: int,
        producer: TransactionalProducer,
        verification: Verification | None,
    ) -> OffsetCommitResponse:
        """As `commit_offsets`, within the transaction that the producer has open (P-139).

        A commit without anything to store waits for earlier records, unless the group has refused it (P-392).
        """
        from pykbroker.groups import offset_requests

        prepared: GroupResult | None = None
        turn: Turn | None = None
        if offset_requests.is_large(request):
            prepared = await in_turns(
                offset_requests.prepare_commit(
                    request, self._runtime.now_ms(), producer, self._config.groups.offset_metadata_max_bytes
                )
            )
            turn = Turn()
        try:
            write = self._runtime.begin_write(
                request.group_id,
                offset_requests.commit,
                request,
                api_version,
                producer,
                prepared,
                verification=verification,
            )
            response: OffsetCommitResponse = write.result.response
            if write.result.records or offset_requests.is_refused(response):
                await write.wait()
            else:
                await self._runtime.settled(request.group_id, write)
        except CoordinatorError as error:
            return offset_requests.commit_response(request, error.error_code)
        if turn is not None:
            await turn.end_if_over()  # the request and thousands of records are freed in the next one
        return response

    def offsets_partition(self, group_id: str) -> Any:
        """The `Partition` that stores a group's offsets, for the verification of a transaction.

        Raises:
            CoordinatorError: this broker does not coordinate the group.
        """
        if group_id == "":
            raise CoordinatorError(ErrorCode.INVALID_GROUP_ID)
        number, _ = self._runtime.find(group_id)
        partition = self._runtime.partition(number)
        if partition is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        return partition

    def is_loaded(self, number: int) -> bool:
        """True if the groups of a partition of `__consumer_offsets` are served here."""
        return number in self._runtime.shards

    def end_transaction(self, number: int, end_offset: int, producer_id: int, is_commit: bool) -> None:
        """Applies a producer's marker, which is in the partition below `end_offset` (P-139).

        Once it is replicated, the pending offsets of the transaction become committed offsets or are dropped.
        """
        shard = self._runtime.shards.get(number)
        if shard is not None:
            self._runtime.when_replicated(number, end_offset, shard.end_transaction, producer_id, is_commit)

    async def fetch_offsets(
        self, request: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; topics by name."""
        from pykbroker.groups import offset_requests
        from pykbroker.protocol.messages.offset_fetch import OffsetFetchResponseGroup

        try:
            _, shard = self._runtime.find(request.group_id)
        except CoordinatorError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.error_code)
        return await in_turns(offset_requests.fetch(shard, request, require_stable))

    async def fetch_stable_offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """As `fetch_offsets` with `require_stable`, after commits that are not replicated yet (P-369)."""
        from pykbroker.protocol.messages.offset_fetch import OffsetFetchResponseGroup

        try:
            number, _ = self._runtime.find(request.group_id)
        except CoordinatorError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.error_code)
        try:
            await self._runtime.wait_replicated(number)
        except CoordinatorError as error:
            # Clients before 3.9 know no COORDINATOR_NOT_AVAILABLE here; and this broker may be deposed.
            is_late = error.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            code = ErrorCode.NOT_COORDINATOR if is_late else error.error_code
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
        return await self.fetch_offsets(request, require_stable=True)

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Deletes offsets of existing topics."""
        from pykbroker.groups import offset_requests

        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        prepared: PreparedDeletion | None = None
        turn: Turn | None = None
        if offset_requests.is_large(request):
            _, shard = self._runtime.find(request.group_id)
            prepared = await in_turns(offset_requests.prepare_deletion(shard, request))
            turn = Turn()
        write = self._runtime.begin_write(request.group_id, offset_requests.delete_offsets, request, prepared)
        response: OffsetDeleteResponse = await self._runtime.confirmed(request.group_id, write)
        if turn is not None:
            await turn.end_if_over()  # the request and thousands of records are freed in the next one
        return response

    # Administration

    async def in_described_order(self, group_ids: Iterable[str]) -> list[str]:
        """Groups of a request in the order in which Kafka describes them: by partition (P-651)."""
        by_partition = await in_turns(self._runtime.by_partition([*group_ids]))
        return [group_id for some in by_partition for group_id in some]

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Describes one group, for DescribeGroups."""
        from pykbroker.groups import administration
        from pykbroker.protocol.messages.describe_groups import DescribedGroup

        try:
            _, shard = self._runtime.find(group_id)
        except CoordinatorError as error:
            return DescribedGroup(group_id=group_id, error_code=error.error_code)
        return administration.describe(shard, group_id, api_version)

    async def describe_modern_group(
        self,
        group_id: str,
        groups_of: Callable[[GroupShard], ModernGroups[Any, Any]],
        response: Callable[..., Described],
        *,
        has_texts: bool,
    ) -> Described:
        """Describes one modern group, as it is now, in turns with other requests.

        Args:
            group_id: id of the group.
            groups_of: the groups of the type in a shard.
            response: makes a description with an error; the class of the descriptions of this type.
            has_texts: True if an error of the coordinator comes with its general text.
        """
        from pykbroker.groups.modern.errors import GroupError
        from pykbroker.protocol.error_texts import TEXTS

        if not group_id:
            return response(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            _, shard = self._runtime.find(group_id)
            steps = groups_of(shard).describe(group_id, shard.committed_group(group_id))
            found: Described = await in_turns(steps)
        except CoordinatorError as error:
            text = TEXTS.get(error.error_code) if has_texts else None
            return response(group_id=group_id, error_code=error.error_code, error_message=text)
        except GroupError as error:
            return response(group_id=group_id, error_code=error.error_code, error_message=error.message)
        return found

    async def list_groups(self, states: set[str], types: set[str]) -> ListGroupsResponse:
        """All groups of this broker; COORDINATOR_LOAD_IN_PROGRESS while some are still being loaded.

        Other requests have turns between the shards. Kafka's coordinator asks its threads for each shard, too.
        """
        from pykbroker.groups import administration
        from pykbroker.protocol.messages.list_groups import ListGroupsResponse

        if self._runtime.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._runtime.expire_due()
        groups: list[ListedGroup] = []
        turn = Turn()
        shards = {**self._runtime.shards}
        for number in partition_order(OFFSETS_TOPIC, shards):
            groups += administration.listed(shards[number], states, types)
            await turn.end_if_over()
        return ListGroupsResponse(groups=groups)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Deletes Empty groups when all earlier records are replicated (P-392); their codes come in Kafka's order."""
        from pykbroker.groups import administration

        by_partition = await in_turns(self._runtime.by_partition([*group_ids]))
        wanted = [group_id for some in by_partition for group_id in copied_order(some)]
        codes = await self._prepare_deletions(wanted)
        writes: dict[str, Write[GroupResult]] = {}
        turn = Turn()
        for group_id in wanted:
            if group_id not in codes:
                try:
                    _, shard = self._runtime.find(group_id)
                    tombstones = await in_turns(administration.prepare_deletion(shard, group_id))
                    writes[group_id] = self._runtime.begin_write(group_id, _delete_group, group_id, tombstones)
                except CoordinatorError as error:
                    codes[group_id] = error.error_code
            await turn.end_if_over()
        for group_id, write in writes.items():
            try:
                await self._runtime.settled(group_id, write)
                codes[group_id] = write.result.response
            except CoordinatorError as error:
                codes[group_id] = error.error_code
            await turn.end_if_over()
        return {group_id: codes[group_id] for group_id in wanted}

    async def _prepare_deletions(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Waits until earlier records are replicated, and deletes the states of share groups.

        Returns the codes of groups that can therefore not be deleted.
        """
        codes: dict[str, ErrorCode] = {}
        by_partition: dict[int, list[str]] = {}

        async def delete_states(group_id: str) -> None:
            try:
                error = await self.share.delete_states(group_id)
            except CoordinatorError as failure:
                error = failure.error_code
            if error is not ErrorCode.NONE:
                codes[group_id] = error

        async def wait_replicated(number: int, ids: list[str]) -> None:
            try:
                await self._runtime.wait_replicated(number)
            except CoordinatorError as error:
                codes.update(dict.fromkeys(ids, error.error_code))

        turn = Turn()
        # All at once: with a share coordinator that does not answer each of them takes half a minute.
        async with trio.open_nursery() as nursery:
            for group_id in group_ids:
                try:
                    number, shard = self._runtime.find(group_id)
                except CoordinatorError as error:
                    codes[group_id] = error.error_code
                    continue
                if group_id in shard.share.by_id:
                    nursery.start_soon(delete_states, group_id)
                else:
                    by_partition.setdefault(number, []).append(group_id)
                await turn.end_if_over()
            for number, ids in by_partition.items():
                nursery.start_soon(wait_replicated, number, ids)
        return codes

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
        if result.first_assignment is not None and self._runtime.nursery is not None:
            self._runtime.nursery.start_soon(self.streams.assign_first, result.first_assignment)
        if shard.has_offsets_to_expire:
            self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        self._runtime.schedule("expiry", self._config.groups.offsets_retention_check_interval_ms, self._expire_offsets)

    async def _expire_offsets(self) -> None:
        """Begins to delete expired offsets. Timers fire meanwhile."""
        assert self._runtime.nursery is not None
        self._runtime.nursery.start_soon(self._expire_in_turns)

    async def _expire_in_turns(self) -> None:
        """Deletes expired offsets; runs again after the check interval only if there is still a group (P-114)."""
        from pykbroker.groups import offset_cleanup

        now_ms, shards = self._runtime.now_ms(), self._runtime.shards
        await self._carry_out_all(
            (number, shard, offset_cleanup.expire_offsets(shard, now_ms)) for number, shard in [*shards.items()]
        )
        if any(shard.has_offsets_to_expire for shard in self._runtime.shards.values()):
            self._schedule_expiry()


def _delete_group(shard: GroupShard, now_ms: int, group_id: str, tombstones: Tombstones | None) -> GroupResult:
    from pykbroker.groups import administration

    return administration.delete(shard, group_id, tombstones)
