"""One member of a share group, as an immutable value."""

from __future__ import annotations

from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH, NO_PARTITIONS, Assignment
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)

STABLE = 0
"""The only state that the coordinator gives a member; the number is that of the records."""


class ShareMember(NamedTuple):
    """A member of a share group. Members share partitions, so none waits until another gives one up.

    `previous_member_epoch` is -1 before the first assignment.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: int = STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = NO_PARTITIONS

    @property
    def instance_id(self) -> str | None:
        """None: share groups have no static members."""
        return None

    @property
    def subscribed_topic_regex(self) -> str | None:
        """None: share groups have no regular expressions."""
        return None

    @property
    def is_revoking(self) -> bool:
        """False: partitions are shared, and nothing is given up."""
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """0: nothing is given up."""
        return 0

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True if the member has the target assignment of this epoch."""
        return self.state == STABLE and self.member_epoch == assignment_epoch

    def with_names(self, names: frozenset[str]) -> ShareMember:
        """The member with an equal set of topic names."""
        return self._replace(subscribed_topic_names=names)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """The member with the subscription of a record."""
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_current_assignment(self, value: ShareGroupCurrentMemberAssignmentValue | None) -> ShareMember:
        """The member with the current assignment of a record; without any for a tombstone."""
        if value is None:
            epoch = LEAVE_GROUP_MEMBER_EPOCH
            return self._replace(member_epoch=epoch, previous_member_epoch=epoch, assigned=NO_PARTITIONS)
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=value.state,
            assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
        )
