"""The steps of a member of a Streams group from its current to its target assignment.

A member gives up tasks before it gets others. It gets an active task when no process has it, and a standby or warm-up
copy when its own process has none of the task.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.member import MemberState, StreamsMember
from pykbroker.groups.streams.tasks import (
    NO_MEMBER_TASKS,
    ActiveTasks,
    MemberTasks,
    TaskMap,
    Tasks,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps

UNKNOWN_STATE = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."


def reconcile(
    group: StreamsGroup, member: StreamsMember, target_epoch: int, target: Tasks, owned: Tasks | None
) -> Steps[StreamsMember]:
    """The member one step closer to its target, or as it is if it cannot move.

    Args:
        group: the group, which has the processes of all tasks.
        member: the member.
        target_epoch: epoch of the target assignment.
        target: target assignment of the member.
        owned: the tasks that the member reports; None if it does not.

    Raises:
        GroupError: FENCED_MEMBER_EPOCH: a later version of Kafka has stored a state that is unknown here.
    """
    epoch = member.member_epoch
    if member.state is MemberState.STABLE:
        if epoch == target_epoch:
            return member
    elif member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or member.pending_revocation.has_any_of(owned):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or any(owned):
            raise GroupError(ErrorCode.FENCED_MEMBER_EPOCH, UNKNOWN_STATE)
        epoch = target_epoch
    return (yield from _next_tasks(group, member, epoch, target_epoch, target, owned))


def _next_tasks(
    group: StreamsGroup, member: StreamsMember, epoch: int, target_epoch: int, target: Tasks, owned: Tasks | None
) -> Steps[StreamsMember]:
    process_id = member.process_id

    def is_active_taken(subtopology_id: str, number: int) -> bool:
        has_owner = group.active_process(subtopology_id, number) is not None
        return has_owner or group.has_copy(subtopology_id, number, process_id)

    def is_copy_taken(subtopology_id: str, number: int) -> bool:
        is_own = group.active_process(subtopology_id, number) == process_id
        return is_own or group.has_copy(subtopology_id, number, process_id)

    assigned = member.assigned
    active = yield from _active_difference(assigned.active, target.active, target_epoch, is_active_taken)
    standby = yield from _difference(assigned.standby, target.standby, is_copy_taken)
    warmup = yield from _difference(assigned.warmup, target.warmup, is_copy_taken)
    kept = MemberTasks(active[0], standby[0], warmup[0])
    revoked = MemberTasks(active[1], standby[1], warmup[1])
    added = MemberTasks(active[2], standby[2], warmup[2])
    has_unreleased = active[3] or standby[3] or warmup[3]
    if not revoked.is_empty and (owned is None or revoked.has_any_of(owned)):
        return member._replace(
            state=MemberState.UNREVOKED_TASKS,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    return member._replace(
        state=MemberState.UNRELEASED_TASKS if has_unreleased else MemberState.STABLE,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=kept.merged(added),
        pending_revocation=NO_MEMBER_TASKS,
    )


IsTaken = Callable[[str, int], bool]


def _difference(
    current: TaskMap, target: TaskMap, is_taken: IsTaken
) -> Steps[tuple[dict[str, frozenset[int]], dict[str, frozenset[int]], dict[str, frozenset[int]], bool]]:
    """Tasks to keep, to give up and to add, and True if some cannot be added yet."""
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    has_unreleased = False
    count = 0
    for key in dict.fromkeys((*current, *target)):
        old, new = current.get(key, frozenset()), target.get(key, frozenset())
        missing, free = new - old, []
        for number in missing:
            count += 1
            if not count % PIECE:
                yield
            if not is_taken(key, number):
                free.append(number)
        has_unreleased = has_unreleased or len(free) < len(missing)
        for tasks, numbers in ((kept, old & new), (revoked, old - new), (added, frozenset(free))):
            if numbers:
                tasks[key] = numbers
    return kept, revoked, added, has_unreleased


def _active_difference(
    current: ActiveTasks, target: TaskMap, target_epoch: int, is_taken: IsTaken
) -> Steps[tuple[ActiveTasks, ActiveTasks, ActiveTasks, bool]]:
    """As `_difference`; tasks keep the epochs at which they were assigned."""
    numbers = {key: frozenset(epochs) for key, epochs in current.items()}
    kept, revoked, added, has_unreleased = yield from _difference(numbers, target, is_taken)

    def with_epochs(tasks: TaskMap) -> ActiveTasks:
        return {key: {number: current[key][number] for number in sorted(found)} for key, found in tasks.items()}

    new = {key: dict.fromkeys(sorted(found), target_epoch) for key, found in added.items()}
    return with_epochs(kept), with_epochs(revoked), new, has_unreleased
