"""Timers of a Streams group: sessions and rebalance timeouts of members, and the delay of the first assignment."""

from __future__ import annotations

from pykbroker.groups.consumer.expiry import RETRY_BACKOFF_MS
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.timers import DueTimer, TimerKind
from pykbroker.groups.result import GroupResult
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.heartbeat import StreamsHeartbeatContext, end_initial_delay, remove_members
from pykbroker.groups.streams.member import MemberState
from pykbroker.groups.streams.settings import StreamsGroupSettings

_REASONS = {
    TimerKind.SESSION: "the member session expired",
    TimerKind.REBALANCE: "it has not given up its tasks in time",
}


def expire_due(group: StreamsGroup, context: StreamsHeartbeatContext) -> GroupResult | None:
    """Fences the members whose timers are due, or ends the initial delay; None if there is nothing to do.

    A rebalance timeout counts only while the member still has the epoch at which it was told to give up tasks. Members
    are fenced first; the initial delay is then due at once. If the records that fence members cannot be appended, the
    timers are due again after `RETRY_BACKOFF_MS`.
    """
    due: dict[str, DueTimer] = {}
    has_delay_ended = False
    for timer in group.timers.pop_due(context.now_ms):
        if timer.kind is TimerKind.INITIAL_REBALANCE:
            has_delay_ended = True
            continue
        member = group.members.get(timer.member_id)
        if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.epoch):
            continue
        due.setdefault(timer.member_id, timer)
    if due:
        if has_delay_ended:
            group.timers.schedule(TimerKind.INITIAL_REBALANCE, "", context.now_ms)
        return _fence(group, due)
    if not has_delay_ended:
        return None
    result = GroupResult(applies_at_append=True)
    try:
        end_initial_delay(group, context, result)
    except GroupError as error:
        # The next heartbeat tries again and tells its member.
        result.notes.append(f"Group {group.group_id}: no first assignment: {error}")
    return result


def _fence(group: StreamsGroup, due: dict[str, DueTimer]) -> GroupResult:
    result = remove_members(group, [group.members[member_id] for member_id in due])

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


def schedule_loaded(group: StreamsGroup, settings: StreamsGroupSettings, now_ms: int) -> None:
    """Starts the sessions of a loaded group, and the rebalance timeouts of members with tasks to give up."""
    for member in group.members.values():
        group.timers.schedule(TimerKind.SESSION, member.member_id, now_ms + settings.session_timeout_ms)
        if member.state is MemberState.UNREVOKED_TASKS:
            deadline_ms = now_ms + member.rebalance_timeout_ms
            group.timers.schedule(TimerKind.REBALANCE, member.member_id, deadline_ms, member.member_epoch)
