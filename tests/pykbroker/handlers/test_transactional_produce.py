"""Produce within transactions: the coordinator is asked before a partition takes the first batch (P-49, P-135)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import Acl
from pykbroker.handlers.produce import handle_produce
from pykbroker.protocol.acl_codes import ALLOW, LITERAL, TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.replication.partition import Partition
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import DataPath, batch, cluster_image, topic_id, topic_image
from tests.support.transactions import PRODUCER_ID, FakeTransactions, end_transaction, transactional_batch

NEWEST = 13
OLD_ERRORS, NEW_ERRORS, EPOCH_BUMPS = 10, 11, 12
"""Versions of Produce whose clients differ: see `ClientGeneration`."""


class TransactionalPath(DataPath):
    """A data path whose coordinator answers as a test says."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        image = cluster_image(topic_image("a", 3), topic_image("far", leader=2), topic_image("__consumer_offsets"))
        super().__init__(folder, image, properties)
        self.coordinator = FakeTransactions()
        coordinator: Any = self.coordinator
        self.services = self.services.replaced(transactions=coordinator)

    def partition(self, number: int = 0) -> Partition:
        found = self.partitions.get("a", number)
        assert found is not None
        return found

    async def produce(self, data: bytes, *, version: int = NEWEST, topic: str = "a", **fields: Any) -> Any:
        """The answer for partition 0."""
        return (await self.produce_all({0: data}, version=version, topic=topic, **fields))[0]

    async def produce_all(
        self, batches: dict[int, bytes], *, version: int = NEWEST, topic: str = "a", **fields: Any
    ) -> list[Any]:
        data = [PartitionProduceData(index=index, records=records) for index, records in batches.items()]
        named = TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=data)
        request = ProduceRequest(
            **{"acks": -1, "timeout_ms": 1000, "transactional_id": "t", "topic_data": [named], **fields}
        )
        response = await self.call(handle_produce, request, version)
        answers: list[Any] = response.responses[0].partition_responses
        return answers


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = TransactionalPath(tmp_path)
    yield data_path
    data_path.close()


@pytest.mark.parametrize("version", range(3, NEWEST + 1))
async def test_a_first_batch_is_verified_or_added(path: TransactionalPath, version: int) -> None:
    """P-135, P-136, P-137: clients of both kinds; later batches of the transaction, and duplicates, ask nobody."""
    for sequence in (0, 1, 1):
        answer = await path.produce(transactional_batch(sequence), version=version)
        assert (answer.error_code, answer.base_offset) == (0, sequence)
    assert path.coordinator.asked == [("t", PRODUCER_ID, 0, [("a", 0)], version >= EPOCH_BUMPS)]
    assert path.partition().log.log_end_offset == 2
    assert path.partition().last_stable_offset == 0


async def test_the_next_transaction_is_verified_again(path: TransactionalPath) -> None:
    await path.produce(transactional_batch(0), version=NEW_ERRORS)
    end_transaction(path.partition(), commit=True)
    await path.produce(transactional_batch(1), version=NEW_ERRORS)
    assert len(path.coordinator.asked) == 2


async def test_one_question_for_all_partitions(path: TransactionalPath) -> None:
    """P-135: of those that have not seen the transaction yet."""
    await path.produce_all({0: transactional_batch(0)})
    answers = await path.produce_all({0: transactional_batch(1), 1: transactional_batch(0), 2: batch()})
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [asked[3] for asked in path.coordinator.asked] == [[("a", 0)], [("a", 1)]]


async def test_without_a_transactional_id_nothing_is_taken(path: TransactionalPath) -> None:
    """P-49: no partition, not even those with plain batches."""
    answers = await path.produce_all({0: transactional_batch(), 1: batch()}, transactional_id=None)
    assert [a.error_code for a in answers] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert not path.coordinator.asked


@pytest.mark.parametrize("other", [{"producer_id": 8}, {"epoch": 1}])
async def test_two_producers_in_one_request(path: TransactionalPath, other: dict[str, int]) -> None:
    """P-49: two epochs of one are two as well."""
    answers = await path.produce_all({0: transactional_batch(), 1: transactional_batch(**other), 2: batch()})
    assert [a.error_code for a in answers] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
    assert path.partition(2).log.log_end_offset == 0


