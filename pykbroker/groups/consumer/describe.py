"""ConsumerGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.java_order import timeline_order
from pykbroker.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe(group: ConsumerGroup, default_assignor: str, topics: GroupTopics) -> DescribedGroup:
    """The group with its members; topics that do not exist any more are left out of assignments."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, group.members[member_id], topics) for member_id in timeline_order(group.members)],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: GroupTopics) -> Member:
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions.items():
            owned.setdefault(topic_id, []).extend(sorted(epochs))
    target = {topic_id: sorted(partitions) for topic_id, partitions in group.target_of(member.member_id).items()}
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned.items(), topics),
        target_assignment=_assignment(target.items(), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Iterable[tuple[bytes, list[int]]], topics: GroupTopics) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, numbers in partitions
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
