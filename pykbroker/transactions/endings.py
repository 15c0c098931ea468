"""Decided transactions on their way to their end: markers first, then the record that completes them, until it works.

Part of the coordinator's shell. Few markers are written at once, very many in a task that lets others in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from pykbroker.coordination.led_partitions import LedPartitions
from pykbroker.transactions.markers import MARKERS_AT_ONCE, PartitionExists, Progress, WriteMarker, write_markers
from pykbroker.transactions.shard import Shard
from pykbroker.transactions.states import TopicPartition
from pykbroker.transactions.transaction import Transaction

Key = tuple[int, str]
"""Partition of `__transaction_state` and transactional id."""


class Endings:
    """The transactions whose markers are being written.

    Args:
        led: the shards that are served here.
        write_marker: appends a marker.
        exists: whether a partition still is there.
        complete: appends the pending state of a transaction and completes it; False if that failed.
        request_retry: plans a call of `retry` in a moment.
    """

    def __init__(
        self,
        led: LedPartitions[Shard],
        write_marker: WriteMarker,
        exists: PartitionExists,
        complete: Callable[[int, Transaction], bool],
        request_retry: Callable[[], None],
    ) -> None:
        self._led = led
        self._write_marker = write_marker
        self._exists = exists
        self._complete = complete
        self._request_retry = request_retry
        self._waiting: set[Key] = set()
        self._in_tasks: set[Key] = set()

    def finish(self, nursery: trio.Nursery | None, number: int, transaction: Transaction) -> None:
        """Brings a decided transaction to its end, as far as that is possible now (P-132)."""
        key = (number, transaction.transactional_id)
        partitions = sorted(transaction.now.partitions)
        if key in self._in_tasks:
            self._try_later(key)
        elif len(partitions) <= MARKERS_AT_ONCE or nursery is None:
            self._settle(key, transaction, self._write(key, transaction, partitions))
        else:
            self._in_tasks.add(key)
            nursery.start_soon(self._finish_large, key, transaction, partitions)

    def retry(self, nursery: trio.Nursery | None) -> None:
        """Goes on with what could not be finished."""
        for number, transactional_id in sorted(self._waiting):
            self.finish(nursery, number, self._led.shards[number].transactions[transactional_id])

    def let_go(self, number: int) -> None:
        """The partition is another broker's business, or is read anew."""
        self._waiting = {key for key in self._waiting if key[0] != number}

    async def _finish_large(self, key: Key, transaction: Transaction, partitions: Sequence[TopicPartition]) -> None:
        reached: set[Progress] = set()
        try:
            for first in range(0, len(partitions), MARKERS_AT_ONCE):
                if not self._is_served(key, transaction) or Progress.GIVEN_UP in reached:
                    break
                reached.add(self._write(key, transaction, partitions[first : first + MARKERS_AT_ONCE]))
                await trio.lowlevel.checkpoint()
        finally:
            self._in_tasks.discard(key)
        if self._is_served(key, transaction):
            self._settle(key, transaction, next(progress for progress in WORST_FIRST if progress in reached))

    def _is_served(self, key: Key, transaction: Transaction) -> bool:
        shard = self._led.shards.get(key[0])
        return shard is not None and shard.transactions.get(key[1]) is transaction

    def _write(self, key: Key, transaction: Transaction, partitions: Sequence[TopicPartition]) -> Progress:
        epoch = self._led.shards[key[0]].coordinator_epoch
        level = logging.DEBUG if key in self._waiting else logging.INFO
        return write_markers(transaction, partitions, epoch, self._write_marker, self._exists, level)

    def _settle(self, key: Key, transaction: Transaction, progress: Progress) -> None:
        if progress is Progress.GIVEN_UP or (progress is Progress.WRITTEN and self._complete(key[0], transaction)):
            # As in Kafka an id whose marker was refused for good stays busy until its partition is loaded anew.
            self._waiting.discard(key)
        else:
            self._try_later(key)

    def _try_later(self, key: Key) -> None:
        self._waiting.add(key)
        self._request_retry()


WORST_FIRST = (Progress.GIVEN_UP, Progress.RETRY, Progress.WRITTEN)
