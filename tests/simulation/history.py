"""History of the answers that clients got, and the rules that can be checked while a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykbroker.protocol.records.batch import iter_batches

if TYPE_CHECKING:
    from tests.simulation.world import World


class Sent(NamedTuple):
    """A record that a client has tried to write. `offset` is where it was told it is, None if it was not told of
    success, -1 if of success without a place. `transaction` is (transactional id, number) for those in one."""

    topic: str
    partition: int
    offset: int | None
    transaction: tuple[str, int] | None = None


class Transaction:
    """Outcome of a transaction as its client knows it: True committed, False aborted, None unknown."""

    def __init__(self) -> None:
        self.outcome: bool | None = None
        self.values: list[bytes] = []


class History:
    """Records sent, acknowledged and read in one run, by all clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: dict[bytes, Sent] = {}
        self.transactions: dict[tuple[str, int], Transaction] = {}
        # (topic, partition) to what a reader saw below the high watermark: base offset to (last offset, CRC).
        self.seen: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._ends: dict[tuple[str, int, int], int] = {}
        self._high_watermarks: dict[tuple[str, int, int, int], int] = {}
        # (topic, partition, base offset) of transactional batches that a read_committed reader took for committed.
        self.taken_for_committed: dict[tuple[str, int, int], str] = {}
        # (group, topic, partition) to the greatest offset whose commit was answered.
        self.commits: dict[tuple[str, str, int], int] = {}
        # The same at the end, as OffsetFetch told it.
        self.final_offsets: dict[tuple[str, str, int], int] = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        """For the summary of a run."""
        self.counts[what] = self.counts.get(what, 0) + number

    # Producers

    def sending(self, value: bytes, topic: str, partition: int, transaction: tuple[str, int] | None = None) -> None:
        self.sent[value] = Sent(topic, partition, None, transaction)

    def acknowledged(self, value: bytes, offset: int) -> None:
        self.sent[value] = self.sent[value]._replace(offset=offset)
        self.count("records acknowledged")

    # Readers

    def read(self, who: str, topic: str, partition: int, data: bytes, bound: int) -> int:
        """Somebody was given these batches, up to the high watermark `bound`; returns where they end.

        What two readers see at an offset is the same, whenever and from whichever replica.
        """
        seen = self.seen.setdefault((topic, partition), {})
        end = -1
        for batch in iter_batches(data):
            base, last = batch.base_offset, batch.last_offset
            what = last, batch.crc
            before = seen.setdefault(base, what)
            if before != what:
                self._world.broken(
                    f"{who} reads another batch at {topic}-{partition} offset {base}: to {what[0]} with checksum "
                    f"{what[1]:08x}, and before it was to {before[0]} with {before[1]:08x}"
                )
            if last >= bound >= 0:
                self._world.broken(f"{who} reads {topic}-{partition} up to {last}, the high watermark is {bound}")
            end = last + 1
        return end

    def end_before(self, topic: str, partition: int, isolation: int) -> int:
        """The greatest end that anybody was told; to be asked before one is asked for."""
        return self._ends.get((topic, partition, isolation), 0)

    def told_end(self, who: str, topic: str, partition: int, isolation: int, end: int, before: int) -> None:
        """ListOffsets gave the end of what may be read; `before` is from `end_before` when it was asked."""
        if end < before:
            self._world.broken(
                f"{who} is told that {topic}-{partition} ends at {end}, somebody was told {before} before"
            )
        key = topic, partition, isolation
        self._ends[key] = max(self._ends.get(key, 0), end)

    def high_watermark_before(self, topic: str, partition: int, node: int, life: int) -> int:
        """The greatest high watermark that this process told anybody; to be asked before a fetch."""
        return self._high_watermarks.get((topic, partition, node, life), 0)

    def told_high_watermark(
        self, who: str, topic: str, partition: int, node: int, life: int, offset: int, before: int
    ) -> None:
        """A replica's high watermark, as one process of it tells it, never goes back for a reader."""
        key = topic, partition, node, life
        if offset < before:
            self._world.broken(
                f"{who} is told by node {node} that the high watermark of {topic}-{partition} is {offset}, "
                f"it was {before} before"
            )
        self._high_watermarks[key] = max(self._high_watermarks.get(key, 0), offset)

    # Groups

    def committed(self, group: str, topic: str, partition: int, offset: int) -> None:
        key = group, topic, partition
        self.commits[key] = max(self.commits.get(key, -1), offset)
        self.count("offsets committed")

    def committed_before(self, group: str, topic: str, partition: int) -> int:
        return self.commits.get((group, topic, partition), -1)

    def told_committed(self, who: str, group: str, topic: str, partition: int, offset: int, before: int) -> None:
        """OffsetFetch gave a committed offset; `before` is what was acknowledged when it was asked."""
        if offset < before:
            self._world.broken(
                f"{who} is told that {group} has committed {offset} for {topic}-{partition}, {before} was before"
            )
