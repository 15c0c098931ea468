"""Timers of a Streams group: sessions and rebalance timeouts of members, and the delay of the first assignment."""

from __future__ import annotations

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.expiry import explain_and_retry, first_of_each
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.result import GroupResult
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.heartbeat import StreamsHeartbeatContext, end_initial_delay, remove_members

_REASONS = {
    TimerKind.SESSION: "the member session expired",
    TimerKind.REBALANCE: "it has not given up its tasks in time",
}


def expire_due(group: StreamsGroup, context: StreamsHeartbeatContext) -> GroupResult | None:
    """Fences the members whose timers are due, or ends the initial delay; None if there is nothing to do.

    Members are fenced first; the initial delay is then due at once.
    """
    popped = group.timers.pop_due(context.now_ms)
    has_delay_ended = any(timer.kind is TimerKind.INITIAL_REBALANCE for timer in popped)
    due = first_of_each(popped, group.members)
    if due:
        if has_delay_ended:
            group.timers.schedule(TimerKind.INITIAL_REBALANCE, "", context.now_ms)
        result = remove_members(group, [group.members[member_id] for member_id in due])
        return explain_and_retry(result, group.group_id, group.timers, due, _REASONS)
    if not has_delay_ended:
        return None
    result = GroupResult(applies_at_append=True)
    try:
        end_initial_delay(group, context, result)
    except GroupError as error:
        # The next heartbeat tries again, and its response has the error.
        result.notes.append(f"Group {group.group_id}: no first assignment: {error}")
    return result
