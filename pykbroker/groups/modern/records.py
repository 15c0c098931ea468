"""The records of modern groups in `__consumer_offsets`: those of the group, of its members and of its target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.groups.result import LogRecord
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.fields import Message


class RecordTypes(NamedTuple):
    """The record keys of one type of groups, and the records that are alike for each type.

    Attributes:
        group: key of the group epoch; its tombstone removes the group.
        member: key of the properties of a member.
        current: key of the current assignment of a member.
        target: key of the target assignment of a member.
        target_epoch: key of the epoch and the time of the target assignment.
        target_epoch_value: value under the last one.
    """

    group: type[Any]
    member: type[Any]
    current: type[Any]
    target: type[Any]
    target_epoch: type[Any]
    target_epoch_value: type[Any]

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> LogRecord:
        """The group epoch of the target assignment and the time at which it was computed."""
        value = self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return LogRecord(self.target_epoch(group_id=group_id), value)

    def member_tombstones(self, group_id: str, member_id: str) -> list[LogRecord]:
        """Tombstones of everything that is stored for a member, in the order in which they must be replayed."""
        keys = (self.current, self.target, self.member)
        return [LogRecord(key(group_id=group_id, member_id=member_id), None) for key in keys]

    def group_tombstones(
        self, group_id: str, member_ids: Iterable[str], before: Iterable[Message] = (), after: Iterable[Message] = ()
    ) -> list[LogRecord]:
        """Tombstones of everything that is stored for a group.

        Args:
            group_id: id of the group.
            member_ids: ids of its members.
            before, after: keys that this type alone has, beside the key of the group.
        """
        members = list(member_ids)
        keys = [key(group_id=group_id, member_id=member) for key in (self.current, self.target) for member in members]
        keys.append(self.target_epoch(group_id=group_id))
        keys += [self.member(group_id=group_id, member_id=member) for member in members]
        return [LogRecord(key, None) for key in (*keys, *before, self.group(group_id=group_id), *after)]
