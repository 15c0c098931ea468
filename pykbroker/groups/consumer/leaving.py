"""Removal of members from a consumer group, which may make a classic group of it (online downgrade)."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.config.values import ConsumerGroupValues
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.consumer.records import epoch_record, member_tombstones, regex_tombstone
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult
from pykbroker.java_order import hash_order


def fence_members(
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    settings: ConsumerGroupValues,
    topics: GroupTopics,
    now_ms: int,
) -> GroupResult:
    """Records that remove members and raise the group epoch.

    If all members that stay use the classic protocol, the group becomes a classic group instead, where the policy and
    the greatest size of classic groups allow it.
    """
    from pykbroker.groups.consumer.migration import can_downgrade, downgrade

    result = GroupResult(applies_at_append=True)
    if not members:
        return result
    if can_downgrade(group, members, settings):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        downgrade(group, members, None, reason, settings, topics, now_ms, result)
        return result
    subscriptions = group.subscriptions.copy()
    for member in members:
        result.records += member_tombstones(group.group_id, member.member_id)
        subscriptions.replace_member(member, None)
    regexes = dict.fromkeys(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)
    for regex in hash_order(regexes):
        if regex not in subscriptions.regexes:
            result.records.append(regex_tombstone(group.group_id, regex))
            if regex in group.resolved:
                subscriptions.replace_resolved(group.resolved[regex].topics, ())
    metadata_hash = topics.hash_of(subscriptions.topics)
    result.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    # The members' timers go on: if the append fails the members stay. Timers of members that are gone do nothing.
    return result
