"""ShareGroupDescribe of one group."""

from __future__ import annotations

from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.member import ShareMember
from pykbroker.groups.share.target import ASSIGNOR
from pykbroker.java_order import timeline_order
from pykbroker.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def describe(group: ShareGroup, topics: GroupTopics) -> DescribedGroup:
    """The group with its members; topics that do not exist any more are left out of assignments."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(group.members[member_id], topics) for member_id in timeline_order(group.members)],
    )


def _member(member: ShareMember, topics: GroupTopics) -> Member:
    assignment = [
        TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, partitions in member.assigned.items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(topic_partitions=assignment),
    )