async def test_a_batch_that_is_refused_is_no_part_of_the_transaction(path: TransactionalPath) -> None:
    """zstd before version 7: another producer's batch beside it is taken."""
    refused = batch(codec=4, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    answers = await path.produce_all({0: refused, 1: transactional_batch()}, version=6)
    assert [a.error_code for a in answers] == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE]


async def test_more_than_one_batch_is_refused_before_the_coordinator_is_heard(path: TransactionalPath) -> None:
    path.coordinator.answer = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    answer = await path.produce(transactional_batch(0) + transactional_batch(1))
    assert answer.error_code == ErrorCode.INVALID_RECORD


async def test_plain_batches_under_a_transactional_id_ask_nobody(path: TransactionalPath) -> None:
    assert (await path.produce(batch())).error_code == 0
    assert not path.coordinator.asked


RETRIED = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_ADDED = "Partition was not added to the transaction"
UNABLE = "Unable to verify the partition has been added to the transaction. Underlying error: "


@pytest.mark.parametrize(
    ("said", "version", "told", "message"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, OLD_ERRORS, ErrorCode.INVALID_TXN_STATE, NOT_ADDED),
        (ErrorCode.TRANSACTION_ABORTABLE, NEW_ERRORS, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.TRANSACTION_ABORTABLE, EPOCH_BUMPS, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.INVALID_TXN_STATE, NEWEST, ErrorCode.INVALID_TXN_STATE, NOT_ADDED),
        (ErrorCode.PRODUCER_FENCED, NEWEST, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NEWEST, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NEWEST, RETRIED, UNABLE + "COORDINATOR_LOAD_IN_PROGRESS"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLD_ERRORS, RETRIED, UNABLE + "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_COORDINATOR, NEWEST, RETRIED, UNABLE + "NOT_COORDINATOR"),
        (ErrorCode.NETWORK_EXCEPTION, NEWEST, RETRIED, UNABLE + "NETWORK_EXCEPTION"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, NEW_ERRORS, RETRIED, UNABLE + "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, EPOCH_BUMPS, ErrorCode.CONCURRENT_TRANSACTIONS, None),
    ],
)
async def test_errors_in_words_that_the_client_knows(
    path: TransactionalPath, said: ErrorCode, version: int, told: ErrorCode, message: str | None
) -> None:
    """P-135; the message is in version 8 and later."""
    path.coordinator.answer = said
    plain, refused = await path.produce_all({1: batch(), 0: transactional_batch()}, version=version)
    assert plain.error_code == 0
    assert (refused.error_code, refused.base_offset) == (told, -1)
    assert refused.error_message == message
    assert path.partition().log.log_end_offset == 0


async def test_a_transaction_that_is_still_ending_is_waited_for(path: TransactionalPath) -> None:
    """P-135: for 100 ms, with epoch bumps only; after 1 ms first, then after twice as long each time, up to 20 ms."""
    path.coordinator.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    start = trio.current_time()
    assert (await path.produce(transactional_batch(), version=EPOCH_BUMPS)).error_code == 0
    assert len(path.coordinator.asked) == 4
    assert trio.current_time() - start == pytest.approx(0.001 + 0.002 + 0.004)
    path.coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    path.coordinator.asked.clear()
    start = trio.current_time()
    answer = await path.produce(transactional_batch(0, epoch=1), version=EPOCH_BUMPS)
    assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert trio.current_time() - start == pytest.approx(0.1)
    assert len(path.coordinator.asked) == 10


@pytest.mark.parametrize(
    ("properties", "seconds", "asked"),
    [
        # After 0, 1, 3 and 6 ms, and so on; the last time at the end of what is left.
        ({"add.partitions.to.txn.retry.backoff.max.ms": "7", "add.partitions.to.txn.retry.backoff.ms": "3"}, 0.007, 5),
        ({"add.partitions.to.txn.retry.backoff.max.ms": "1"}, 0.001, 2),
        ({"add.partitions.to.txn.retry.backoff.max.ms": "0"}, 0.0, 1),
        ({"add.partitions.to.txn.retry.backoff.max.ms": "9000", "request.timeout.ms": "2"}, 0.002, 3),
    ],
)
async def test_the_wait_for_an_ending_transaction_is_bounded(
    tmp_path: Path, properties: dict[str, str], seconds: float, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    """P-135: in each combination of the settings. The retries say nothing in the log."""
    path = TransactionalPath(tmp_path, properties)
    try:
        path.coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
        start = trio.current_time()
        with caplog.at_level(logging.DEBUG):
            answer = await path.produce(transactional_batch(), version=EPOCH_BUMPS)
    finally:
        path.close()
    assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert trio.current_time() - start == pytest.approx(seconds)
    assert len(path.coordinator.asked) == asked
    assert not [record for record in caplog.records if record.name.startswith("pykbroker")]


async def test_the_transaction_ends_while_the_coordinator_is_asked(path: TransactionalPath) -> None:
    """P-135: the batch is not appended, or it would open a transaction that nobody ends."""

    class Slow(FakeTransactions):
        async def verify_anywhere(self, *args: Any, **fields: Any) -> dict[tuple[str, int], ErrorCode]:
            answers = await super().verify_anywhere(*args, **fields)
            end_transaction(path.partition(), commit=False)
            return answers

    slow: Any = Slow()
    path.services = path.services.replaced(transactions=slow)
    answer = await path.produce(transactional_batch(), version=NEW_ERRORS)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert path.partition().log.log_end_offset == 1


async def test_sequences_begin_at_zero_with_epoch_bumps(path: TransactionalPath) -> None:
    """P-54."""
    answer = await path.produce(transactional_batch(3), version=EPOCH_BUMPS)
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await path.produce(transactional_batch(3, producer_id=8), version=NEW_ERRORS)).error_code == 0


async def test_old_epochs_are_fenced_by_the_partition(path: TransactionalPath) -> None:
    """P-55: before the coordinator is asked."""
    await path.produce(transactional_batch(epoch=3))
    assert (await path.produce(transactional_batch(epoch=2))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(path.coordinator.asked) == 1


async def test_plain_batches_within_a_transaction(path: TransactionalPath) -> None:
    """P-138."""
    await path.produce(transactional_batch())
    data = batch(1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=1)
    assert (await path.produce(data, transactional_id=None)).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [NEW_ERRORS, EPOCH_BUMPS])
async def test_verification_can_be_switched_off(tmp_path: Path, version: int) -> None:
    """P-135: transaction.partition.verification.enable; partitions of the newer clients are added all the same."""
    path = TransactionalPath(tmp_path, {"transaction.partition.verification.enable": "false"})
    assert (await path.produce(transactional_batch(), version=version)).error_code == 0
    assert len(path.coordinator.asked) == (1 if version >= EPOCH_BUMPS else 0)
    path.close()


async def test_partitions_that_are_not_here(path: TransactionalPath) -> None:
    """P-44: they are not asked about."""
    answer = await path.produce(transactional_batch(), topic="far")
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await path.produce_all({9: transactional_batch()}))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not path.coordinator.asked


