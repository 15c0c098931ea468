"""ConsumerGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.modern.describe import topic_partitions
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.java_order import timeline_order
from pykbroker.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from pykbroker.protocol.steps import Steps

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
    assignment = yield from topic_partitions(TopicPartitions, owned.items(), topics)
    target = yield from topic_partitions(TopicPartitions, group.target_of(member.member_id).items(), topics)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=Assignment(topic_partitions=assignment),
        target_assignment=Assignment(topic_partitions=target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )
