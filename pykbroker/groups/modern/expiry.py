"""Timers of members that are due, and their return when the records that fence the members cannot be appended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from pykbroker.groups.modern.timers import DueTimer, MemberTimers, TimerKind
from pykbroker.groups.result import GroupResult

RETRY_BACKOFF_MS = 500
"""Time after which the coordinator tries again to fence a member; not configurable, as in Kafka."""


class TimedMember(Protocol):
    """The part of a member that timers depend on."""

    @property
    def member_epoch(self) -> int: ...


def first_of_each(due: Iterable[DueTimer], members: Mapping[str, TimedMember]) -> dict[str, DueTimer]:
    """Member id -> the first timer for which the member is fenced.

    A rebalance timeout counts only while the member still has the epoch at which a revocation was asked of it.
    Timers of members that have left do not count.
    """
    found: dict[str, DueTimer] = {}
    for timer in due:
        member = members.get(timer.member_id)
        if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.epoch):
            continue
        found.setdefault(timer.member_id, timer)
    return found


def explain_and_retry(
    result: GroupResult,
    group_id: str,
    timers: MemberTimers,
    due: Mapping[str, DueTimer],
    reasons: Mapping[TimerKind, str],
) -> GroupResult:
    """Notes why each member is fenced; if the append fails, the timers are due again after `RETRY_BACKOFF_MS`."""

    def try_again(failed_at_ms: int) -> None:
        for timer in due.values():
            timers.schedule_if_absent(timer.kind, timer.member_id, failed_at_ms + RETRY_BACKOFF_MS, timer.epoch)

    result.on_failed_append = try_again
    result.notes += [
        f"Group {group_id}: member {member_id} is fenced because {reasons[timer.kind]}"
        for member_id, timer in due.items()
    ]
    return result
