"""The logs as they lie on the disks at the end, and the rules for them and for what clients were told."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.protocol.records.batch import RecordBatch, iter_batches
from pykbroker.protocol.records.control import ControlRecordType, control_record_type
from pykbroker.protocol.records.errors import RecordError

if TYPE_CHECKING:
    from tests.simulation.disk import Disk
    from tests.simulation.history import History
    from tests.simulation.world import World


def batches_on(disk: Disk, folder: str) -> list[RecordBatch]:
    """The batches of a partition's folder, in order."""
    found: list[RecordBatch] = []
    names = sorted(name for name in disk.files if name.startswith(folder + "/") and name.endswith(".log"))
    for name in names:
        # Zeros behind the data of a log that nobody closed.
        with suppress(RecordError):
            found += iter_batches(bytes(disk.files[name].content))
    return found


class Written(NamedTuple):
    """A data record of the final log. `is_committed`: None where its transaction was never ended."""

    value: bytes
    offset: int
    is_committed: bool | None


class FinalLog:
    """The records of one partition with the fate of their transactions."""

    def __init__(self, batches: list[RecordBatch]) -> None:
        self.records: list[Written] = []
        self.fate_of_batch: dict[int, bool | None] = {}
        open_records: dict[int, list[int]] = {}
        open_batches: dict[int, list[int]] = {}
        for batch in batches:
            producer = batch.producer_id
            if batch.is_control:
                for record in batch.records():
                    kind = control_record_type(record.key)
                    if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                        committed = kind is ControlRecordType.COMMIT
                        for number in open_records.pop(producer, []):
                            self.records[number] = self.records[number]._replace(is_committed=committed)
                        for base in open_batches.pop(producer, []):
                            self.fate_of_batch[base] = committed
                continue
            fate = None if batch.is_transactional else True
            self.fate_of_batch[batch.base_offset] = fate
            if batch.is_transactional:
                open_batches.setdefault(producer, []).append(batch.base_offset)
            for record in batch.records():
                if batch.is_transactional:
                    open_records.setdefault(producer, []).append(len(self.records))
                self.records.append(Written(record.value or b"", record.offset, fate))


