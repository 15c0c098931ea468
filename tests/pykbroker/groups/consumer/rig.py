"""A shard with topics and members of the consumer protocol that follow their assignments as the Java client does."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.coordination.shard import LoggedRecords
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.heartbeat import HeartbeatContext, check_request
from pykbroker.groups.consumer.regexes import RegexRefresh, matching_topics
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import GroupResult, Requester
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.log_messages.metadata_records import PartitionRecord, TopicRecord
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykbroker.protocol.messages.join_group import JoinGroupRequest
from tests.pykbroker.groups.modern_settings import with_values
from tests.pykbroker.groups.shards import make_shard

GROUP = "g"
START_MS = 1_000_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


def image_of(topics: Mapping[str, int]) -> ClusterImage:
    """An image with topics of so many partitions."""
    records: list[Message] = []
    for name, count in topics.items():
        records.append(TopicRecord(name=name, topic_id=topic_id(name)))
        records += [
            PartitionRecord(
                partition_id=number, topic_id=topic_id(name), replicas=[1], isr=[1], leader=1, leader_epoch=0
            )
            for number in range(count)
        ]
    return apply_records(EMPTY_IMAGE, records, offset=len(records), epoch=1, timestamp_ms=0)


class Waiter:
    """A parked request, and the response it got."""

    def __init__(self) -> None:
        self.response: Message | None = None


class Rig:
    """One shard, its log and its time.

    With `is_replicated` records are replicated only by `replicate`, as with followers; they take effect at once.
    `append_error` is the error of the next appends.
    """

    def __init__(self, topics: Mapping[str, int], *, is_replicated: bool = False, **settings: int | str) -> None:
        base = GroupSettings()
        self.settings = base._replace(consumer=with_values(base.consumer, **{"assignment_interval_ms": 0, **settings}))
        self.topics = dict(topics)
        self.configs: dict[str, dict[str, str]] = {}
        self.shard = make_shard(self.settings, image_of(topics), self.configs)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = START_MS
        self.append_error = ErrorCode.NONE
        self.refreshes: list[RegexRefresh] = []
        self.is_replicated = is_replicated
        self._waiting: list[tuple[GroupResult, int]] = []

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.consumer.by_id[GROUP]

    def carry_out(self, result: GroupResult | None) -> None:
        """As the runtime does it, with one replica or with followers."""
        while result is not None:
            for waiter, response in result.replies:
                assert isinstance(waiter, Waiter)
                assert waiter.response is None, "answered twice"
                waiter.response = response
            if not result.records:
                return
            first_offset = len(self.log)
            if self.append_error is ErrorCode.NONE:
                self.log += [encode_record(record) for record in result.records]
                if self.is_replicated:
                    self.shard.appended(result, self.now_ms, first_offset)
                    self._waiting.append((result, first_offset))
                    return
            result = self.shard.stored(result, self.append_error, self.now_ms, first_offset)

    def replicate(self) -> None:
        """Everything that was appended is replicated."""
        while self._waiting:
            result, first_offset = self._waiting.pop(0)
            self.carry_out(self.shard.replicated(result, self.now_ms, first_offset))

    def late(self, error: ErrorCode) -> None:
        """Everything that was appended is not replicated in time."""
        for result, _ in self._waiting:
            self.carry_out(self.shard.late(result, error, self.now_ms))

    def advance(self, milliseconds: int) -> None:
        """Time passes, and timers fire when they are due."""
        end_ms = self.now_ms + milliseconds
        while True:
            keys = {*self.shard.timer_keys(), GROUP}
            due = [at for key in keys if (at := self.shard.wake_ms(key)) is not None]
            if not due or min(due) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(due))
            for key in keys:
                wake_ms = self.shard.wake_ms(key)
                if wake_ms is not None and wake_ms <= self.now_ms:
                    self.carry_out(self.shard.expire_due(key, self.now_ms))
        self.now_ms = end_ms

    def set_topics(self, **topics: int) -> None:
        """Topics are created, get more partitions, or are deleted (0)."""
        before = self.topics
        self.topics = {name: count for name, count in {**before, **topics}.items() if count}
        image = image_of(self.topics)
        view = self.shard.consumer.topics
        view.update(image)
        view.version_with_new_topics = image.offset if set(self.topics) - set(before) else view.version_with_new_topics
        view._hashes.clear()
        self.shard.consumer.topics_changed(topics)

    def beat(self, request: ConsumerGroupHeartbeatRequest, api_version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """The response to a heartbeat."""
        consumer = self.shard.consumer
        settings = consumer.settings_of(request.group_id)
        malformed = check_request(request, api_version, settings)
        context = HeartbeatContext(settings, consumer.topics, self.now_ms, "client", "/host", lambda topic: True)
        try:
            if malformed is not None:
                raise malformed
            result = consumer.heartbeat(request, self.shard.any_group(request.group_id), context)
        except GroupError as error:
            self.carry_out(GroupResult(replies=list(error.replies)))
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        if context.regex_refresh is not None:
            self.refreshes.append(context.regex_refresh)
        self.carry_out(result)
        if result.records and self.append_error is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(error_code=self.append_error)
        response: ConsumerGroupHeartbeatResponse = result.response
        return response

    def resolve_regexes(self) -> None:
        """The coordinator's task finds the topics of regular expressions."""
        while self.refreshes:
            refresh = self.refreshes.pop()
            view = self.shard.consumer.topics
            matches = matching_topics(refresh.regexes, view.names)
            self.carry_out(self.shard.consumer.resolve(refresh, matches, view.version, self.now_ms, self.now_ms))

    def join_classic(self, request: JoinGroupRequest) -> Waiter:
        """Sends a JoinGroup request of the classic protocol."""
        waiter = Waiter()
        requester = Requester("classic", "/host", 9, f"member-{len(self.log)}")
        self.carry_out(self.shard.join(request, requester, waiter, self.now_ms))
        return waiter

    def reloaded(self) -> GroupShard:
        """Another coordinator's shard, loaded from the same log after compaction."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.log):
            last.pop(key, None)
            last[key] = offset, value
        shard = make_shard(self.settings, image_of(self.topics), self.configs)
        shard.load(LoggedRecords(last, {}, {}, "log"), self.now_ms)
        return shard


class Client:
    """A member as the Java client behaves: it gives up partitions at once, unless it is told to hold them."""

    def __init__(self, rig: Rig, member_id: str, topics: list[str] | None = None, **options: str | None) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topics = topics
        self.options = options
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.holds = False
        self._pending: dict[bytes, set[int]] = {}

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Sends the next heartbeat and does what the response says; joins again when it is fenced."""
        is_joining = self.epoch == 0
        owned = [TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in self.owned.items() if p]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if is_joining else -1,
            subscribed_topic_names=self.topics if is_joining else None,
            topic_partitions=[] if is_joining else owned,
            instance_id=self.options.get("instance_id"),
            subscribed_topic_regex=self.options.get("regex") if is_joining else None,
            server_assignor=self.options.get("assignor"),
        )
        response = self.rig.beat(request)
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
        elif response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._pending = {t.topic_id: set(t.partitions) for t in response.assignment.topic_partitions}
            if not self.holds:
                self.take()
        return response

    def take(self) -> None:
        """Gives up what is not assigned any more, and takes what is."""
        self.owned = {t: set(p) for t, p in self._pending.items()}

    def subscribe(self, topics: list[str]) -> ConsumerGroupHeartbeatResponse:
        """Changes the subscription by a heartbeat."""
        self.topics = topics
        owned = [TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in self.owned.items() if p]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=topics,
            topic_partitions=owned,
        )
        response = self.rig.beat(request)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._pending = {t.topic_id: set(t.partitions) for t in response.assignment.topic_partitions}
                self.take()
        return response

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leaves for good (-1), or for a while as a static member (-2)."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.options.get("instance_id"),
        )
        response = self.rig.beat(request)
        self.epoch, self.owned, self._pending = 0, {}, {}
        return response

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The partitions that the client owns, with topics' names."""
        return {(t.decode().rstrip("."), number) for t, numbers in self.owned.items() for number in numbers}


def settle(*clients: Client, rounds: int = 12) -> None:
    """Heartbeats until nothing changes any more."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
            client.rig.resolve_regexes()
