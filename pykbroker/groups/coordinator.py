"""The group coordinator of one broker: which groups are ours, parked requests, timers, appends, replay.

The trio shell around `Shard`. It decides nothing about groups; it carries outputs out. Between two awaits every shard
is consistent with its log: an event is applied, its records are appended and its replies handed over in one go.

The state machine and the messages are imported where they are used first: they take 40 ms, and a broker that starts
without any group is to answer sooner than that.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import trio

from pykbroker.coordination.internal_topic import InternalTopic, TopicCreation
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.groups.deadlines import Deadlines
from pykbroker.groups.internal_topic import offsets_topic
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.errors import RecordError

if TYPE_CHECKING:
    import random

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.groups.output import LogRecord, Output
    from pykbroker.groups.settings import GroupSettings
    from pykbroker.groups.shard import Shard
    from pykbroker.protocol.messages.describe_groups import DescribedGroup
    from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
    from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from pykbroker.protocol.messages.list_groups import ListGroupsResponse
    from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from pykbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH = 1_000
"""Expiry may end very many offsets at once, more than one batch may hold; their order does not matter."""


class Clock(Protocol):
    """The time of day."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class PartitionRegistry(Protocol):
    """The partitions of this broker."""

    def get(self, topic: str, partition: int) -> Any:
        """The `Partition`, or None if it is not here."""


