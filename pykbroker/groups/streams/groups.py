"""The Streams groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykbroker.config.values import StreamsGroupValues
from pykbroker.groups.classic.group import EMPTY, Group
from pykbroker.groups.modern.group import LEAVING_EPOCHS
from pykbroker.groups.modern.groups import ModernGroups
from pykbroker.groups.modern.preparation import LARGE, PreparedWrite
from pykbroker.groups.modern.settings import bounded
from pykbroker.groups.modern.timers import DueTimer, TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.offset_log import group_tombstone
from pykbroker.groups.result import FirstAssignment, GroupResult, LogRecord
from pykbroker.groups.streams import heartbeat as heartbeats
from pykbroker.groups.streams.describe import describe
from pykbroker.groups.streams.group import STREAMS_GROUP_TYPE, StreamsGroup
from pykbroker.groups.streams.heartbeat import StreamsHeartbeatContext
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.records import group_tombstones
from pykbroker.groups.streams.target import Assign
from pykbroker.protocol.messages.streams_group_describe import DescribedGroup
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pykbroker.protocol.steps import Steps, finished


class StreamsGroups(ModernGroups[StreamsGroup, StreamsGroupValues]):
    """Streams groups by id.

    Args:
        settings, topics, configs_of: as for `ModernGroups`.
        assign: the assignor of tasks.
    """

    group_type = STREAMS_GROUP_TYPE
    protocol_type = STREAMS_GROUP_TYPE
    group_class = StreamsGroup

    def __init__(
        self,
        settings: StreamsGroupValues,
        topics: GroupTopics,
        configs_of: Callable[[str], Mapping[str, str]],
        assign: Assign,
    ) -> None:
        super().__init__(settings, topics, configs_of)
        self._assign = assign

    def tombstones(self, group_id: str) -> list[LogRecord]:
        """Tombstones of everything that is stored for a group."""
        return group_tombstones(group_id, self.by_id[group_id].members)

    def filter_name(self, state: str) -> str:
        """Name of a state in the filters of ListGroups."""
        return "not_ready" if state == "NotReady" else state.lower()

    def of_group(self, configs: Mapping[str, str]) -> StreamsGroupValues:
        """The settings of a group that has configs of its own."""
        settings = super().of_group(configs)
        return settings.replaced(
            num_standby_replicas=bounded(
                configs,
                "streams.num.standby.replicas",
                settings.num_standby_replicas,
                0,
                settings.max_standby_replicas,
            ),
            initial_rebalance_delay_ms=int(
                configs.get("streams.initial.rebalance.delay.ms", settings.initial_rebalance_delay_ms)
            ),
        )

    # Requests

    def context(
        self, group_id: str, now_ms: int, client_id: str = "", client_host: str = ""
    ) -> StreamsHeartbeatContext:
        """Context of an operation on a group."""
        return StreamsHeartbeatContext(
            self.settings_of(group_id), self.topics, self._assign, now_ms, client_id, client_host
        )

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, other: object | None, context: StreamsHeartbeatContext
    ) -> GroupResult:
        """Handles StreamsGroupHeartbeat; a member that joins creates the group, or takes the place of an empty one.

        Args:
            request: the request, which was checked.
            other: the group of any type with this id, if there is one.
            context: settings, topics, assignor, time and client.

        Raises:
            GroupError: the request is refused.
        """
        group_id = request.group_id
        if request.member_epoch in LEAVING_EPOCHS:
            return heartbeats.leave(self.find(group_id, other), request)
        result = GroupResult(applies_at_append=True)
        is_joining = request.member_epoch == 0
        if is_joining and isinstance(other, Group) and other.state is EMPTY:
            result.records.append(group_tombstone(group_id))
            result.notes.append(f"group {group_id}: the empty classic group becomes a Streams group")
            group = self.make(group_id, self.soft_state_of(group_id))
        else:
            group = self.get_or_make(group_id, other, is_joining=is_joining)
        outcome = finished(heartbeats.heartbeat(group, request, context, result))
        result.response = heartbeats.finish_heartbeat(group, request, context, outcome, is_known=other is not None)
        self.keep_soft_state(group)
        return result

    def compute_heartbeat(
        self, group: StreamsGroup, now_ms: int, request: StreamsGroupHeartbeatRequest, *client: str
    ) -> Steps[GroupResult]:
        """Computes a heartbeat that does not leave, without its response; see `prepare_write`.

        `finish_heartbeat` must follow. `client` are the arguments of `context` that describe the client.
        """
        context = self.context(group.group_id, now_ms, *client)
        result = GroupResult(applies_at_append=True)
        result.response = yield from heartbeats.heartbeat(group, request, context, result)
        return result

    def finish_heartbeat(
        self, prepared: PreparedWrite, request: StreamsGroupHeartbeatRequest, context: StreamsHeartbeatContext
    ) -> GroupResult:
        """Result of a heartbeat that `compute_heartbeat` has computed.

        Raises:
            GroupError: the request is refused.
        """
        group, result = prepared.group, prepared.result
        is_known = group.group_id in self.by_id
        result.response = heartbeats.finish_heartbeat(group, request, context, result.response, is_known=is_known)
        self.keep_soft_state(group)
        return result

    def is_long_heartbeat(self, request: StreamsGroupHeartbeatRequest, now_ms: int) -> bool:
        """True for a heartbeat that should be prepared: it may change a member of a group with many topics or tasks."""
        if request.member_epoch < 0:
            return False
        group = self.by_id.get(request.group_id)
        if group is not None and group.configured is not None:
            return group.size > LARGE and not group.is_steady(request, now_ms)
        sources = (
            [subtopology.source_topics for subtopology in request.topology.subtopologies] if request.topology else []
        )
        if group is not None and group.topology is not None:
            sources = [subtopology.source_topics for subtopology in group.topology.subtopologies.values()]
        return sum(1 + sum(self.topics.partition_count_of(name) or 1 for name in names) for names in sources) > LARGE

    def described(self, group: StreamsGroup) -> Steps[DescribedGroup]:
        """A group for StreamsGroupDescribe."""
        return describe(group)

    # Time

    def run_timer(self, group: StreamsGroup, due: DueTimer, now_ms: int) -> GroupResult | None:
        """Fences the member whose timer is due, or ends the initial delay; None if there is nothing to do."""
        if due.kind is not TimerKind.INITIAL_REBALANCE:
            return super().run_timer(group, due, now_ms)
        if group.size > LARGE:
            return GroupResult(first_assignment=FirstAssignment(group.group_id))
        return finished(self.assign_first(group, now_ms))

    def assign_first(
        self, group: StreamsGroup, now_ms: int, _request: FirstAssignment | None = None
    ) -> Steps[GroupResult]:
        """Ends the initial rebalance delay: the group gets its first assignment; see `prepare_write`.

        `_request` has nothing but the group's id. The result is empty if a new delay has begun since the operation was
        prepared.
        """
        if (TimerKind.INITIAL_REBALANCE, heartbeats.GROUP_TIMER) in group.timers:
            return GroupResult()
        return (yield from heartbeats.end_initial_delay(group, self.context(group.group_id, now_ms)))

    def remove_member(self, group: StreamsGroup, member: StreamsMember, now_ms: int) -> GroupResult:
        return heartbeats.remove_member(group, member)
