"""Timers of the members of a consumer group."""

from __future__ import annotations

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.leaving import fence_members
from pykbroker.groups.consumer.member import MemberState
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.modern.expiry import explain_and_retry, first_of_each
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult

_REASONS = {
    TimerKind.SESSION: "the member session expired",
    TimerKind.REBALANCE: "it has not given up its partitions in time",
    TimerKind.CLASSIC_JOIN: "the classic member failed to join within the rebalance timeout",
    TimerKind.CLASSIC_SYNC: "the member failed to sync within timeout",
}


def expire_due(
    group: ConsumerGroup, settings: ConsumerGroupSettings, topics: GroupTopics, now_ms: int
) -> GroupResult | None:
    """Fences the members whose timers are due; None if there are none."""
    epochs = {member_id: member.member_epoch for member_id, member in group.members.items()}
    due = first_of_each(group.timers.pop_due(now_ms), epochs)
    if not due:
        return None
    result = fence_members(group, [group.members[member_id] for member_id in due], settings, topics, now_ms)
    return explain_and_retry(result, group.group_id, group.timers, due, _REASONS)


def schedule_loaded(group: ConsumerGroup, settings: ConsumerGroupSettings, now_ms: int) -> None:
    """Starts the sessions of a loaded group, and the rebalance timeouts of members with partitions to give up."""
    for member in group.members.values():
        group.timers.schedule(TimerKind.SESSION, member.member_id, now_ms + settings.session_timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            group.timers.schedule(TimerKind.REBALANCE, member.member_id, deadline_ms, member.member_epoch)
