"""Changes of a group between the classic protocol and the consumer protocol while it has members (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykbroker.config.values import ConsumerGroupValues, GroupValues
from pykbroker.groups.classic.group import STABLE, Group
from pykbroker.groups.classic.members import Member
from pykbroker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ClassicMember, ConsumerMember, PartitionEpochs
from pykbroker.groups.consumer.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import Assignment
from pykbroker.groups.modern.timers import SoftState, TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.offset_log import group_tombstone
from pykbroker.groups.result import Downgrade, GroupResult
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.log_messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from pykbroker.protocol.steps import finished

VERSION_BYTES = 2
"""Size of the version with which a subscription or assignment begins."""


def check_upgrade(group: Group, settings: ConsumerGroupValues) -> None:
    """Refuses the upgrade of a classic group with members.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, with the reason.
    """
    reason = None
    if not settings.is_upgrade_enabled:
        reason = "because online upgrade is disabled."
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "because the group does not use the consumer embedded protocol."
    elif len(group.members) > settings.max_size:
        reason = "because the group size exceeds the consumer group maximum size."
    if reason is not None:
        message = f"Cannot upgrade classic group {group.group_id} to consumer group {reason}"
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def upgrade(
    classic: Group, soft_state: SoftState, topics: GroupTopics, now_ms: int, result: GroupResult
) -> ConsumerGroup:
    """The consumer group that a classic group becomes; adds the records, and starts the members' sessions.

    Every member is Stable with its last assignment; its generation is its epoch.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, a subscription or assignment cannot be read or has data of an own assignor;
            UNKNOWN_SERVER_ERROR, a member does not have the group's protocol, or the group has not chosen one yet.
    """
    group = ConsumerGroup(classic.group_id, soft_state)
    group.epoch = group.assignment_epoch = classic.generation_id
    for member in classic.members:
        try:
            consumer, target = _upgraded_member(classic, member, topics)
        except ProtocolError as error:
            message = (
                f"Cannot upgrade classic group {classic.group_id} to consumer group because the embedded consumer "
                "protocol is malformed."
            )
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message) from error
        group.targets[member.member_id] = target
        group.replace_member(consumer)
        group.timers.schedule(TimerKind.SESSION, member.member_id, now_ms + member.session_timeout_ms)
    group.metadata_hash = topics.hash_of(group.subscriptions.topics)
    group_id, members = group.group_id, list(group.members.values())
    result.records.append(group_tombstone(group_id))
    result.records += [member_record(group_id, member) for member in members]
    result.records.append(epoch_record(group_id, group.epoch, group.metadata_hash))
    result.records += [finished(target_record(group_id, m.member_id, group.target_of(m.member_id))) for m in members]
    result.records.append(target_epoch_record(group_id, group.assignment_epoch, 0))
    result.records += [finished(current_record(group_id, member)) for member in members]
    result.notes.append(f"group {group_id}: the classic group becomes a consumer group")
    return group


def _upgraded_member(classic: Group, member: Member, topics: GroupTopics) -> tuple[ConsumerMember, Assignment]:
    target: dict[bytes, frozenset[int]] = {}
    if member.assignment:
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            message = (
                f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom "
                "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade."
            )
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        for topic in assignment.assigned_partitions:
            topic_id = topics.id_of(topic.topic)
            if topic_id is not None:
                target[topic_id] = frozenset(topic.partitions)
    if all(name != classic.protocol_name for name, _ in member.protocols):
        # As in Kafka: the first join phase has chosen no protocol yet, a later one perhaps one that it does not have.
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
    subscription = decode_subscription(member.metadata(classic.protocol_name))
    epochs: PartitionEpochs = {
        topic_id: dict.fromkeys(sorted(partitions), classic.generation_id) for topic_id, partitions in target.items()
    }
    consumer = ConsumerMember(
        member.member_id,
        classic.generation_id,
        classic.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=epochs,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    return consumer, target


def can_downgrade(
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
    settings: ConsumerGroupValues,
    *,
    is_replaced: bool = False,
) -> bool:
    """True if the group becomes a classic group when members leave, or when one is replaced by a classic member."""
    if is_replaced:
        if leaving[0].classic is not None or not group.all_classic_without(*leaving):
            return False
        staying = len(group.members)
    else:
        staying = len(group.members) - len(leaving)
        if not group.all_classic_without(*leaving) or staying <= 0:
            return False
    return settings.is_downgrade_enabled and staying <= settings.classic.max_size


def downgrade(
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
    joining: ConsumerMember | None,
    rebalance_reason: str | None,
    settings: ConsumerGroupValues,
    topics: GroupTopics,
    now_ms: int,
    result: GroupResult,
) -> None:
    """Adds the records that make a classic group of a consumer group, and the classic group.

    Args:
        group: the consumer group.
        leaving: members that leave it.
        joining: the classic member that takes the place of a static member; its records were made already.
        rebalance_reason: why the classic group rebalances at once; None if it does not.
        settings: the settings of the group.
        topics: the topics of the cluster.
        now_ms: time, stored with the classic group.
        result: gets the records and the classic group.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, a member's subscription cannot be read.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    stored_ids = [
        joining.member_id if joining is not None and member is replaced else member_id
        for member_id, member in group.members.items()
    ]
    result.records += group_tombstones(group.group_id, stored_ids, group.resolved)
    gone = {member.member_id for member in leaving}
    if replaced is not None:
        gone.add(replaced.member_id)
    staying = [member for member in group.members.values() if member.member_id not in gone]
    targets = {member.member_id: group.target_of(member.member_id) for member in staying}
    if joining is not None and replaced is not None:
        staying.append(joining)
        targets[joining.member_id] = group.target_of(replaced.member_id)
    result.downgrade = Downgrade(group.group_id, group.epoch, tuple(map(_classic_member, staying)), rebalance_reason)
    classic = downgraded_group(result.downgrade, settings.classic, now_ms)
    result.downgrade.assignments = {
        member.member_id: encode_assignment(targets[member.member_id], member.metadata(classic.protocol_name), topics)
        for member in classic.members
    }
    result.records.append(classic.metadata_record(result.downgrade.assignments))
    result.notes.append(f"group {group.group_id}: the consumer group becomes a classic group")


