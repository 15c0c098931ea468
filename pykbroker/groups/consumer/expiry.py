"""Timers of the members of a consumer group."""

from __future__ import annotations

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.leaving import fence_members
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
    due = first_of_each(group.timers.pop_due(now_ms), group.members)
    if not due:
        return None
    result = fence_members(group, [group.members[member_id] for member_id in due], settings, topics, now_ms)
    return explain_and_retry(result, group.group_id, group.timers, due, _REASONS)
