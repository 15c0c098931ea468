"""LogView: offsets and epochs of the metadata log, without the records."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.named_tuple import NamedTuple


class OffsetAndEpoch(NamedTuple):
    """The end of a log: its end offset and the epoch of its last record. It also identifies a snapshot."""

    offset: int
    epoch: int


class Diverging(NamedTuple):
    """The leader's log does not contain the follower's: in it, `epoch` ends at `end_offset` (KIP-595)."""

    epoch: int
    end_offset: int


BEGINNING = OffsetAndEpoch(0, 0)


class LogView:
    """Offsets and epochs of the log. A record counts from the step that appends it, before it is durable.

    Attributes:
        start: the snapshot at whose end the log starts; (0, 0) for a log that starts at offset 0.
        end_offset: offset of the next record.
        persisted_offset: records below it are durable here.
    """

    __slots__ = ("_epochs", "end_offset", "persisted_offset", "start")

    def __init__(
        self, epochs: Iterable[tuple[int, int]] = (), end_offset: int = 0, start: OffsetAndEpoch = BEGINNING
    ) -> None:
        """`epochs`: (epoch, first offset) pairs, ascending. All records before `end_offset` are durable."""
        self._epochs = list(epochs)
        self.start = start
        self.end_offset = end_offset
        self.persisted_offset = end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot when no record follows it."""
        return self._epochs[-1][0] if self._epochs else self.start.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def append(self, epoch: int, record_count: int) -> None:
        """Adds records of the last epoch or of a later one."""
        assert epoch >= self.last_epoch, (epoch, self._epochs)
        if not self._epochs or self._epochs[-1][0] != epoch:
            self._epochs.append((epoch, self.end_offset))
        self.end_offset += record_count

    def truncate(self, offset: int) -> None:
        """Drops the records from `offset` on."""
        self._epochs = [(epoch, first) for epoch, first in self._epochs if first < offset]
        self.end_offset = min(self.end_offset, offset)
        self.persisted_offset = min(self.persisted_offset, offset)

    def start_after(self, snapshot: OffsetAndEpoch) -> None:
        """Drops the records before a snapshot of this log."""
        assert snapshot.offset <= self.end_offset, (snapshot, self.end_offset)
        epochs = [entry for entry in self._epochs if entry[1] > snapshot.offset]
        before = [entry for entry in self._epochs if entry[1] <= snapshot.offset]
        if before and self.end_offset > snapshot.offset and (not epochs or epochs[0][1] > snapshot.offset):
            epochs.insert(0, (before[-1][0], snapshot.offset))
        self._epochs = epochs
        self.start = snapshot

    def replace_by(self, snapshot: OffsetAndEpoch) -> None:
        """Drops all records: a leader's snapshot takes their place."""
        self._epochs = []
        self.end_offset = self.persisted_offset = snapshot.offset
        self.start = snapshot

    def is_before_start(self, end: OffsetAndEpoch) -> bool:
        """True if a follower whose log has this end cannot fetch from this log and needs the snapshot first."""
        start = self.start
        return start.offset > 0 and (
            end.offset < start.offset
            or end.epoch < start.epoch
            or (end.offset == start.offset and end.epoch != start.epoch)
        )

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The last epoch in the log that is at most `epoch`, and its end offset."""
        result = self.start
        for number, (known, _) in enumerate(self._epochs):
            if known > epoch:
                break
            is_last = number + 1 == len(self._epochs)
            result = OffsetAndEpoch(self.end_offset if is_last else self._epochs[number + 1][1], known)
        return result

    def divergence(self, offset: int, epoch: int) -> Diverging | None:
        """The end in this log of the epoch in which a follower's log diverges; None if it does not diverge.

        `offset` and `epoch` are the end of the follower's log, which is not `is_before_start`. The end is that of
        `epoch`, or of the last epoch before it.
        """
        end = self.end_of_epoch(epoch)
        if end.epoch == epoch and offset <= end.offset:
            return None
        return Diverging(end.epoch, end.offset)

    def truncation_offset(self, diverging: Diverging) -> int:
        """The offset to truncate this log to after the leader's response `diverging`."""
        end = self.end_of_epoch(diverging.epoch)
        return min(end.offset, diverging.end_offset) if end.epoch == diverging.epoch else end.offset