class MetadataSource(Protocol):
    """The current metadata."""

    @property
    def image(self) -> ClusterImage: ...


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
        clock: Clock,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        create_internal_topic: Callable[[InternalTopic], Awaitable[None]],
        random: random.Random,
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._partitions = partitions
        self._metadata = metadata
        self._topic_creation = TopicCreation(create_internal_topic)
        self._random = random
        self._shards: dict[int, Shard] = {}
        self._loading: set[int] = set()
        self._unreadable: set[int] = set()
        self._deadlines = Deadlines()
        self._next_check_ms: int | None = None
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._is_stopped = False
        self._anchor: tuple[int, float] | None = None

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Replays the partitions that are ours, reports started, then runs timers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for number in self._led_partitions():
                await self._load(number)
            task_status.started()
            while True:
                await self._wait_until_due()
                self._run_due()

    def stop(self) -> None:
        """Sends away everybody who is parked, and whoever comes after; for an orderly shutdown."""
        self._is_stopped = True
        while self._shards:
            self._send_replies(self._shards.popitem()[1].unload(self._now_ms()))

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Takes up partitions that became ours, lets go of others, forgets the offsets of deleted topics."""
        deleted = {topic.name: topic.topic_id for topic in new.delta.deleted_topics}
        if old.topics_by_name.get(OFFSETS_TOPIC) is not new.topics_by_name.get(OFFSETS_TOPIC):
            self._follow_leadership(is_recreated=OFFSETS_TOPIC in deleted)
        if deleted:
            for number, shard in self._shards.items():
                self._append_tombstones(number, shard, shard.delete_topics(deleted))

    def _follow_leadership(self, is_recreated: bool) -> None:
        led = set(self._led_partitions())
        for number in [number for number in self._shards if is_recreated or number not in led]:
            self._send_replies(self._shards.pop(number).unload(self._now_ms()))
            self._deadlines.forget(number)
        self._unreadable &= led
        for number in sorted(led - self._shards.keys() - self._loading):
            self._load_soon(number)

    def _led_partitions(self) -> list[int]:
        topic = self._metadata.image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return []
        return [number for number, partition in topic.partitions.items() if partition.leader == self._node_id]

    # Replay

    def _load_soon(self, number: int) -> None:
        """Loads at once what is empty, as it is on a new topic; anything else in a task of its own."""
        from pykbroker.groups.shard import Shard

        partition = self._partitions.get(OFFSETS_TOPIC, number)
        if partition is None:
            return
        if partition.log.log_end_offset == partition.log.log_start_offset:
            self._shards[number] = Shard(self._settings)
        elif self._nursery is not None:
            self._nursery.start_soon(self._load, number)

    async def _load(self, number: int) -> None:
        """Replays one partition; until that is done its groups answer COORDINATOR_LOAD_IN_PROGRESS (P-90, P-116)."""
        from pykbroker.groups.log_io import replay
        from pykbroker.groups.shard import Shard

        partition = self._partitions.get(OFFSETS_TOPIC, number)
        if partition is None or number in self._shards or number in self._loading:
            return
        self._loading.add(number)
        try:
            shard = Shard(self._settings)
            await replay(partition.log, shard, self._now_ms())
        except (LogError, RecordError) as error:
            log.error("%s-%d cannot be read, its groups are not served: %s", OFFSETS_TOPIC, number, error)
            self._unreadable.add(number)
            return
        finally:
            self._loading.discard(number)
        if self._partitions.get(OFFSETS_TOPIC, number) is not partition:
            return
        self._shards[number] = shard
        self._carry_out(number, shard, shard.loaded(self._now_ms()))
        for group_id in shard.groups:
            self._plan(number, shard, group_id)
        self._plan_check()

    # Where a group is

    def _locate(self, group_id: str) -> tuple[int, Shard] | ErrorCode:
        """The shard of a group; or why there is none here: not ours, or still being replayed (P-90)."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        topic = self._metadata.image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        number = coordinator_partition(group_id, len(topic.partitions))
        shard = self._shards.get(number)
        if shard is not None:
            return number, shard
        partition = topic.partitions.get(number)
        if partition is None or partition.leader != self._node_id or number in self._unreadable:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def request_topic_creation(self, live_broker_count: int) -> None:
        """Begins to create `__consumer_offsets`, unless that is under way (P-89)."""
        if self._nursery is not None:
            topic = offsets_topic(self._settings, live_broker_count)
            self._topic_creation.start(self._nursery, topic, self._settings.offsets_topic_replication_factor)

    # Requests of members

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
        requester = Requester(client_id, client_host, api_version, self._random_uuid())
        parked = Parked()
        output = place[1].join(request, requester, parked, self._now_ms())
        self._carry_out(*place, output, request.group_id)
        response: JoinGroupResponse = await parked.wait_answer()
        return response

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Syncs; waits for the leader if it has not."""
        from pykbroker.protocol.messages.sync_group import SyncGroupResponse

        if request.group_id == "":
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return SyncGroupResponse(error_code=place)
        parked = Parked()
        output = place[1].sync(request, parked, self._now_ms())
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
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, self._now_ms()
        )
        self._plan(number, shard, request.group_id)
        return error

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """A leave in the form of version 3."""
        from pykbroker.protocol.messages.leave_group import LeaveGroupResponse

        if request.group_id == "":
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return LeaveGroupResponse(error_code=place)
        response, output = place[1].leave(request, self._now_ms())
        self._carry_out(*place, output, request.group_id)
        return response

    # Offsets

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        """Commits offsets of existing topics; every topic has its name and its id."""
        from pykbroker.groups import offset_requests

        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return offset_requests.commit_response(request, place)
        response, output = offset_requests.commit(place[1], request, api_version, self._now_ms())
        error = self._carry_out(*place, output, request.group_id)
        return response if error is ErrorCode.NONE else offset_requests.commit_response(request, error)

    def fetch_offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; topics by name."""
        from pykbroker.groups import offset_requests
        from pykbroker.protocol.messages.offset_fetch import OffsetFetchResponseGroup

        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=place)
        return offset_requests.fetch(place[1], request)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Deletes offsets of existing topics."""
        from pykbroker.groups import offset_requests
        from pykbroker.protocol.messages.offset_delete import OffsetDeleteResponse

        if request.group_id == "":
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        place = self._locate(request.group_id)
        if isinstance(place, ErrorCode):
            return OffsetDeleteResponse(error_code=place)
        response, output = offset_requests.delete_offsets(place[1], request)
        error = self._carry_out(*place, output)
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

        if any(number not in self._shards.keys() | self._unreadable for number in self._led_partitions()):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        groups = [listed for shard in self._shards.values() for listed in shard.listed(states, types)]
        return ListGroupsResponse(groups=groups)

    def delete_group(self, group_id: str) -> ErrorCode:
        """Deletes one Empty group."""
        place = self._locate(group_id)
        if isinstance(place, ErrorCode):
            return place
        error, output = place[1].delete(group_id)
        return self._carry_out(*place, output) or error

    # Carrying out

    def _carry_out(self, number: int, shard: Shard, output: Output, group_id: str | None = None) -> ErrorCode:
        """Appends, reports to the shard how that went, sends replies. Gives the error of the first append."""
        first_error: ErrorCode | None = None
        while True:
            self._send_replies(output)
            if not output.records:
                break
            error = self._append(number, output.records)
            first_error = error if first_error is None else first_error
            output = shard.stored(output, error, self._now_ms())
        if group_id is not None:
            self._plan(number, shard, group_id)
            self._plan_check()
        return first_error or ErrorCode.NONE

    def _append(self, number: int, records: list[LogRecord]) -> ErrorCode:
        """Appends one batch; the error is already the one for the client (P-115)."""
        from pykbroker.groups.log_io import append_records

        partition = self._partitions.get(OFFSETS_TOPIC, number)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        codec = self._settings.offsets_topic_compression_codec
        return append_records(partition, records, codec, self._clock.now_ms())

    def _append_tombstones(self, number: int, shard: Shard, output: Output) -> None:
        records = output.records
        for start in range(0, len(records), TOMBSTONES_PER_BATCH):
            output.records = records[start : start + TOMBSTONES_PER_BATCH]
            self._carry_out(number, shard, output)

    def _send_replies(self, output: Output) -> None:
        for note in output.notes:
            log.info("%s", note)
        for waiter, response in output.replies:
            assert isinstance(waiter, Parked)
            waiter.answer(response)

    # Timers

    def _now_ms(self) -> int:
        """The time of day when first asked, going on by trio's clock."""
        elapsed = trio.current_time()
        if self._anchor is None:
            self._anchor = (self._clock.now_ms(), elapsed)
        anchor_ms, anchor = self._anchor
        return anchor_ms + round((elapsed - anchor) * 1000)

    def _plan(self, number: int, shard: Shard, group_id: str) -> None:
        group = shard.groups.get(group_id)
        if group is not None and self._deadlines.plan((number, group_id), group.wake_ms):
            self._wake.set()

    def _plan_check(self) -> None:
        """Expiry is looked at while there are groups; without any the coordinator sleeps for good."""
        if self._next_check_ms is None and any(shard.groups for shard in self._shards.values()):
            self._next_check_ms = self._now_ms() + self._settings.offsets_retention_check_interval_ms
            self._wake.set()

    async def _wait_until_due(self) -> None:
        self._wake = trio.Event()
        deadlines = [at for at in (self._deadlines.first_ms, self._next_check_ms) if at is not None]
        if not deadlines:
            await self._wake.wait()
            return
        with trio.move_on_after(max(min(deadlines) - self._now_ms(), 0) / 1000):
            await self._wake.wait()

    def _run_due(self) -> None:
        now_ms = self._now_ms()
        while (key := self._deadlines.pop_due(now_ms)) is not None:
            number, group_id = key
            shard = self._shards.get(number)
            group = None if shard is None else shard.groups.get(group_id)
            if shard is not None and group is not None:
                self._carry_out(number, shard, group.expire_due(now_ms), group_id)
        if self._next_check_ms is not None and self._next_check_ms <= now_ms:
            self._next_check_ms = None
            for number, shard in self._shards.items():
                self._append_tombstones(number, shard, shard.expire_offsets(now_ms))
            self._plan_check()

    def _random_uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
