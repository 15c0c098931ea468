"""Compaction in random histories: each cleaning leaves what a read_committed consumer finds unchanged."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.record import Record
from tests.logstore.support import NOW_MS, Place, append, marker
from tests.support.compaction import compact

DELETE_RETENTION_MS = 1000
ROUNDS = 8
KEYS = 100
"""Few enough that values are replaced, and enough that many stay as they are for some cleanings."""
OPTIONS: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "delete_retention_ms": DELETE_RETENTION_MS,
    "file_delete_delay_ms": 60_000,
}


class Producer:
    """A producer of batches with sequences. `is_open`: a transaction has begun and not ended."""

    def __init__(self, producer_id: int, *, is_transactional: bool) -> None:
        self.producer_id = producer_id
        self.is_transactional = is_transactional
        self.epoch = 0
        self.sequence = 0
        self.is_open = False


class History:
    """A log under random operations, and the offset up to which it is clean."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.place = Place(OsFileSystem(), str(folder))
        self.log: PartitionLog = self.place.open(**OPTIONS)
        self.producers = [Producer(1, is_transactional=False), *(Producer(i, is_transactional=True) for i in (8, 9))]
        self.clean_to: int | None = None
        # Of all records that were ever written: key and value by offset, and the offsets of aborted ones.
        self._records: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._aborted: set[int] = set()
        self._open: dict[int, list[int]] = {}
        self._seen_to = 0

    def step(self) -> None:
        chance, producer = self.chance, self.chance.choice([None, *self.producers])
        if chance.random() < 0.15:
            self.log.roll(NOW_MS)
        elif producer is None:
            append(self.log, build_batch(self._new_records()))
        elif producer.is_open and chance.random() < 0.5:
            self._end(producer)
        else:
            records = self._new_records()
            data = build_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
                is_transactional=producer.is_transactional,
            )
            append(self.log, data)
            producer.sequence += len(records)
            producer.is_open = producer.is_transactional

    def _new_records(self) -> list[Record]:
        chance = self.chance
        return [
            Record(
                0,
                NOW_MS + chance.randrange(50),
                b"%d" % chance.randrange(KEYS),
                None if chance.random() < 0.3 else b"%d" % chance.randrange(1000),
            )
            for _ in range(chance.randrange(1, 4))
        ]

    def _end(self, producer: Producer) -> None:
        kind = self.chance.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
        if self.chance.random() < 0.4:
            # As in transactions of the second version: each has an epoch of its own.
            producer.epoch += 1
            producer.sequence = 0
        data = marker(kind, producer.producer_id, producer.epoch)
        self.log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR)
        producer.is_open = False

    def reopen(self) -> None:
        """Opens the log again as after a crash: like Kafka's cleaner, this finds the producers in the log."""
        self.place.settle()
        self.log.close_files()
        self.log = self.place.open(is_clean=False, recovery_point=0, **OPTIONS)

    def look(self) -> None:
        """Notes the records that were written since the last call, before a cleaning can remove them."""
        for batch in self.log.iter_batches():
            if batch.base_offset < self._seen_to:
                continue
            if batch.is_control:
                ended = self._open.pop(batch.producer_id, [])
                found = marker_of(batch)
                assert found is not None
                if found[0] == ControlRecordType.ABORT:
                    self._aborted.update(ended)
                continue
            for record in batch.records():
                self._records[record.offset] = record.key, record.value
                if batch.is_transactional:
                    self._open.setdefault(batch.producer_id, []).append(record.offset)
        self._seen_to = self.log.log_end_offset

    def expected(self) -> dict[bytes | None, bytes]:
        """Last value of each key that has one, without aborted records."""
        return _last(
            (key, value) for offset, (key, value) in sorted(self._records.items()) if offset not in self._aborted
        )

    def found(self) -> dict[bytes | None, bytes]:
        """The same, of the records that are left. The index must have each aborted transaction with such records."""
        left: list[tuple[bytes | None, bytes | None]] = []
        for batch in self.log.iter_batches():
            if batch.is_control or not batch.record_count:
                continue
            records = list(batch.records())
            if records[0].offset in self._aborted:
                known = self.log.aborted_transactions(batch.base_offset, batch.next_offset)
                assert batch.producer_id in [transaction.producer_id for transaction in known]
            else:
                left += [(record.key, record.value) for record in records]
        return _last(left)


def _last(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    values: dict[bytes | None, bytes] = {}
    for key, value in records:
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return values


@pytest.mark.parametrize("seed", range(10))
def test_what_a_consumer_finds_stays_the_same(seed: int, tmp_path: Path) -> None:
    """P-161 to P-163: with transactions, tombstones whose time passes, and a recovery before each cleaning."""
    history = History(seed, tmp_path)
    for number in range(ROUNDS):
        for _ in range(history.chance.randrange(10, 40)):
            history.step()
        history.reopen()
        history.look()
        log = history.log
        stable_offset = log.last_stable_offset(log.log_end_offset)
        history.clean_to = compact(log, history.clean_to, stable_offset, NOW_MS + number * 600)
        assert history.found() == history.expected()
    history.log.close_files()
