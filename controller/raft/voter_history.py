"""Which voters and which kraft.version hold at which offset of the log (KIP-853).

A set of voters counts from the moment it is in the log, committed or not; when the log is cut it is taken back. Before
the first one in the log or a checkpoint, the configured voters vote.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet


class LeaderChange(NamedTuple):
    """The control record at the start of an epoch: who leads, who votes, who voted for it."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class KRaftVersion(NamedTuple):
    """The control record that finalizes kraft.version: from 1 on the voters are those in the log."""

    level: int


ControlRecord = LeaderChange | KRaftVersion | VoterSet


class _Series:
    """Values by the offset from which they hold."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.values: list[VoterSet | KRaftVersion] = []

    def add(self, offset: int, value: VoterSet | KRaftVersion) -> None:
        self.cut(offset)
        self.offsets.append(offset)
        self.values.append(value)

    def cut(self, end_offset: int) -> None:
        """Forgets what holds from `end_offset` on."""
        while self.offsets and self.offsets[-1] >= end_offset:
            self.offsets.pop()
            self.values.pop()

    def drop_before(self, start_offset: int) -> None:
        """Forgets what no longer holds at `start_offset`."""
        first = max(bisect_right(self.offsets, start_offset) - 1, 0)
        del self.offsets[:first], self.values[:first]

    def at(self, offset: int) -> VoterSet | KRaftVersion | None:
        number = bisect_right(self.offsets, offset)
        return self.values[number - 1] if number else None


class VoterHistory:
    """See the module's text. The offset of what a checkpoint says is that of the last record it holds: -1 for the
    checkpoint that a directory is formatted with."""

    __slots__ = ("_configured", "_versions", "_voters")

    def __init__(self, configured: VoterSet, records: Iterable[tuple[int, ControlRecord]] = ()) -> None:
        """`records`: what is known of checkpoint and log, with offsets."""
        self._configured = configured
        self._voters = _Series()
        self._versions = _Series()
        for offset, record in records:
            self.add(offset, record)

    def add(self, offset: int, record: ControlRecord) -> bool:
        """Takes in a control record of the log; whether it changes the voters."""
        if isinstance(record, VoterSet):
            self._voters.add(offset, record)
            return True
        if isinstance(record, KRaftVersion):
            self._versions.add(offset, record)
        return False

    def truncate(self, end_offset: int) -> bool:
        """Takes back what the log held from `end_offset` on; whether that changes the voters."""
        known = len(self._voters.offsets)
        self._voters.cut(end_offset)
        self._versions.cut(end_offset)
        return len(self._voters.offsets) != known

    def drop_before(self, start_offset: int) -> None:
        """Forgets what a checkpoint of all records before `start_offset` has made history."""
        self._voters.drop_before(start_offset - 1)
        self._versions.drop_before(start_offset - 1)

    def restart(self, end_offset: int, records: Iterable[ControlRecord]) -> None:
        """Begins anew with what a leader's checkpoint of the records before `end_offset` says."""
        self._voters, self._versions = _Series(), _Series()
        for record in records:
            self.add(end_offset - 1, record)

    @property
    def voters(self) -> VoterSet:
        """Who votes now."""
        newest = self._voters.values[-1] if self._voters.values else None
        return newest if isinstance(newest, VoterSet) else self._configured

    @property
    def voters_before(self) -> VoterSet:
        """Who voted before the newest record in the log."""
        before = self._voters.values[-2] if len(self._voters.values) > 1 else None
        return before if isinstance(before, VoterSet) else self._configured

    @property
    def voters_offset(self) -> int | None:
        """The offset of the record that says so, None for the configured voters."""
        return self._voters.offsets[-1] if self._voters.offsets else None

    @property
    def kraft_version(self) -> int:
        newest = self._versions.values[-1] if self._versions.values else None
        return newest.level if isinstance(newest, KRaftVersion) else 0

    def records_at(self, end_offset: int) -> tuple[ControlRecord, ...]:
        """What a checkpoint of the records before `end_offset` has to say: nothing while kraft.version is 0."""
        version, voters = self._versions.at(end_offset - 1), self._voters.at(end_offset - 1)
        if not isinstance(version, KRaftVersion) or version.level == 0:
            return ()
        return (version,) if voters is None else (version, voters)
