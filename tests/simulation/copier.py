"""A transactional copier: reads one topic, writes another, commits its offsets in the same transaction (exactly once).

A new client does what Java's producer does under transaction.version 2: the brokers take in partitions and groups by
themselves, and each transaction has an epoch of its own (KIP-890). An old one does as under 0 and 1; whenever an answer
was missing it takes a new epoch after the transaction: a request of the old connection may still arrive, and only a new
epoch fences it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.client import GROUP, TRANSACTION, Client, Unreachable
from tests.simulation.groups import fetch_committed
from tests.simulation.history import History, Transaction
from tests.simulation.producers import RETRIABLE, batch_of
from tests.simulation.readers import READ_COMMITTED, committed_batches

TRANSACTION_TIMEOUT_MS = 4000

_TRY_AGAIN = RETRIABLE | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
_TRIES_MAX = 60


class Lost(Exception):
    """This transaction cannot go on: a new epoch is needed."""


class Copier:
    """One transactional copier with one transactional id, from one topic to another."""

    def __init__(
        self,
        client: Client,
        history: History,
        transactional_id: str,
        source: tuple[str, int],
        target: tuple[str, int],
        group: str,
    ) -> None:
        """`source` and `target` are topics with their numbers of partitions."""
        self._client = client
        self._history = history
        self._id = transactional_id
        self._source, self._source_partitions = source
        self._target, self._target_partitions = target
        self._group = group
        self._producer = -1, -1
        self._sequences: dict[int, int] = {}
        self._number = 0
        self._was_unanswered = False
        self.must_stop = False

    async def run(self) -> None:
        while not self.must_stop:
            try:
                await self._session()
            except (Unreachable, Lost) as why:
                self._client.say(f"begins anew: {why}")
                await self._client.pause()
        # What is open is ended by a last new epoch, so that no reader waits for it.
        while True:
            try:
                await self._begin()
                return
            except (Unreachable, Lost):
                await self._client.pause()

    async def _begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        response = await self._ask(TRANSACTION, self._id, request, lambda answer: answer.error_code)
        self._producer = response.producer_id, response.producer_epoch
        self._sequences = {}
        self._was_unanswered = False
        self._client.say(f"{self._id} is producer {self._producer}")

    async def _session(self) -> None:
        await self._begin()
        client = self._client
        wanted = [(self._source, number) for number in range(self._source_partitions)]
        positions = await fetch_committed(client, self._history, self._group, wanted)
        while not self.must_stop:
            partition = client.random.randrange(self._source_partitions)
            start = max(positions.get((self._source, partition), 0), 0)
            values, end = await self._read(partition, start)
            if values:
                await self._copy(partition, values, end)
                positions[self._source, partition] = end
            if self._was_unanswered:
                raise Lost("an answer was missing")
            await trio.sleep(client.random.uniform(0.05, 0.3))

    async def _read(self, partition: int, position: int) -> tuple[list[bytes], int]:
        client = self._client
        info = await client.leader_of(self._source, partition)
        found = await client.fetch(
            info.leader, self._source, partition, position, isolation=READ_COMMITTED, max_wait_ms=0
        )
        if found.error_code != ErrorCode.NONE:
            client.forget(self._source, partition)
            raise Unreachable(f"{self._source}-{partition}: {ErrorCode(found.error_code).name}")
        values: list[bytes] = []
        end = position
        for batch in committed_batches(found):
            if batch.base_offset < position:
                continue
            values += [record.value or b"" for record in batch.records()]
            end = batch.last_offset + 1
            if len(values) >= 4:
                break
        return values, end

    async def _copy(self, partition: int, values: list[bytes], end: int) -> None:
        """One transaction; raises Lost with an unknown outcome."""
        client, history = self._client, self._history
        self._number += 1
        key = self._id, self._number
        transaction = history.transactions[key] = Transaction()
        commits = client.random.random() < 0.75
        client.say(f"transaction {self._number}: {len(values)} of {self._source}-{partition} up to {end}")
        targets: dict[int, list[bytes]] = {}
        for value in values:
            targets.setdefault(client.random.randrange(self._target_partitions), []).append(
                b"%s#%d|%s" % (self._id.encode(), self._number, value)
            )
        if not client.is_new:
            await self._add_partitions(list(targets))
        for number, copied in targets.items():
            for value in copied:
                history.sending(value, self._target, number, key)
                transaction.values.append(value)
            await self._write(number, copied)
        if client.random.random() < 0.05:
            raise Lost("it was restarted in the midst of a transaction")
        await self._add_offsets(partition, end)
        await self._end(transaction, commits=commits)
        if transaction.outcome:
            history.committed(self._group, self._source, partition, end)
        if not commits:
            raise Lost("the transaction was aborted")

    async def _add_partitions(self, partitions: list[int]) -> None:
        producer_id, epoch = self._producer
        await self._ask(
            TRANSACTION,
            self._id,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._target, partitions=partitions)],
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def _write(self, partition: int, values: list[bytes]) -> None:
        client = self._client
        producer_id, epoch = self._producer
        sequence = self._sequences.get(partition, 0)
        data = batch_of(
            client,
            values,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

        async def write() -> Any:
            return await client.produce(self._target, partition, data, transactional_id=self._id)

        answer = await self._until_it_is(
            write,
            lambda answer: 0 if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else answer.error_code,
            lambda: client.forget(self._target, partition),
        )
        self._sequences[partition] = sequence + len(values)
        offset = answer.base_offset if answer.error_code == ErrorCode.NONE else -1
        for number, value in enumerate(values):
            self._history.acknowledged(value, offset + number if offset >= 0 else -1)

    async def _add_offsets(self, partition: int, end: int) -> None:
        producer_id, epoch = self._producer
        if not self._client.is_new:
            await self._ask(
                TRANSACTION,
                self._id,
                AddOffsetsToTxnRequest(
                    transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, group_id=self._group
                ),
                lambda answer: answer.error_code,
            )
        offsets = [
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=end, committed_metadata="")
        ]
        await self._ask(
            GROUP,
            self._group,
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=self._group,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=[TxnOffsetCommitRequestTopic(name=self._source, partitions=offsets)],
            ),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=commits
        )
        answer = await self._ask(TRANSACTION, self._id, request, lambda answer: answer.error_code)
        transaction.outcome = commits
        if answer.producer_id >= 0:
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences = {}
            self._was_unanswered = False
        self._client.say(f"transaction {self._number} is {'committed' if commits else 'aborted'}")
        self._history.count("transactions committed" if commits else "transactions aborted")

    async def _ask(self, kind: int, key: str, request: Message, code_of: Callable[[Any], int]) -> Any:
        async def ask() -> Any:
            return await self._client.call_coordinator(kind, key, request)

        return await self._until_it_is(ask, code_of, lambda: self._client.forget_coordinator(kind, key))

    async def _until_it_is(
        self, attempt: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int], look_again: Callable[[], None]
    ) -> Any:
        """Tries until there is an answer without an error. Raises Lost when that cannot be."""
        for _ in range(_TRIES_MAX):
            try:
                answer = await attempt()
            except Unreachable as error:
                self._client.say(f"{self._id}: {error}")
                self._was_unanswered = True
                await self._client.pause()
                continue
            code = ErrorCode(code_of(answer))
            if code == ErrorCode.NONE:
                return answer
            self._client.say(f"{self._id}: {code.name}")
            if code not in _TRY_AGAIN:
                raise Lost(code.name)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                look_again()
            await self._client.pause()
        raise Lost("too many tries")
