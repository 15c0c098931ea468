"""The group coordinator of one broker: which groups are ours, parked requests, timers, appends, replay.

The trio shell around `Shard`. It decides nothing about groups; it carries outputs out. Between two awaits every shard
is consistent with its log: an event is applied, its records are appended and its replies handed over in one go. Where
the log has other replicas, what follows from the records comes when they are replicated (`ReplicationQueue`).

The state machine and the messages are imported where they are used first: they take 40 ms, and a broker that starts
without any group is to answer sooner than that.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.coordination.internal_topic import InternalTopic, TopicCreation
from pykbroker.coordination.led_partitions import LedPartitions, MetadataSource, PartitionRegistry
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.coordination.replication_queue import ReplicationQueues
from pykbroker.coordination.timer import CoordinatorTimer
from pykbroker.groups.deadlines import Deadlines
from pykbroker.groups.internal_topic import offsets_topic
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    import random

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.replication_queue import Waiting
    from pykbroker.groups.output import Output, TransactionalProducer
    from pykbroker.groups.settings import GroupSettings
    from pykbroker.groups.shard import Shard
    from pykbroker.logstore.producer_state import Verification
    from pykbroker.protocol.messages.describe_groups import DescribedGroup
    from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
    from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from pykbroker.protocol.messages.list_groups import ListGroupsResponse
    from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from pykbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

METADATA_BYTES_MAX = 256 * 1024 * 1024
LARGE_METADATA_BYTES = 65_536
"""What members say about themselves stays until their sessions end, half an hour after they are gone: it is bounded
over all groups. Kafka has no such limit but its heap. One member of a very large group says some ten kilobytes."""

TOMBSTONES_PER_BATCH = 1_000
"""Expiry may end very many offsets at once, more than one batch may hold; their order does not matter."""


class Parked:
    """A request that waits for its group."""

    __slots__ = ("_event", "_response")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._response: Any = None

    def answer(self, response: Any) -> None:
        """Lets the request go on."""
        self._response = response
        self._event.set()

    async def wait_answer(self) -> Any:
        """Waits without a deadline: every group has timers that end a rebalance."""
        await self._event.wait()
        return self._response


class GroupCoordinator:
    """All classic groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        settings: limits and times.
        node_id: this broker.
        clock: time of day, for the timestamps of records. Durations are measured by trio's clock, so that a step of
            the wall clock expires nobody's session.
        partitions: where to append to and read from.
        metadata: who leads which partition.
        create_internal_topic: creates `__consumer_offsets` through the controller; called when a client first looks
            for a coordinator, once at a time, and free to fail (the client asks again).
        random: for member ids.

    `run` must be running for timers to fire and for the log to be replayed. `on_metadata_change` is to be called after
    `partitions` has followed the same change.
    """

    def __init__(
        self,
        settings: GroupSettings,
        node_id: int,
        clock: WallClock,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        create_internal_topic: Callable[[InternalTopic], Awaitable[None]],
        random: random.Random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._timer = CoordinatorTimer(clock)
        self._led: LedPartitions[Shard] = LedPartitions(
            OFFSETS_TOPIC,
            node_id,
            partitions,
            metadata,
            make=self._make_shard,
            replay=self._replay,
            on_loaded=self._on_loaded,
            on_let_go=self._on_let_go,
        )
        self._topic_creation = TopicCreation(create_internal_topic)
        self._random = random
        self._deadlines = Deadlines()
        self._queues = ReplicationQueues(settings.offsets_commit_timeout_ms / 1000)
        self._next_check_ms: int | None = None
        self._nursery: trio.Nursery | None = None

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Replays the partitions that are ours, reports started, then runs timers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._led.load_all(nursery)
            task_status.started()
            while True:
                await self._timer.wait_until((self._deadlines.first_ms, self._next_check_ms))
                self._run_due()

    def stop(self) -> None:
        """Sends away everybody who is parked, and whoever comes after; for an orderly shutdown."""
        self._led.stop()

    def take_up_missing(self) -> None:
        """Tries again to read what could not be read or opened before; the disk may work again."""
        self._led.take_up_missing(self._nursery)

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Takes up partitions that became ours, lets go of others, forgets the offsets of deleted topics."""
        deleted = {topic.name: topic.topic_id for topic in new.delta.deleted_topics}
        if old.topics_by_name.get(OFFSETS_TOPIC) is not new.topics_by_name.get(OFFSETS_TOPIC):
            self._led.follow(self._nursery, is_recreated=OFFSETS_TOPIC in deleted)
        if deleted:
            for number, shard in self._led.shards.items():
                self._append_tombstones(number, shard, shard.delete_topics(deleted))

    def _make_shard(self, partition: Any) -> Shard:
        from pykbroker.groups.shard import Shard

        return Shard(self._settings)

    async def _replay(self, partition: Any, shard: Shard) -> None:
        """Until this is done the groups answer COORDINATOR_LOAD_IN_PROGRESS (P-90, P-116)."""
        from pykbroker.groups.log_io import replay

        await replay(partition.log, shard, self._timer.now_ms())

    def _on_loaded(self, number: int, shard: Shard) -> None:
        if not shard.groups:
            return
        self._carry_out(number, shard, shard.loaded(self._timer.now_ms()))
        for group_id in shard.groups:
            self._plan(number, shard, group_id)
        self._plan_check()

    def _on_let_go(self, number: int, shard: Shard) -> None:
        self._queues.close(number)
        self._send_replies(shard.unload(self._timer.now_ms()))
        self._deadlines.forget(number)

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Begins to create `__consumer_offsets`, unless that is under way (P-89)."""
        if self._nursery is not None:
            topic = offsets_topic(self._settings, live_broker_count)
            self._topic_creation.start(self._nursery, topic, self._settings.offsets_topic_replication_factor)

    # Requests of members

    def _locate(self, group_id: str) -> tuple[int, Shard] | ErrorCode:
        """The partition and shard of a group, which is as it should be now."""
        self._expire_due()
        return self._led.locate(group_id)

    async def join_group(
        self, request: JoinGroupRequest, client_id: str, client_host: str, api_version: int
    ) -> JoinGroupResponse:
        """Joins; waits for the end of the join phase if the client has to."""
        from pykbroker.groups.output import Requester
        from pykbroker.protocol.messages.join_group import JoinGroupResponse

        member_id, settings = request.member_id, self._settings
        if request.group_id == "":
            return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=member_id)
        longest_ms = settings.group_max_session_timeout_ms
        if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= longest_ms:
            return JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return JoinGroupResponse(error_code=place)
        if self._has_no_room_for(request):
            return JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=member_id)
        requester = Requester(client_id, client_host, api_version, self._random_uuid())
        parked = Parked()
        output = place[1].join(request, requester, parked, self._timer.now_ms())
        self._carry_out(*place, output, request.group_id)
        response: JoinGroupResponse = await parked.wait_answer()
        return response

    def _has_no_room_for(self, request: JoinGroupRequest) -> bool:
        """Whether a large join would take the metadata of all members beyond what is held for them.

        Small ones are not counted: their number is what limits them.
        """
        size_bytes = sum(len(protocol.metadata) for protocol in request.protocols)
        if size_bytes <= LARGE_METADATA_BYTES:
            return False
        held = sum(
            len(metadata)
            for shard in self._led.shards.values()
            for group in shard.groups.values()
            for member in group.members
            for _, metadata in member.protocols
        )
        return held + size_bytes > METADATA_BYTES_MAX

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Syncs; waits for the leader if it has not."""
        from pykbroker.protocol.messages.sync_group import SyncGroupResponse

        if request.group_id == "":
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return SyncGroupResponse(error_code=place)
        parked = Parked()
        output = place[1].sync(request, parked, self._timer.now_ms())
        self._carry_out(*place, output, request.group_id)
        response: SyncGroupResponse = await parked.wait_answer()
        return response

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """A heartbeat; while the group is being loaded it is simply accepted (P-90)."""
        if request.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return ErrorCode.NONE if place is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else place
        number, shard = place
        error = shard.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, self._timer.now_ms()
        )
        self._plan(number, shard, request.group_id)
        return error

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """A leave in the form of version 3."""
        from pykbroker.protocol.messages.leave_group import LeaveGroupResponse

        if request.group_id == "":
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return LeaveGroupResponse(error_code=place)
        response, output = place[1].leave(request, self._timer.now_ms())
        await self._outcome(self._carry_out(*place, output, request.group_id))
        return response

    # Offsets

    async def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        """Commits offsets of existing topics; every topic has its name and its id."""
        from pykbroker.groups import offset_requests

        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return offset_requests.commit_response(request, place)
        response, output = offset_requests.commit(place[1], request, api_version, self._timer.now_ms())
        error = await self._outcome(self._carry_out(*place, output, request.group_id))
        return response if error is ErrorCode.NONE else offset_requests.commit_response(request, error)

    def offsets_partition(self, group_id: str) -> Any:
        """The `Partition` that keeps a group's offsets, for a transaction to be verified; else an ErrorCode."""
        if group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        place = self._led.locate(group_id)
        if isinstance(place, ErrorCode):
            return place
        return self._led.partition(place[0]) or ErrorCode.NOT_COORDINATOR

    async def commit_transactional_offsets(
        self,
        request: OffsetCommitRequest,
        api_version: int,
        producer: TransactionalProducer,
        verification: Verification | None,
    ) -> OffsetCommitResponse:
        """As `commit_offsets`, within the transaction that the producer has open (P-139)."""
        from pykbroker.groups import offset_requests

        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return offset_requests.commit_response(request, place)
        response, output = offset_requests.commit(place[1], request, api_version, self._timer.now_ms(), producer)
        error = await self._outcome(self._carry_out(*place, output, request.group_id, verification))
        return response if error is ErrorCode.NONE else offset_requests.commit_response(request, error)

    def is_loaded(self, number: int) -> bool:
        """Whether the groups of a partition of `__consumer_offsets` are served here."""
        return number in self._led.shards

    def end_transaction(self, number: int, end_offset: int, producer_id: int, is_commit: bool) -> None:
        """The producer's marker is in the partition, before `end_offset` (P-139).

        Once it is replicated the offsets of the transaction count, or never did.
        """
        shard = self._led.shards.get(number)
        if shard is not None and self._queues.must_wait(number, self._led.partition(number), end_offset):
            end = partial(shard.end_transaction, producer_id, is_commit)
            self._queues.push(number, end_offset, end, lambda error: None, self._nursery)
        elif shard is not None:
            shard.end_transaction(producer_id, is_commit)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool = False) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; topics by name."""
        from pykbroker.groups import offset_requests
        from pykbroker.protocol.messages.offset_fetch import OffsetFetchResponseGroup

        place = self._led.locate(request.group_id)
        if isinstance(place, ErrorCode):
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=place)
        return offset_requests.fetch(place[1], request, require_stable)

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Deletes offsets of existing topics."""
        from pykbroker.groups import offset_requests
        from pykbroker.protocol.messages.offset_delete import OffsetDeleteResponse

        if request.group_id == "":
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return OffsetDeleteResponse(error_code=place)
        response, output = offset_requests.delete_offsets(place[1], request)
        error = await self._outcome(self._carry_out(*place, output))
        return response if error is ErrorCode.NONE else OffsetDeleteResponse(error_code=error)

    # Administration

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """One group."""
        from pykbroker.protocol.messages.describe_groups import DescribedGroup

        place = self._locate(group_id)
        if isinstance(place, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=place)
        return place[1].describe(group_id, api_version)

    def list_groups(self, states: set[str], types: set[str]) -> ListGroupsResponse:
        """All groups of this broker; an error as long as some are still being loaded."""
        from pykbroker.protocol.messages.list_groups import ListGroupsResponse

        if self._led.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._expire_due()
        groups = [listed for shard in self._led.shards.values() for listed in shard.listed(states, types)]
        return ListGroupsResponse(groups=groups)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Deletes Empty groups; the code for each."""
        under_way = {group_id: self._delete_group(group_id) for group_id in group_ids}
        return {group_id: await self._outcome(carried_out) for group_id, carried_out in under_way.items()}

    def _delete_group(self, group_id: str) -> ErrorCode | Waiting:
        place = self._locate(group_id)
        if isinstance(place, ErrorCode):
            return place
        error, output = place[1].delete(group_id)
        return self._carry_out(*place, output) if error is ErrorCode.NONE else error

    # Carrying out

    def _carry_out(
        self,
        number: int,
        shard: Shard,
        output: Output,
        group_id: str | None = None,
        verification: Verification | None = None,
    ) -> ErrorCode | Waiting:
        """Appends, reports to the shard how that went, sends replies. Gives the error of the first append, or that
        append as it waits for its replicas; see `_outcome`.
        """
        first: ErrorCode | Waiting | None = None
        while True:
            self._send_replies(output)
            if not output.records:
                break
            error, first_offset, end_offset = self._append(number, output, verification)
            if error is ErrorCode.NONE and self._queues.must_wait(number, self._led.partition(number), end_offset):
                waiting = self._await_replicas(number, shard, output, first_offset, end_offset)
                first = waiting if first is None else first
                break
            first = error if first is None else first
            output = shard.stored(output, error, self._timer.now_ms(), first_offset)
        if group_id is not None:
            self._plan(number, shard, group_id)
            self._plan_check()
        return ErrorCode.NONE if first is None else first

    async def _outcome(self, carried_out: ErrorCode | Waiting) -> ErrorCode:
        """What a client is told of an append (P-115); waits for it to be replicated."""
        if isinstance(carried_out, ErrorCode):
            return carried_out
        from pykbroker.coordination.log_io import response_error

        return response_error(await carried_out.wait_answer())

    def _append(self, number: int, output: Output, verification: Verification | None) -> tuple[ErrorCode, int, int]:
        """Appends one batch: the error for the client (P-115), the first record's offset and the end."""
        from pykbroker.coordination.log_io import response_error
        from pykbroker.groups.log_io import append_records

        partition = self._led.partition(number)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR, -1, -1
        first_offset = partition.log.log_end_offset
        codec = self._settings.offsets_topic_compression_codec
        error = append_records(partition, output, codec, self._clock.now_ms(), verification)
        return response_error(error), first_offset, partition.log.log_end_offset

    def _await_replicas(self, number: int, shard: Shard, output: Output, first_offset: int, end_offset: int) -> Waiting:
        from pykbroker.coordination.log_io import response_error

        group_id = None if output.stored is None else output.stored.group_id

        def take_effect() -> None:
            followed = shard.replicated(output, self._timer.now_ms(), first_offset)
            self._carry_out(number, shard, followed, group_id)

        def send_away(error: ErrorCode) -> None:
            followed = shard.late(output, response_error(error), self._timer.now_ms())
            self._carry_out(number, shard, followed, group_id)

        shard.appended(output)
        return self._queues.push(number, end_offset, take_effect, send_away, self._nursery)

    def _append_tombstones(self, number: int, shard: Shard, output: Output) -> None:
        records = output.records
        for start in range(0, len(records), TOMBSTONES_PER_BATCH):
            output.records = records[start : start + TOMBSTONES_PER_BATCH]
            self._carry_out(number, shard, output)

    def _send_replies(self, output: Output) -> None:
        for detail in output.details:
            log.debug("%s", detail)
        for note in output.notes:
            log.info("%s", note)
        for waiter, response in output.replies:
            assert isinstance(waiter, Parked)
            waiter.answer(response)

    # Timers

    def _plan(self, number: int, shard: Shard, group_id: str) -> None:
        group = shard.groups.get(group_id)
        if group is not None and self._deadlines.plan((number, group_id), group.wake_ms):
            self._timer.wake()

    def _plan_check(self) -> None:
        """Expiry is looked at while there are groups; without any the coordinator sleeps for good."""
        if self._next_check_ms is None and any(shard.groups for shard in self._led.shards.values()):
            self._next_check_ms = self._timer.now_ms() + self._settings.offsets_retention_check_interval_ms
            self._timer.wake()

    def _run_due(self) -> None:
        now_ms = self._expire_due()
        if self._next_check_ms is not None and self._next_check_ms <= now_ms:
            self._next_check_ms = None
            for number, shard in self._led.shards.items():
                self._append_tombstones(number, shard, shard.expire_offsets(now_ms))
            self._plan_check()

    def _expire_due(self) -> int:
        """Ends what is over by now, sessions and phases of rebalances; gives the time.

        Requests do it first, as on a busy loop the timer's task may come after them: DeleteGroups would find a member
        whose session ended some milliseconds before. Kafka's timer has a thread of its own.
        """
        now_ms = self._timer.now_ms()
        while (key := self._deadlines.pop_due(now_ms)) is not None:
            number, group_id = key
            shard = self._led.shards.get(number)
            group = None if shard is None else shard.groups.get(group_id)
            if shard is not None and group is not None:
                self._carry_out(number, shard, group.expire_due(now_ms), group_id)
        return now_ms

    def _random_uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
