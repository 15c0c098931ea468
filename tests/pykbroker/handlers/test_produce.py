"""Produce: a request value in, a response value out, on real logs (P-34 to P-55)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pykbroker.errors import CloseConnection
from pykbroker.handlers.produce import FEW, handle_produce
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image
from tests.support.turns import with_turns

NEWEST = 13


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = DataPath(
        tmp_path,
        cluster_image(
            topic_image("clicks", 2),
            topic_image("wide", 5),
            topic_image("stamped"),
            topic_image("compacted"),
            topic_image("zipped"),
            topic_image("small"),
            topic_image("guarded", followers=(2,)),
            topic_image("elsewhere", leader=2),
            topic_image("__consumer_offsets"),
            topic_image("__transaction_state", leader=2),
            configs={
                "stamped": {"message.timestamp.type": "LogAppendTime"},
                "compacted": {"cleanup.policy": "compact"},
                "zipped": {"compression.type": "gzip"},
                "small": {"max.message.bytes": "100"},
                "guarded": {"min.insync.replicas": "2"},
            },
        ),
    )
    yield data_path
    data_path.close()


def request(data: Any, topic: str = "clicks", partition: int = 0, **fields: Any) -> ProduceRequest:
    named = TopicProduceData(
        name=topic, topic_id=topic_id(topic), partition_data=[PartitionProduceData(index=partition, records=data)]
    )
    return ProduceRequest(**{"acks": -1, "timeout_ms": 1000, "topic_data": [named], **fields})


async def produce(path: DataPath, data: Any, topic: str = "clicks", *, version: int = NEWEST, **fields: Any) -> Any:
    client_id = fields.pop("client_id", "test")
    response = await path.call(handle_produce, request(data, topic, **fields), version, client_id=client_id)
    return response.responses[0].partition_responses[0]


def resealed(data: bytes, position: int, layout: str, value: int) -> bytes:
    """A batch with one header field changed and its CRC made right again."""
    import crc32c

    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, NEWEST + 1))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_offsets_are_given_in_order(path: DataPath, version: int, acks: int) -> None:
    """P-48: the offset of the first record, and log_start_offset from v5."""
    assert (await produce(path, batch(3), version=version, acks=acks)).base_offset == 0
    result = await produce(path, batch(2), version=version, acks=acks)
    assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, 3, -1)
    assert result.log_start_offset == 0
    log = path.partitions.get("clicks", 0)
    assert log is not None
    assert log.high_watermark == 5


async def test_the_leader_stamps_offset_and_epoch_and_nothing_else(path: DataPath) -> None:
    """P-42; P-41: with compression.type=producer the bytes are stored as sent."""
    await produce(path, batch(1))
    data = batch(2)
    await produce(path, data)
    log = path.partitions.get("clicks", 0)
    assert log is not None
    stored = list(log.log.iter_batches(1))
    assert [b.base_offset for b in stored] == [1]
    assert stored[0].partition_leader_epoch == 0
    raw = log.log.read(1, 1 << 20, 3, at_least_one=True).range
    assert raw is not None
    assert raw.read()[16:] == data[16:]
    raw.release()


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_a_topic_without_a_name_needs_an_entry_too(path: DataPath, version: int, error: ErrorCode) -> None:
    """P-43: with topic ids the name is not known, so that nothing can be refused."""
    path.services = path.services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), False))
    nameless = TopicProduceData(name="", partition_data=[PartitionProduceData(index=0, records=batch())])
    result = await produce(path, b"", version=version, topic_data=[nameless])
    assert result.error_code == error


@pytest.mark.parametrize("acks", [2, -2, 7])
async def test_bad_acks(path: DataPath, acks: int) -> None:
    """P-34."""
    result = await produce(path, batch(), acks=acks)
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert (await produce(path, batch(), "no", acks=acks)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await produce(path, b"", acks=acks)).error_code == ErrorCode.INVALID_RECORD
    old = resealed(batch(codec=4), 16, ">b", 1)
    assert (await produce(path, old, version=6, acks=acks)).error_code == ErrorCode.INVALID_RECORD
    internal = await produce(path, batch(), "__consumer_offsets", acks=acks)
    assert internal.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(("position", "layout", "value"), [(8, ">i", 13), (8, ">i", -5), (16, ">b", 3), (16, ">b", -1)])
async def test_a_batch_with_an_unreadable_head_fails_the_whole_request(
    path: DataPath, position: int, layout: str, value: int
) -> None:
    """As in Kafka, which looks for transactional batches before anything else."""
    damaged = resealed(batch(), position, layout, value)
    partitions = [PartitionProduceData(index=0, records=batch()), PartitionProduceData(index=1, records=damaged)]
    topic = TopicProduceData(topic_id=topic_id("clicks"), partition_data=partitions)
    response = await path.call(handle_produce, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), NEWEST)
    codes = [result.error_code for result in response.responses[0].partition_responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE] * 2


async def test_errors_of_the_log_tell_its_start(path: DataPath) -> None:
    """P-50: but not those that say that the partition is elsewhere, or the batch damaged."""
    gap = batch(1, producer_id=9, producer_epoch=1, base_sequence=0)
    assert (await produce(path, gap)).error_code == ErrorCode.NONE
    later = await produce(path, batch(1, producer_id=9, producer_epoch=1, base_sequence=5))
    assert (later.error_code, later.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    assert (await produce(path, batch(), "no")).log_start_offset == -1


async def test_a_topic_without_partitions_is_not_answered(path: DataPath) -> None:
    empty = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id("clicks"))])
    assert (await path.call(handle_produce, empty, NEWEST)).responses == []


@pytest.mark.parametrize("data", [None, b"", b"short", batch() + batch()], ids=["null", "empty", "short", "two"])
async def test_exactly_one_batch(path: DataPath, data: Any) -> None:
    """P-35."""
    assert (await produce(path, data)).error_code == ErrorCode.INVALID_RECORD


async def test_old_magic(path: DataPath) -> None:
    """P-35: magic 0 and 1 are not accepted for writing."""
    changed = bytearray(batch())
    changed[16] = 1
    assert (await produce(path, bytes(changed))).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [(57, ">i", 0), (57, ">i", 5), (23, ">i", 7), (21, ">h", 0x20)],
    ids=["no records", "count too high", "last offset delta", "control batch"],
)
async def test_inconsistent_batches(path: DataPath, position: int, layout: str, value: int) -> None:
    """P-36."""
    data = resealed(batch(2), position, layout, value)
    assert (await produce(path, data)).error_code == ErrorCode.INVALID_RECORD


async def test_a_base_offset_that_is_not_0(path: DataPath) -> None:
    """P-36."""
    assert (await produce(path, batch(1, base_offset=4))).error_code == ErrorCode.INVALID_RECORD


async def test_a_producer_without_sequence(path: DataPath) -> None:
    """P-36."""
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=-1)
    assert (await produce(path, data)).error_code == ErrorCode.INVALID_RECORD


async def test_a_compacted_topic_needs_keys(path: DataPath) -> None:
    """P-36: with one error per record, which v8 carries."""
    result = await produce(path, batch(2), "compacted")
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [0, 1]
    assert result.error_message
    assert (await produce(path, batch(2, key=b"k"), "compacted")).error_code == 0


async def test_sizes(path: DataPath) -> None:
    """P-37."""
    assert (await produce(path, batch(1, size=200), "small")).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await produce(path, batch(1, size=10), "small")).error_code == ErrorCode.NONE


async def test_a_damaged_batch(path: DataPath) -> None:
    """P-38, and P-43: the good partition of the same request is stored."""
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    both = request(bytes(damaged))
    both.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch()))
    response = await path.call(handle_produce, both, NEWEST)
    assert [result.error_code for result in response.responses[0].partition_responses] == [2, 0]
    assert [result.index for result in response.responses[0].partition_responses] == [0, 1]


async def test_zstd_needs_version_7(path: DataPath) -> None:
    """P-38."""
    data = batch(1, codec=4)
    assert (await produce(path, data, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await produce(path, data, version=7)).error_code == ErrorCode.NONE


async def test_timestamps(path: DataPath) -> None:
    """P-39: an hour and more into the future is refused, and nothing is stored."""
    result = await produce(path, batch(2, timestamp=NOW_MS + 3_600_001))
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert (await produce(path, batch())).base_offset == 0


async def test_log_append_time(path: DataPath) -> None:
    """P-40: attribute, largest timestamp and CRC are made anew; the time is in the answer."""
    result = await produce(path, batch(2, timestamp=5), "stamped")
    assert result.log_append_time_ms == NOW_MS
    log = path.partitions.get("stamped", 0)
    assert log is not None
    (stored,) = log.log.iter_batches(0)
    assert stored.is_log_append_time
    assert stored.max_timestamp == NOW_MS
    stored.verify_crc()


async def test_recompression(path: DataPath) -> None:
    """P-41."""
    await produce(path, batch(50, codec=3), "zipped")
    log = path.partitions.get("zipped", 0)
    assert log is not None
    (stored,) = log.log.iter_batches(0)
    assert stored.compression_codec == 1
    assert [record.value for record in stored.records()] == [
        record.value for record in RecordBatch(batch(50)).records()
    ]


async def test_unknown_partitions(path: DataPath) -> None:
    """P-44: by name 3, by id 100, on another broker 6 with the leader's id in v10 and later."""
    assert (await produce(path, batch(), "missing", version=12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(path, batch(), "missing", version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    result = await path.call(handle_produce, request(batch(), partition=9), 13)
    assert result.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elsewhere = await produce(path, batch(), "elsewhere", version=10)
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert elsewhere.current_leader.leader_id == 2
    assert (await produce(path, batch(), "elsewhere", version=9)).current_leader.leader_id == -1


async def test_records_acks_and_the_topic_are_looked_at_before_the_leader(path: DataPath) -> None:
    """P-376: a client that goes to another broker would be refused there, too."""
    elsewhere = await produce(path, batch(), "elsewhere", acks=5)
    assert (elsewhere.error_code, elsewhere.current_leader.leader_id) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert (await produce(path, b"", "elsewhere")).error_code == ErrorCode.INVALID_RECORD
    internal = await produce(path, batch(), "__transaction_state")
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_internal_topics(path: DataPath) -> None:
    """P-45."""
    refused = await produce(path, batch(1, key=b"k"), "__consumer_offsets")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_too_few_replicas(path: DataPath) -> None:
    """P-46: only acks=all asks for min.insync.replicas."""
    assert (await produce(path, batch(), "guarded")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await produce(path, batch(), "guarded", acks=1)).error_code == ErrorCode.NONE


async def test_acks_0_is_not_answered(path: DataPath) -> None:
    """P-10: nothing on success, and an error closes the connection."""
    assert await path.call(handle_produce, request(batch(), acks=0), NEWEST) is None
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await path.call(handle_produce, request(batch(), partition=9, acks=0), NEWEST)


async def test_every_partition_of_the_request_is_answered(path: DataPath) -> None:
    """P-50."""
    asked = request(batch())
    asked.topic_data[0].partition_data += [PartitionProduceData(index=n, records=batch()) for n in (7, 1)]
    asked.topic_data.append(TopicProduceData(name="missing", partition_data=[PartitionProduceData(records=batch())]))
    response = await path.call(handle_produce, asked, 12)
    assert [(t.name, [p.index for p in t.partition_responses]) for t in response.responses] == [
        ("clicks", [0, 7, 1]),
        ("missing", [0]),
    ]


async def test_heads_that_are_looked_at_one_by_one(path: DataPath) -> None:
    """Behind a transactional batch the heads of others are not read in advance: each has its own answer (P-49)."""
    opened = batch(1, is_transactional=True)
    damaged = [bytes(61), resealed(batch(), 16, ">b", 3), batch() + bytes(30), bytes(12), batch() + batch()[:40]]
    asked = request(opened, "wide", acks=1, transactional_id="")
    asked.topic_data[0].partition_data += [
        PartitionProduceData(index=index, records=data) for index, data in enumerate(damaged, 1)
    ]
    response = await path.call(handle_produce, asked, NEWEST)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes[1:] == [ErrorCode.CORRUPT_MESSAGE] * 4 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_what_is_there_twice(path: DataPath) -> None:
    """Kafka keeps the last batch of a partition that can be taken, and answers each partition once, each topic once;
    a batch that cannot be taken is what the answer is about."""
    asked = request(batch(1))
    asked.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=batch(1)),
        PartitionProduceData(index=0, records=batch(4)),
    ]
    asked.topic_data += request(b"", partition=1).topic_data
    response = await path.call(handle_produce, asked, NEWEST)
    assert [
        [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses] for topic in response.responses
    ] == [[(0, ErrorCode.NONE, 0), (1, ErrorCode.INVALID_RECORD, -1)]]
    ends = [
        partition.log.log_end_offset for partition in map(path.partitions.get, ("clicks",) * 2, (0, 1)) if partition
    ]
    assert ends == [4, 1]
    asked.topic_data = [*request(batch(1), "nowhere").topic_data, *request(batch(2), "nowhere").topic_data]
    asked.acks = 7
    response = await path.call(handle_produce, asked, 12)
    assert [len(topic.partition_responses) for topic in response.responses] == [1]


async def test_a_repeated_batch_gets_its_first_offset(path: DataPath) -> None:
    """P-51, P-52: a duplicate is a success with the original offset, a gap is refused."""

    def sequenced(sequence: int) -> bytes:
        return batch(1, producer_id=9, producer_epoch=0, base_sequence=sequence)

    for sequence in range(6):
        assert (await produce(path, sequenced(sequence))).base_offset == sequence
    assert (await produce(path, sequenced(5))).base_offset == 5
    assert (await produce(path, sequenced(1))).base_offset == 1
    assert (await produce(path, sequenced(0))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await produce(path, sequenced(7))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = batch(1, producer_id=9, producer_epoch=1, base_sequence=0)
    assert (await produce(path, older)).error_code == ErrorCode.NONE
    assert (await produce(path, sequenced(6))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("count", [FEW, FEW + 1])
async def test_the_response_about_many_partitions_is_encoded_in_turns(path: DataPath, count: int) -> None:
    data = [PartitionProduceData(index=index, records=batch(1)) for index in range(count)]
    contexts: list[Any] = []

    async def handle(context: Any, request: ProduceRequest) -> Any:
        contexts.append(context)
        return await handle_produce(context, request)

    topic = TopicProduceData(name="wide", topic_id=topic_id("wide"), partition_data=data)
    await path.call(handle, ProduceRequest(acks=1, topic_data=[topic]), NEWEST)
    assert contexts[0].has_long_response == (count > FEW)


async def test_long_work_on_one_request_lets_others_have_their_turn(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches may decompress to very much each: other clients are served between them."""
    monkeypatch.setattr("pykbroker.handlers.produce.TURN_S", -1.0)
    data = [PartitionProduceData(index=index, records=batch(1)) for index in range(5)]
    topic = TopicProduceData(name="wide", topic_id=topic_id("wide"), partition_data=data)
    many = ProduceRequest(acks=1, topic_data=[topic])
    response, turns = await with_turns(path.call(handle_produce, many, NEWEST))
    assert [p.base_offset for p in response.responses[0].partition_responses] == [0] * 5
    assert turns >= 4  # the first turn and three of five chances; the order of tasks is random
