"""ConsumerGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.controller.metadata.image import TopicImage
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
from pykbroker.protocol.steps import PIECE, Steps

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe(group: ConsumerGroup, default_assignor: str, topics: GroupTopics) -> Steps[DescribedGroup]:
    """The group with its members; topics that do not exist now are left out of assignments."""
    existing = topics.by_id
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
    )
    for member_id in timeline_order(group.members):
        yield
        described.members.append((yield from _member(group, group.members[member_id], existing)))
    return described


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Mapping[bytes, TopicImage]) -> Steps[Member]:
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions.items():
            owned.setdefault(topic_id, []).extend(sorted(epochs))
    assignment = yield from _assignment(owned.items(), topics)
    target = yield from _assignment(group.target_of(member.member_id).items(), topics)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=assignment,
        target_assignment=target,
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    partitions: Iterable[tuple[bytes, Iterable[int]]], topics: Mapping[bytes, TopicImage]
) -> Steps[Assignment]:
    """The partitions of each topic; the numbers of a list are in order."""
    assignment = Assignment()
    for count, (topic_id, numbers) in enumerate(partitions, 1):
        topic = topics.get(topic_id)
        if topic is not None:
            ordered = numbers if isinstance(numbers, list) else sorted(numbers)
            assignment.topic_partitions.append(
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=ordered)
            )
        if not count % PIECE:
            yield
    return assignment
