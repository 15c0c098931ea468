"""VoterHistory: voters and kraft.version by offset of the log (KIP-853).

A VotersRecord is in force as soon as it is in the log, committed or not, until the log is truncated before it. Before
the first one in log or snapshot, the configured voters vote.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.named_tuple import NamedTuple


class LeaderChange(NamedTuple):
    """LeaderChangeMessage, the first record of an epoch: leader, voters, and those that granted their votes."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class KRaftVersion(NamedTuple):
    """KRaftVersionRecord, which finalizes kraft.version: from 1 on the voters are those in the log."""

    level: int


ControlRecord = LeaderChange | KRaftVersion | VoterSet


class _Series:
    """Values by the offset from which they are in force."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.values: list[VoterSet | KRaftVersion] = []

    def add(self, offset: int, value: VoterSet | KRaftVersion) -> None:
        self.cut(offset)
        self.offsets.append(offset)
        self.values.append(value)

    def cut(self, end_offset: int) -> None:
        """Removes the values that begin at `end_offset` or later."""
        while self.offsets and self.offsets[-1] >= end_offset:
            self.offsets.pop()
            self.values.pop()

    def drop_before(self, start_offset: int) -> None:
        """Removes the values that end before `start_offset`."""
        first = max(bisect_right(self.offsets, start_offset) - 1, 0)
        del self.offsets[:first], self.values[:first]

    def at(self, offset: int) -> VoterSet | KRaftVersion | None:
        number = bisect_right(self.offsets, offset)
        return self.values[number - 1] if number else None


class VoterHistory:
    """Voters and kraft.version by offset.

    The records of a snapshot get the offset of the last record before its end: -1 for the snapshot that formatting
    writes.

    Attributes:
        voters: the voters in force at the end of the log.
    """

    __slots__ = ("_configured", "_versions", "_voters", "voters")

    def __init__(self, configured: VoterSet, records: Iterable[tuple[int, ControlRecord]]) -> None:
        """`records`: (offset, record) of snapshot and log."""
        self._configured = self.voters = configured
        self._voters = _Series()
        self._versions = _Series()
        for offset, record in records:
            self.add(offset, record)

    def add(self, offset: int, record: ControlRecord) -> bool:
        """Adds a control record of the log; True if it changes the voters."""
        if isinstance(record, VoterSet):
            self._voters.add(offset, record)
            self.voters = record
            return True
        if isinstance(record, KRaftVersion):
            self._versions.add(offset, record)
        return False

    def truncate(self, end_offset: int) -> bool:
        """Removes the records from `end_offset` on; True if that changes the voters."""
        known = len(self._voters.offsets)
        self._voters.cut(end_offset)
        self._versions.cut(end_offset)
        self.voters = self._newest_voters()
        return len(self._voters.offsets) != known

    def drop_before(self, start_offset: int) -> None:
        """Removes the records that are no longer in force at the end of a snapshot, `start_offset`."""
        self._voters.drop_before(start_offset - 1)
        self._versions.drop_before(start_offset - 1)

    def restart(self, end_offset: int, records: Iterable[ControlRecord]) -> None:
        """Replaces everything by the control records of a leader's snapshot with this end offset."""
        self._voters, self._versions = _Series(), _Series()
        self.voters = self._configured
        for record in records:
            self.add(end_offset - 1, record)

    def _newest_voters(self) -> VoterSet:
        newest = self._voters.values[-1] if self._voters.values else None
        return newest if isinstance(newest, VoterSet) else self._configured

    @property
    def voters_before(self) -> VoterSet:
        """The voters before the newest VotersRecord."""
        before = self._voters.values[-2] if len(self._voters.values) > 1 else None
        return before if isinstance(before, VoterSet) else self._configured

    @property
    def voters_offset(self) -> int | None:
        """Offset of the VotersRecord that is in force, None for the configured voters."""
        return self._voters.offsets[-1] if self._voters.offsets else None

    @property
    def kraft_version(self) -> int:
        newest = self._versions.values[-1] if self._versions.values else None
        return newest.level if isinstance(newest, KRaftVersion) else 0

    def records_at(self, end_offset: int) -> tuple[ControlRecord, ...]:
        """The control records for a snapshot with this end offset; none while kraft.version is 0."""
        version, voters = self._versions.at(end_offset - 1), self._voters.at(end_offset - 1)
        if not isinstance(version, KRaftVersion) or version.level == 0:
            return ()
        return (version,) if voters is None else (version, voters)