def downgraded_group(downgrade: Downgrade, settings: GroupValues, now_ms: int) -> Group:
    """The classic group of a downgrade, Stable, with the sessions of its members beginning now."""
    group = Group(downgrade.group_id, settings, now_ms)
    group.generation_id = downgrade.generation_id
    group.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in downgrade.members:
        group.members.add(member, None)
        member.assignment = downgrade.assignments.get(member.member_id, b"")
        group.schedule_session(member, now_ms)
    group.state = STABLE
    group.protocol_name = group.members.select_protocol()
    group.subscribed_topics = subscribed_topics(group.protocol_type, group.protocol_name, group.members)
    return group


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic.protocols,
    )


def encode_assignment(partitions: Mapping[bytes, frozenset[int]], subscription: bytes, topics: GroupTopics) -> bytes:
    """Partitions as a classic consumer reads them, in the version of its subscription; without unknown topics."""
    version = min(max(int.from_bytes(subscription[:VERSION_BYTES], "big", signed=True), 0), 3)
    assigned = [
        AssignedTopicPartition(topic=name, partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    value = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return version.to_bytes(VERSION_BYTES, "big") + encode(value, version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """An assignment of a classic consumer; later versions are read as the newest known one.

    Raises:
        ProtocolError: it cannot be read.
    """
    return decode(ConsumerProtocolAssignment, _version_of(data), data[VERSION_BYTES:])


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A subscription of a classic consumer; later versions are read as the newest known one.

    Raises:
        ProtocolError: it cannot be read.
    """
    return decode(ConsumerProtocolSubscription, _version_of(data), data[VERSION_BYTES:])


def _version_of(data: bytes) -> int:
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if len(data) < VERSION_BYTES or version < 0:
        raise ProtocolError(f"a consumer protocol message of {len(data)} bytes has no valid version")
    return min(version, 3)