async def test_internal_topics_take_no_transactions_of_clients(path: TransactionalPath) -> None:
    """P-45."""
    answer = await path.produce(transactional_batch(), topic="__consumer_offsets")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_that_may_not_be_written_are_not_verified(path: TransactionalPath) -> None:
    """P-49: the coordinator hears of the others alone."""
    acls = {
        bytes(16): Acl(TRANSACTIONAL_ID, "t", LITERAL, "User:ANONYMOUS", "*", WRITE, ALLOW),
        bytes(15) + b"1": Acl(TOPIC, "far", LITERAL, "User:ANONYMOUS", "*", WRITE, ALLOW),
    }
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    answer = await path.produce(transactional_batch())
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert path.coordinator.asked == []


async def test_a_partition_that_is_there_twice(path: TransactionalPath) -> None:
    """P-49: of both parts the response has the last one."""
    data = transactional_batch()
    parts = [PartitionProduceData(index=0, records=data), PartitionProduceData(index=0, records=data)]
    named = TopicProduceData(name="a", topic_id=topic_id("a"), partition_data=parts)
    request = ProduceRequest(acks=-1, timeout_ms=1000, transactional_id="t", topic_data=[named])
    response = await path.call(handle_produce, request, NEWEST)
    assert [part.index for part in response.responses[0].partition_responses] == [0]
