"""A shard with topics and members of the consumer protocol that follow their assignments as the Java client does."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups import member_requests, modern_writes
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.consumer.heartbeat import check_request
from pykbroker.groups.consumer.regexes import matching_topics
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import GroupResult, RegexRefresh, Requester, ResolvedRegexes
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykbroker.protocol.messages.join_group import JoinGroupRequest
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.group_settings import DEFAULT_CONFIG
from tests.pykbroker.groups.shard_rig import GROUP, ShardRig


class Waiter:
    """A parked request, and the response it got."""

    def __init__(self) -> None:
        self.response: Message | None = None


class Rig(ShardRig):
    """A shard with consumer groups, and the waiters of classic members; see `ShardRig`."""

    def __init__(self, topics: Mapping[str, int], *, is_replicated: bool = False, **settings: int | str) -> None:
        values = DEFAULT_CONFIG.consumer_groups.replaced(**{"assignment_interval_ms": 0, **settings})
        super().__init__(topics, DEFAULT_CONFIG.replaced(consumer_groups=values), is_replicated=is_replicated)
        self.refreshes: list[RegexRefresh] = []

    @property
    def groups(self) -> ConsumerGroups:
        return self.shard.consumer

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.consumer.by_id[GROUP]

    def deliver(self, result: GroupResult) -> None:
        for waiter, response in result.replies:
            assert isinstance(waiter, Waiter)
            assert waiter.response is None, "answered twice"
            waiter.response = response

    def beat(self, request: ConsumerGroupHeartbeatRequest, api_version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """The response to a heartbeat."""
        client = "client", "/host", lambda topic: True
        prepared = None
        try:
            check_request(request, api_version, self.shard.consumer.settings_of(request.group_id))
        except GroupError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        if self.run_steps is not None and request.member_epoch >= 0:
            steps = modern_writes.CONSUMER_HEARTBEAT.prepare(self.shard, lambda: self.now_ms, request, *client)
            prepared = self.run_steps(steps)
        result = modern_writes.consumer_heartbeat(self.shard, self.now_ms, request, *client, prepared)
        if result.regex_refresh is not None:
            self.refreshes.append(result.regex_refresh)
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
            matches = finished(matching_topics(refresh.regexes, view, refresh.may_describe))
            found = ResolvedRegexes(refresh.group_id, matches, view.version, self.now_ms)
            prepared = None
            if self.run_steps is not None:
                prepared = finished(modern_writes.REGEXES_RESOLVED.prepare(self.shard, lambda: self.now_ms, found))
                assert prepared is not None or GROUP not in self.shard.consumer.by_id
            self.carry_out(modern_writes.REGEXES_RESOLVED.carry_out(self.shard, self.now_ms, found, prepared))

    def join_classic(self, request: JoinGroupRequest) -> Waiter:
        """Sends a JoinGroup request of the classic protocol."""
        waiter = Waiter()
        requester = Requester("classic", "/host", 9, len(self.log).to_bytes(16, "big"), lambda topic: True)
        result = member_requests.classic_group_join(self.shard, self.now_ms, request, requester, waiter)
        if result.regex_refresh is not None:
            self.refreshes.append(result.regex_refresh)
        self.carry_out(result)
        return waiter


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
