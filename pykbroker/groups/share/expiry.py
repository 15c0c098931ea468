"""Sessions of the members of a share group."""

from __future__ import annotations

from pykbroker.groups.modern.expiry import explain_and_retry, first_of_each
from pykbroker.groups.modern.timers import TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.heartbeat import remove_members

_REASONS = {TimerKind.SESSION: "the member session expired"}


def expire_due(group: ShareGroup, topics: GroupTopics, now_ms: int) -> GroupResult | None:
    """Removes the members whose sessions have expired; None if there are none."""
    due = first_of_each(group.timers.pop_due(now_ms), group.members)
    if not due:
        return None
    result = remove_members(group, [group.members[member_id] for member_id in due], topics)
    return explain_and_retry(result, group.group_id, group.timers, due, _REASONS)
