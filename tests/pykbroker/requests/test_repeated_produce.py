"""Produce requests like earlier ones: whatever the bytes, the answer and the log are those of the general path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.network.dispatch import UnfinishedReply, dispatch
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.headers import request_header
from pykbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykbroker.replication.partition import Partition
from pykbroker.requests import repeated_produce
from pykbroker.requests.repeated_produce import RepeatedProduce
from pykbroker.security.connection_info import ConnectionInfo
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image

VERSIONS = (9, 10, 11, 12, 13)
TOPICS = ("clicks", "stamped", "compacted", "zipped", "small", "guarded", "followed", "elsewhere", "__consumer_offsets")


class Side:
    """A broker with one client, served like earlier requests where possible, or always in full."""

    def __init__(self, folder: Path, *, repeats: bool) -> None:
        folder.mkdir()
        self.repeats = repeats
        self.quick = 0
        self.path = DataPath(
            folder,
            cluster_image(
                *(topic_image(name) for name in TOPICS[:5]),
                topic_image("guarded", followers=(2,)),
                topic_image("followed", followers=(2,), isr=(1, 2)),
                topic_image("elsewhere", leader=2),
                topic_image("__consumer_offsets"),
                configs={
                    "stamped": {"message.timestamp.type": "LogAppendTime"},
                    "compacted": {"cleanup.policy": "compact"},
                    "zipped": {"compression.type": "gzip"},
                    "small": {"max.message.bytes": "200"},
                    "guarded": {"min.insync.replicas": "2"},
                },
            ),
        )
        self.connection = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("localhost", 9092), None)

    async def answer(self, frame: bytes) -> object:
        """Bytes of the reply, or what stands in its place; served as by `Connection`."""
        # As in the buffer of a connection, with the next request behind it.
        view = memoryview(bytearray(frame + b"\0\0\0\7"))[: len(frame)]
        try:
            repeated = self.connection.repeated_produce
            chunks: Any = repeated.serve(self.connection, view) if repeated is not None and self.repeats else None
            if chunks is not None:
                self.quick += 1
            else:
                chunks = await dispatch(self.path.services, self.connection, view, may_be_unfinished=True)
        except (CloseConnection, KafkaError, ProtocolError) as error:
            return type(error), str(error)
        if isinstance(chunks, UnfinishedReply):
            return UnfinishedReply
        return None if chunks is None else b"".join(chunks)

    def log_of(self, topic: str) -> bytes:
        path = Path(self.path.directory.path) / f"{topic}-0" / f"{0:020}.log"
        return path.read_bytes() if path.exists() else b""


class Pair:
    """Two brokers with the same requests."""

    def __init__(self, folder: Path) -> None:
        self.quick = Side(folder / "quick", repeats=True)
        self.full = Side(folder / "full", repeats=False)

    async def answer(self, frame: bytes) -> Any:
        """The answer, which is the same from both."""
        quick, full = await self.quick.answer(frame), await self.full.answer(frame)
        assert quick == full, frame
        return quick

    def check_logs(self) -> None:
        for topic in TOPICS:
            assert self.quick.log_of(topic) == self.full.log_of(topic)

    def close(self) -> None:
        self.quick.path.close()
        self.full.path.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    both = Pair(tmp_path)
    yield both
    both.check_logs()
    both.close()


numbers = itertools.count(1)


def frame_of(data: bytes | None, topic: str = "clicks", version: int = 13, acks: int = 1, **fields: Any) -> bytes:
    partition = PartitionProduceData(index=fields.pop("index", 0), records=data)
    named = TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=[partition])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named], **fields)
    client_id = "app"
    return request_header(ApiKey.PRODUCE, version, next(numbers), client_id, True) + encode(request, version)


def error_of(reply: bytes, version: int = 13) -> int:
    return decode(ProduceResponse, version, reply[9:]).responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_and_logs_are_those_of_the_general_path(pair: Pair, version: int) -> None:
    for topic, acks in itertools.product(TOPICS, (1, -1)):
        for number in range(3):
            await pair.answer(frame_of(batch(1 + number, key=b"k"), topic, version, acks))
            await pair.answer(frame_of(batch(1), topic, version, acks))


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_second_of_two_is_served_like_the_first(pair: Pair, version: int) -> None:
    for acks in (1, -1):
        for _ in range(3):
            assert error_of(await pair.answer(frame_of(batch(), "clicks", version, acks)), version) == 0
    assert pair.quick.quick == 4
    assert len(pair.quick.log_of("clicks")) == 6 * len(batch())


async def test_requests_of_other_kinds_are_served_in_full(pair: Pair) -> None:
    for _ in range(3):
        await pair.answer(frame_of(batch(), acks=0))
        await pair.answer(frame_of(batch(), acks=7))
        await pair.answer(frame_of(batch(), "followed", acks=-1))
        await pair.answer(frame_of(batch(), "elsewhere"))
        await pair.answer(frame_of(batch(), "__consumer_offsets"))
        await pair.answer(frame_of(batch(), "__consumer_offsets", version=12))
        await pair.answer(frame_of(batch(), transactional_id="t"))
    assert pair.quick.quick == 0


@pytest.mark.parametrize("version", [9, 13])
async def test_records_of_every_form(pair: Pair, version: int) -> None:
    """P-35 to P-55: what the general path refuses is refused in the same way."""
    good = batch(3)
    old = bytearray(good)
    old[16] = 1
    damaged = bytearray(good)
    damaged[-1] ^= 1
    short = bytearray(good)
    short[8:12] = (20).to_bytes(4, "big")
    first = batch(1, producer_id=5, producer_epoch=0, base_sequence=0)
    forms: list[bytes | None] = [
        *(good, bytes(damaged), bytes(old), bytes(short), good + good, good + good[:30], good[:-1], good[:61]),
        *(good[:60], b"", None, batch(50, size=400), batch(10, size=2000), batch(1, codec=4), batch(2, codec=1)),
        *(batch(1, is_transactional=True, producer_id=9, producer_epoch=0, base_sequence=0), batch(2, timestamp=5)),
        *(first, first, batch(1, producer_id=5, producer_epoch=0, base_sequence=4)),
        *(batch(1, producer_id=5, producer_epoch=-1, base_sequence=1), batch(1, timestamp=NOW_MS + 4_000_000)),
    ]
    for topic in ("clicks", "stamped", "compacted", "zipped", "small"):
        for form in [good, good, *forms, good]:
            await pair.answer(frame_of(form, topic, version))
    assert pair.quick.quick > 5 * len(forms) / 2


@pytest.mark.parametrize("version", [9, 13])
async def test_every_byte_counts(pair: Pair, version: int) -> None:
    """A request with any one byte changed, cut off or longer is served as the general path serves it."""
    await pair.answer(frame_of(batch(), version=version))
    frame = frame_of(batch(), version=version)
    for position in range(2, len(frame)):
        for change in (0x01, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[position] ^= change
            await pair.answer(bytes(changed))
        await pair.answer(frame[:position])
    for end in (b"\0", b"\1\0\0", b"\0\0\0\0", b"\1\5\1x"):
        await pair.answer(frame + end)
        await pair.answer(frame[:-1] + end)
    assert pair.quick.quick > len(batch())


async def test_one_client_with_several_topics(pair: Pair) -> None:
    """Requests for different topics differ in the size of their beginning."""
    for _ in range(3):
        for topic in ("clicks", "compacted", "small"):
            for version in (12, 13):
                await pair.answer(frame_of(batch(key=b"k"), topic, version))
                await pair.answer(frame_of(batch(key=b"k"), topic, version))
    assert pair.quick.quick == 6 * 5


async def test_a_partition_that_is_gone_is_not_found(pair: Pair) -> None:
    for _ in range(2):
        assert error_of(await pair.answer(frame_of(batch()))) == 0
    for side in (pair.quick, pair.full):
        old, new = side.path.services.metadata.image, cluster_image()
        new.delta = delta_between(old, new)
        side.path.partitions.apply(old, new)
        side.path.services.metadata.apply(old, new)
    assert error_of(await pair.answer(frame_of(batch()))) == ErrorCode.UNKNOWN_TOPIC_ID


async def test_quotas_are_for_the_general_path(pair: Pair) -> None:
    for _ in range(2):
        await pair.answer(frame_of(batch()))
    quick, repeated = pair.quick.quick, pair.quick.connection.repeated_produce
    assert repeated is not None
    frame = memoryview(frame_of(batch()))
    quotas: Any = pair.quick.path.services.quotas
    quotas.active = object()
    assert repeated.serve(pair.quick.connection, frame) is None
    quotas.active = None
    assert pair.quick.quick == quick


async def test_an_error_of_ours_is_answered(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        await pair.answer(frame_of(batch()))

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    quick = pair.quick.quick
    monkeypatch.setattr(Partition, "append_as_leader", fail)
    assert error_of(await pair.answer(frame_of(batch()))) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert pair.quick.quick == quick + 1


async def test_kinds_are_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_produce, "KINDS_MAX", 3)
    for timeout_ms in range(10):
        request = frame_of(batch())
        changed = bytearray(request)
        changed[request.index((1000).to_bytes(4, "big")) + 3] = timeout_ms
        await pair.answer(bytes(changed))
        repeated = pair.quick.path.services.repeated_produce
        assert isinstance(repeated, RepeatedProduce)
        assert 1 <= repeated.count <= 3
