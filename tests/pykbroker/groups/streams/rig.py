"""A shard with Streams groups, and members that follow their assignments as Kafka Streams does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.coordination.shard import LoggedRecords
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import GroupResult
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.streams.checks import check_request
from pykbroker.groups.streams.configured import InternalTopic, StatusCode
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)
from tests.pykbroker.groups.consumer.rig import GROUP, START_MS, image_of
from tests.pykbroker.groups.modern_settings import with_values
from tests.pykbroker.groups.shards import make_shard

ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


class StreamsRig:
    """One shard, its log and its time; `append_error` is the error of the next appends.

    With `is_replicated` records are replicated only by `replicate`, as with followers; they take effect at once.

    Attributes:
        missing: internal topics that the last heartbeat asked for.
    """

    def __init__(self, topics: Mapping[str, int], *, is_replicated: bool = False, **settings: int) -> None:
        base = GroupSettings()
        without_delays = {"assignment_interval_ms": 0, "initial_rebalance_delay_ms": 0}
        self.settings = base._replace(streams=with_values(base.streams, **{**without_delays, **settings}))
        self.topics = dict(topics)
        self.configs: dict[str, dict[str, str]] = {}
        self.shard = make_shard(self.settings, image_of(topics), self.configs)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = START_MS
        self.append_error = ErrorCode.NONE
        self.missing: Mapping[str, InternalTopic] = {}
        self._is_replicated = is_replicated
        self._waiting: list[tuple[GroupResult, int]] = []

    @property
    def group(self) -> StreamsGroup:
        return self.shard.streams.by_id[GROUP]

    def carry_out(self, result: GroupResult | None) -> None:
        """As the runtime does it, with one replica or with followers."""
        while result is not None and result.records:
            first_offset = len(self.log)
            if self.append_error is ErrorCode.NONE:
                self.log += [encode_record(record) for record in result.records]
                if self._is_replicated:
                    self.shard.appended(result, self.now_ms, first_offset)
                    self._waiting.append((result, first_offset))
                    return
            result = self.shard.stored(result, self.append_error, self.now_ms, first_offset)

    def replicate(self) -> None:
        """Everything that was appended is replicated."""
        while self._waiting:
            result, first_offset = self._waiting.pop(0)
            self.carry_out(self.shard.replicated(result, self.now_ms, first_offset))

    def beat(self, member_id: str, epoch: int, group_id: str = GROUP, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """The response to a heartbeat."""
        request = StreamsGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)
        streams = self.shard.streams
        context = streams.context(group_id, self.now_ms, "client", "/host")
        try:
            malformed = check_request(request)
            if malformed is not None:
                raise malformed
            result = streams.heartbeat(request, self.shard.any_group(group_id), context)
        except GroupError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        self.carry_out(result)
        if result.records and self.append_error is not ErrorCode.NONE:
            return StreamsGroupHeartbeatResponse(error_code=self.append_error)
        self.missing = context.missing_topics
        response: StreamsGroupHeartbeatResponse = result.response
        return response

    def set_topics(self, **topics: int) -> None:
        """Topics are created, get more partitions, or are deleted (0); "_" stands for "-"."""
        named = {name.replace("_", "-"): count for name, count in topics.items()}
        self.topics = {name: count for name, count in {**self.topics, **named}.items() if count}
        view = self.shard.streams.topics
        view.update(image_of(self.topics))
        view._hashes.clear()
        self.shard.streams.topics_changed(named)

    def create_missing(self) -> None:
        """The broker creates what the last heartbeat asked for."""
        self.set_topics(**{name: topic.partition_count for name, topic in self.missing.items()})

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
                self.carry_out(self.shard.expire_due(key, self.now_ms))
        self.now_ms = end_ms

    def reloaded(self) -> StreamsRig:
        """Another broker that has read this one's log."""
        other = StreamsRig(self.topics)
        other.settings, other.configs, other.now_ms, other.log = self.settings, self.configs, self.now_ms, self.log
        other.shard = make_shard(self.settings, image_of(self.topics), self.configs)
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.log):
            last.pop(key, None)
            last[key] = (offset, value)
        other.shard.load(LoggedRecords(last, {}, {}, "log"), self.now_ms)
        return other


class Thread:
    """A member: a thread of an application, which takes what it is given and gives up what it is not.

    Attributes:
        holds: True while it does not give up tasks, as it is busy.
    """

    def __init__(
        self, rig: StreamsRig, member_id: str, topology: Topology, process_id: str = "", **fields: Any
    ) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topology = topology
        self.fields = {"process_id": process_id or f"process of {member_id}", **fields}
        self.epoch = 0
        self.owned: dict[str, dict[str, set[int]]] = {role: {} for role in ROLES}
        self.given = self.owned
        self.holds = False

    def join(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        self.epoch = 0
        self.owned = self.given = {role: {} for role in ROLES}
        first = {"topology": self.topology, "rebalance_timeout_ms": 60_000, "endpoint_information_epoch": -1}
        return self.beat(**{**self.fields, **first, **fields})

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A heartbeat with the tasks that it has; one that was fenced joins again with its next one."""
        if self.epoch == 0 and "topology" not in fields:
            return self.join()
        given = {
            role: [TaskIds(subtopology_id=key, partitions=sorted(numbers)) for key, numbers in self.owned[role].items()]
            for role in ROLES
        }
        response = self.rig.beat(self.member_id, self.epoch, **{**given, **fields})
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = 0
            self.owned = self.given = {role: {} for role in ROLES}
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.given = {
                    role: {ids.subtopology_id: set(ids.partitions) for ids in getattr(response, role) or ()}
                    for role in ROLES
                }
            if not self.holds:
                self.owned = self.given
        return response

    def leave(self) -> StreamsGroupHeartbeatResponse:
        return self.rig.beat(self.member_id, -1)

    def tasks(self, role: str = "active_tasks") -> list[tuple[str, int]]:
        return [(key, number) for key, numbers in sorted(self.owned[role].items()) for number in sorted(numbers)]


def settle(*threads: Thread, rounds: int = 6) -> None:
    """Heartbeats until nothing moves."""
    for _ in range(rounds):
        for thread in threads:
            thread.beat()


def statuses(response: StreamsGroupHeartbeatResponse) -> list[tuple[StatusCode, str]]:
    """Code and text of each status."""
    return [(StatusCode(status.status_code), status.status_detail) for status in response.status or ()]
