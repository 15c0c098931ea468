"""Reconciliation of one member to its target assignment (KIP-848).

A member first gives up the partitions that it must not have any more (UNREVOKED_PARTITIONS), then moves to the epoch of
the target assignment with the partitions that are free, and waits there for those that others still own
(UNRELEASED_PARTITIONS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pykbroker.groups.consumer.member import NO_PARTITION_EPOCHS, ConsumerMember, MemberState, PartitionEpochs
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import Assignment
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps

OwnedPartitions = Sequence[tuple[bytes, Sequence[int]]]
"""Partitions that a member says it owns: topic id and partition numbers."""

_NO_PARTITIONS: frozenset[int] = frozenset()


class Target(NamedTuple):
    """A target assignment of one member, with the group epoch for which it was computed."""

    epoch: int
    partitions: Assignment


class _Next(NamedTuple):
    """Partitions that a member keeps, has to give up, and may take now."""

    kept: dict[bytes, Mapping[int, int]]
    revoked: dict[bytes, Mapping[int, int]]
    free: dict[bytes, frozenset[int]]
    has_unreleased: bool


def reconcile(
    member: ConsumerMember,
    target: Target,
    subscribed_ids: frozenset[bytes],
    owner_epoch: Callable[[bytes, int], int],
    owned: OwnedPartitions | None,
    *,
    has_subscription_changed: bool,
    subscribes: bool,
) -> Steps[ConsumerMember]:
    """The member after its next step towards the target; the same value if there is none.

    Args:
        member: the member with its present subscription.
        target: its target assignment.
        subscribed_ids: ids of the existing topics that it subscribes to.
        owner_epoch: epoch of the member that owns a partition, -1 if it is free.
        owned: partitions that the member says it owns; None if it said nothing.
        has_subscription_changed: True if topics that are no longer subscribed must be given up at once.
        subscribes: False for a member without topics, not even such as do not exist.

    Raises:
        GroupError: FENCED_MEMBER_EPOCH, the member is in a state that a later release has stored.
    """
    state = member.state
    if state is MemberState.STABLE and member.member_epoch == target.epoch:
        if not has_subscription_changed:
            return member
        if not subscribes and not member.assigned and not member.pending_revocation:
            # As in Kafka, which takes the empty assignment for a new one (CurrentAssignmentBuilder, P-368).
            return member._replace(previous_member_epoch=member.member_epoch)
        return _drop_unsubscribed(member, subscribed_ids, owned)
    if state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, member.pending_revocation):
        return _drop_unsubscribed(member, subscribed_ids, owned) if has_subscription_changed else member
    if state is MemberState.UNKNOWN and (owned is None or owned):
        raise GroupError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    then = yield from _next_partitions(member, target, subscribed_ids, owner_epoch)
    return (yield from _advance_to_target(member, target, then, owned))


def _next_partitions(
    member: ConsumerMember,
    target: Target,
    subscribed_ids: frozenset[bytes],
    owner_epoch: Callable[[bytes, int], int],
) -> Steps[_Next]:
    kept_of: dict[bytes, Mapping[int, int]] = {}
    revoked_of: dict[bytes, Mapping[int, int]] = {}
    free_of: dict[bytes, frozenset[int]] = {}
    has_unreleased = False
    for count, topic_id in enumerate(dict.fromkeys((*target.partitions, *member.assigned)), 1):
        if not count % PIECE:
            yield
        wanted = target.partitions.get(topic_id, _NO_PARTITIONS) if topic_id in subscribed_ids else _NO_PARTITIONS
        current = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in current.items() if partition in wanted}
        if kept:
            kept_of[topic_id] = kept
        if len(kept) < len(current):
            revoked_of[topic_id] = {p: epoch for p, epoch in current.items() if p not in wanted}
        missing = [partition for partition in wanted if partition not in current]
        # A partition that this member itself has revoked, or is about to, keeps no other member waiting.
        own = member.pending_revocation.get(topic_id, {})
        free = frozenset(p for p in missing if p in own or owner_epoch(topic_id, p) == -1)
        has_unreleased = has_unreleased or len(free) < len(missing)
        if free:
            free_of[topic_id] = free
    return _Next(kept_of, revoked_of, free_of, has_unreleased)


def _advance_to_target(
    member: ConsumerMember, target: Target, then: _Next, owned: OwnedPartitions | None
) -> Steps[ConsumerMember]:
    if then.revoked and _owns_any(owned, then.revoked):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            member_epoch=target.epoch if member.state is MemberState.UNKNOWN else member.member_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=then.kept,
            pending_revocation=then.revoked,
        )
    assigned = dict(then.kept)
    for count, (topic_id, partitions) in enumerate(then.free.items(), 1):
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(sorted(partitions), target.epoch)}
        if not count % PIECE:
            yield
    return member._replace(
        state=MemberState.UNRELEASED_PARTITIONS if then.has_unreleased else MemberState.STABLE,
        member_epoch=target.epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=NO_PARTITION_EPOCHS,
    )


def _drop_unsubscribed(
    member: ConsumerMember, subscribed_ids: frozenset[bytes], owned: OwnedPartitions | None
) -> ConsumerMember:
    """The member without partitions of topics that it does not subscribe to any more; its epoch stays."""
    dropped = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in subscribed_ids}
    if not dropped:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed_ids}
    pending = dict(member.pending_revocation)
    for topic_id, epochs in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    if _owns_any(owned, pending):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=pending,
        )
    return member._replace(previous_member_epoch=member.member_epoch, assigned=kept)


def _owns_any(owned: OwnedPartitions | None, partitions: PartitionEpochs) -> bool:
    """True if the member says that it owns one of these partitions, or says nothing."""
    if owned is None:
        return True
    return any(number in partitions.get(topic_id, {}) for topic_id, numbers in owned for number in numbers)
