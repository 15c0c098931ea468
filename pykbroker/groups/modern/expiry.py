"""Timers of members that are due, and their return when the records that fence the members cannot be appended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.groups.modern.group import AnyMember, EpochGroup
from pykbroker.groups.modern.timers import DueTimer, TimerKind
from pykbroker.groups.result import GroupResult

RETRY_BACKOFF_MS = 500
"""Time, in ms, after which the coordinator tries again to fence a member; not configurable, as in Kafka."""

_REASONS = {
    TimerKind.SESSION: "its session has expired",
    TimerKind.REBALANCE: "it has not given up its partitions or tasks within its rebalance timeout",
    TimerKind.CLASSIC_JOIN: "it has not joined again within its rebalance timeout",
    TimerKind.CLASSIC_SYNC: "it has not sent SyncGroup within its rebalance timeout",
}


def fence_due(
    group: EpochGroup[AnyMember, Any], due: DueTimer, fence: Callable[[AnyMember], GroupResult]
) -> GroupResult | None:
    """Fences the member of a timer that is due; None if the timer does not count any more.

    If the append fails, the timer is due again after `RETRY_BACKOFF_MS`.

    Args:
        group: the group.
        due: a timer that was due.
        fence: returns the records that remove a member.
    """
    if not _is_valid_timer(due, group):
        return None
    kind, member_id, epoch = due

    def try_again(failed_at_ms: int) -> None:
        group.timers.schedule_if_absent(kind, member_id, failed_at_ms + RETRY_BACKOFF_MS, epoch)

    result = fence(group.members[member_id])
    result.on_failed_append = try_again
    result.notes.append(f"group {group.group_id}: member {member_id} is fenced: {_REASONS[kind]}")
    return result


def _is_valid_timer(timer: DueTimer, group: EpochGroup[Any, Any]) -> bool:
    """False for the timer of a member that has left, and for the rebalance timer of a revocation that does not last.

    Such a revocation was confirmed, could not be appended, or is part of a heartbeat that failed later: the member has
    another epoch, or is not revoking. In Kafka the last two leave a timer, which fences a member of the same epoch.
    """
    member = group.members.get(timer.member_id)
    if member is None:
        return False
    return timer.kind is not TimerKind.REBALANCE or (member.is_revoking and member.member_epoch == timer.epoch)
