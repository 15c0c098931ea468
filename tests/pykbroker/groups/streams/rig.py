"""A shard with Streams groups, and members that follow their assignments as Kafka Streams does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.groups import modern_writes
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import GroupResult
from pykbroker.groups.streams.checks import check_request
from pykbroker.groups.streams.configured import InternalTopic, StatusCode
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.groups import StreamsGroups
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    Topology,
)
from tests.pykbroker.groups.group_settings import DEFAULT_CONFIG
from tests.pykbroker.groups.shard_rig import GROUP, ShardRig

ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")


class StreamsRig(ShardRig):
    """A shard with Streams groups; see `ShardRig`.

    Attributes:
        missing: internal topics that the last heartbeat asked for.
    """

    def __init__(self, topics: Mapping[str, int], *, is_replicated: bool = False, **settings: int) -> None:
        without_delays = {"assignment_interval_ms": 0, "initial_rebalance_delay_ms": 0}
        values = DEFAULT_CONFIG.streams_groups.replaced(**{**without_delays, **settings})
        super().__init__(topics, DEFAULT_CONFIG.replaced(streams_groups=values), is_replicated=is_replicated)
        self.missing: Mapping[str, InternalTopic] = {}

    @property
    def groups(self) -> StreamsGroups:
        return self.shard.streams

    @property
    def group(self) -> StreamsGroup:
        return self.shard.streams.by_id[GROUP]

    def beat(self, member_id: str, epoch: int, group_id: str = GROUP, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """The response to a heartbeat."""
        request = StreamsGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)
        client = "client", "/host"
        prepared = None
        try:
            check_request(request)
        except GroupError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        if self.run_steps is not None and epoch >= 0:
            prepared = self.run_steps(
                modern_writes.STREAMS_HEARTBEAT.prepare(self.shard, lambda: self.now_ms, request, *client)
            )
        result = modern_writes.streams_heartbeat(self.shard, self.now_ms, request, *client, prepared)
        self.carry_out(result)
        if result.records and self.append_error is not ErrorCode.NONE:
            return StreamsGroupHeartbeatResponse(error_code=self.append_error)
        self.missing = result.missing_topics
        response: StreamsGroupHeartbeatResponse = result.response
        return response

    def deliver(self, result: GroupResult) -> None:
        """Computes the first assignment of a large group, as the coordinator does it in a task."""
        wanted = result.first_assignment
        if wanted is not None:
            prepared = None
            if self.run_steps is not None:
                prepared = self.run_steps(
                    modern_writes.FIRST_ASSIGNMENT.prepare(self.shard, lambda: self.now_ms, wanted)
                )
            self.carry_out(modern_writes.FIRST_ASSIGNMENT.carry_out(self.shard, self.now_ms, wanted, prepared))

    def set_topics(self, **topics: int) -> None:
        """As `ShardRig.set_topics`; "_" stands for "-"."""
        super().set_topics(**{name.replace("_", "-"): count for name, count in topics.items()})

    def create_missing(self) -> None:
        """The broker creates what the last heartbeat asked for."""
        self.set_topics(**{name: topic.partition_count for name, topic in self.missing.items()})


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