class FinalCheck:
    """`run` checks; each rule that is broken is told to the world."""

    def __init__(
        self, world: World, history: History, topics: dict[str, int], copies: dict[str, tuple[str, str, str]]
    ) -> None:
        """`topics` with their numbers of partitions; `copies` by transactional id: (source, target, group)."""
        self._world = world
        self._history = history
        self._topics = topics
        self._copies = copies
        self._logs: dict[tuple[str, int], FinalLog] = {}

    def run(self) -> None:
        for topic, count in self._topics.items():
            for partition in range(count):
                self._one_partition(topic, partition)
        self._sent_records()
        self._transactions()
        for transactional_id, (source, target, group) in self._copies.items():
            self._exactly_once(transactional_id, source, target, group)

    def _one_partition(self, topic: str, partition: int) -> None:
        name = f"{topic}-{partition}"
        copies = {}
        for machine in self._world.machines.values():
            places = [path for path in machine.log_directories if f"{path}/{name}" in machine.disk.directories]
            if places:
                copies[machine.name] = batches_on(machine.disk, f"{places[0]}/{name}")
            if len(places) > 1:
                self._world.broken(f"{machine.name} has a log of {name} in each of {places}")
        outlines = {
            who: [(b.base_offset, b.last_offset, b.partition_leader_epoch, b.crc) for b in batches]
            for who, batches in copies.items()
        }
        replicas = self._world.replicas_of(topic, partition)
        outlines = {who: outline for who, outline in outlines.items() if who in replicas}
        if not outlines:
            self._world.broken(f"there is no log of {name}")
            return
        first = next(iter(outlines))
        for who, outline in outlines.items():
            if outline != outlines[first]:
                at = next(
                    (n for n, (a, b) in enumerate(zip(outline, outlines[first], strict=False)) if a != b),
                    min(len(outline), len(outlines[first])),
                )
                one, other = outline[at : at + 2], outlines[first][at : at + 2]
                self._world.broken(
                    f"the logs of {name} differ from batch {at} on: {who} has {one} of {len(outline)}, {first} has "
                    f"{other} of {len(outlines[first])}"
                )
        seen = self._history.seen.get((topic, partition), {})
        final = {b.base_offset: (b.last_offset, b.crc) for b in copies[first]}
        for base, what in seen.items():
            if final.get(base) != what:
                self._world.broken(f"{name}: what was read at offset {base} is not in the log at the end")
        expected = 0
        for batch in copies[first]:
            # Nothing is compacted or deleted here.
            if batch.base_offset != expected:
                self._world.broken(f"{name}: offset {batch.base_offset} follows {expected - 1} in the log")
            expected = batch.last_offset + 1
        epochs = [b.partition_leader_epoch for b in copies[first]]
        if epochs != sorted(epochs):
            self._world.broken(f"{name}: leader epochs go back: {epochs}")
        self._logs[topic, partition] = FinalLog(copies[first])

    def _sent_records(self) -> None:
        """Nothing acknowledged is lost or moved, nothing is there twice, and each producer's order is kept."""
        sent = self._history.sent
        found: dict[bytes, int] = {}
        # A careless producer does not note what it sends.
        noted = {what.topic for what in sent.values()}
        for (topic, partition), log in self._logs.items():
            last_of: dict[bytes, int] = {}
            for record in log.records:
                what = sent.get(record.value)
                where = f"{topic}-{partition} offset {record.offset}"
                if what is None:
                    if topic in noted:
                        self._world.broken(f"{record.value!r} is at {where} and was never sent")
                    continue
                if (topic, partition) != (what.topic, what.partition):
                    self._world.broken(f"{record.value!r} was sent to {what.topic}-{what.partition} and is at {where}")
                if record.value in found:
                    self._world.broken(
                        f"{record.value!r} is there twice: at {where} and at offset {found[record.value]}"
                    )
                found[record.value] = record.offset
                if what.transaction is None:
                    producer, _, number = record.value.rpartition(b"/")
                    if int(number) <= last_of.get(producer, -1):
                        self._world.broken(f"{record.value!r} is behind a later one of its producer, at {where}")
                    last_of[producer] = int(number)
        for value, what in sent.items():
            if what.offset is None:
                continue
            if value not in found:
                # The records of an aborted transaction are in the log too.
                self._world.broken(f"{value!r} was acknowledged at {what.topic}-{what.partition} and is lost")
            elif what.offset >= 0 and what.offset != found[value]:
                self._world.broken(
                    f"{value!r} was acknowledged at {what.topic}-{what.partition} offset {what.offset} and is at "
                    f"{found[value]}"
                )

    def _transactions(self) -> None:
        fates: dict[bytes, bool | None] = {}
        for (topic, partition), log in self._logs.items():
            for record in log.records:
                fates[record.value] = record.is_committed
                if record.is_committed is None:
                    self._world.broken(f"the transaction of {record.value!r} in {topic}-{partition} never ends")
        for (transactional_id, number), transaction in self._history.transactions.items():
            name = f"transaction {number} of {transactional_id}"
            there = {value: fates.get(value, False) for value in transaction.values}
            if len(set(there.values())) > 1:
                self._world.broken(f"{name} is half there: {there}")
            if transaction.outcome is not None and any(fate != transaction.outcome for fate in there.values()):
                self._world.broken(f"{name} was {'committed' if transaction.outcome else 'aborted'}, but: {there}")
        for (topic, partition, base), who in self._history.taken_for_committed.items():
            if not self._logs[topic, partition].fate_of_batch.get(base):
                self._world.broken(f"{who} read what was aborted at {topic}-{partition} offset {base}")

    def _exactly_once(self, transactional_id: str, source: str, target: str, group: str) -> None:
        """The committed records in the target are the source's records up to the group's offset, each once."""
        prefix = transactional_id.encode() + b"#"
        copied: list[bytes] = []
        for partition in range(self._topics[target]):
            records = self._logs[target, partition].records
            copied += [r.value.partition(b"|")[2] for r in records if r.is_committed and r.value.startswith(prefix)]
        if len(set(copied)) != len(copied):
            self._world.broken(f"{target} has records of {source} twice")
        wanted: set[bytes] = set()
        for partition in range(self._topics[source]):
            end = self._history.final_offsets.get((group, source, partition), -1)
            wanted |= {r.value for r in self._logs[source, partition].records if r.offset < end and r.is_committed}
        if wanted != set(copied):
            missing, surplus = sorted(wanted - set(copied))[:3], sorted(set(copied) - wanted)[:3]
            self._world.broken(f"{target} is not {source} up to what {group} has committed: {missing=} {surplus=}")
