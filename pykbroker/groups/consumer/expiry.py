"""Timers of the members of a consumer group."""

from __future__ import annotations

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.leaving import fence_members
from pykbroker.groups.consumer.member import MemberState
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.modern.timers import DueTimer, TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult

RETRY_BACKOFF_MS = 500
"""Time after which the coordinator tries again to fence a member; not configurable, as in Kafka."""

_REASONS = {
    TimerKind.SESSION: "the member session expired",
    TimerKind.REBALANCE: "it has not given up its partitions in time",
    TimerKind.CLASSIC_JOIN: "the classic member failed to join within the rebalance timeout",
    TimerKind.CLASSIC_SYNC: "the member failed to sync within timeout",
}


def expire_due(
    group: ConsumerGroup, settings: ConsumerGroupSettings, topics: GroupTopics, now_ms: int
) -> GroupResult | None:
    """Fences the members whose timers are due; None if there are none.

    A rebalance timeout counts only while the member still has the epoch at which it was told to give up partitions. If
    the records cannot be appended, the timers are due again after `RETRY_BACKOFF_MS`.
    """
    due: dict[str, DueTimer] = {}
    for timer in group.timers.pop_due(now_ms):
        member = group.members.get(timer.member_id)
        if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.epoch):
            continue
        due.setdefault(timer.member_id, timer)
    if not due:
        return None
    result = fence_members(group, [group.members[member_id] for member_id in due], settings, topics, now_ms)

    def try_again(failed_at_ms: int) -> None:
        for timer in due.values():
            deadline_ms = failed_at_ms + RETRY_BACKOFF_MS
            group.timers.schedule_if_absent(timer.kind, timer.member_id, deadline_ms, timer.epoch)

    result.on_failed_append = try_again
    result.notes += [
        f"Group {group.group_id}: member {member_id} is fenced because {_REASONS[timer.kind]}"
        for member_id, timer in due.items()
    ]
    return result


def schedule_loaded(group: ConsumerGroup, settings: ConsumerGroupSettings, now_ms: int) -> None:
    """Starts the sessions of a loaded group, and the rebalance timeouts of members with partitions to give up."""
    for member in group.members.values():
        group.timers.schedule(TimerKind.SESSION, member.member_id, now_ms + settings.session_timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            group.timers.schedule(TimerKind.REBALANCE, member.member_id, deadline_ms, member.member_epoch)
