"""ShareGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.groups.modern.describe import topic_partitions
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.member import ShareMember
from pykbroker.groups.share.target import ASSIGNOR
from pykbroker.java_order import timeline_order
from pykbroker.protocol.messages.consumer_group_describe import Assignment, TopicPartitions
from pykbroker.protocol.messages.share_group_describe import DescribedGroup, Member
from pykbroker.protocol.steps import Steps


def describe(group: ShareGroup, topics: GroupTopics) -> Steps[DescribedGroup]:
    """The group with its members; topics that do not exist now are left out of assignments."""
    existing = topics.by_id
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
    )
    for member_id in timeline_order(group.members):
        yield
        described.members.append((yield from _member(group.members[member_id], existing)))
    return described


def _member(member: ShareMember, topics: Mapping[bytes, TopicImage]) -> Steps[Member]:
    assignment = yield from topic_partitions(TopicPartitions, member.assigned.items(), topics)
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(topic_partitions=assignment),
    )
