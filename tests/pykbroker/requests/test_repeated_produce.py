"""Produce requests like earlier ones: whatever the bytes, the answer and the log are those of the general path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.controller.metadata.image import Acl, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.network.dispatch import dispatch
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
from pykbroker.security.connection_info import ConnectionInfo, UnfinishedReply
from pykbroker.security.custom_authorizer import Action, CustomAuthorizer
from pykbroker.security.sasl import SaslSession, State
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image

IN_WAITING = "in waiting"
VERSIONS = (9, 10, 11, 12, 13)
TOPICS = ("clicks", "stamped", "compacted", "zipped", "small", "guarded", "followed", "elsewhere", "__consumer_offsets")


class Side:
    """A broker with one client, served like earlier requests where possible, or always in full."""

    def __init__(self, folder: Path, *, repeats: bool) -> None:
        folder.mkdir()
        self.repeats = repeats
        self.quick = 0
        self.in_waiting: list[UnfinishedReply] = []
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
        if chunks is None or isinstance(chunks, list):
            return None if chunks is None else b"".join(chunks)
        self.in_waiting.append(chunks)
        return IN_WAITING

    async def finish(self) -> list[bytes]:
        """The replies that are in waiting, once they are complete."""
        waited = [b"".join(await reply.finish()) for reply in self.in_waiting]
        self.in_waiting.clear()
        return waited

    def replicate(self, topic: str) -> None:
        """The follower has all records of a topic."""
        partition = self.path.partitions.get(topic, 0)
        assert partition is not None
        partition.on_follower_fetch(partition.follower(2, 0), partition.log.log_end_offset, 0)

    def apply(self, *topics: TopicImage) -> None:
        """The metadata has these topics alone from now on."""
        old, new = self.path.services.metadata.image, cluster_image(*topics)
        new.delta = delta_between(old, new)
        self.path.partitions.apply(old, new)
        self.path.services.metadata.apply(old, new)

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

    async def finish(self) -> list[bytes]:
        """The replies that are in waiting, which are the same from both."""
        quick, full = await self.quick.finish(), await self.full.finish()
        assert quick == full
        return quick

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.quick, self.full

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
    for side in pair.sides:
        side.apply()
    assert error_of(await pair.answer(frame_of(batch()))) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", VERSIONS)
async def test_replies_wait_for_the_in_sync_replicas(pair: Pair, version: int) -> None:
    for _ in range(3):
        assert await pair.answer(frame_of(batch(), "followed", version, acks=-1)) == IN_WAITING
    for side in pair.sides:
        side.replicate("followed")
    assert [error_of(reply, version) for reply in await pair.finish()] == [0, 0, 0]
    assert pair.quick.quick == 2
    for _ in range(2):
        assert await pair.answer(frame_of(batch(), "followed", version, acks=-1)) == IN_WAITING
    assert [error_of(reply, version) for reply in await pair.finish()] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert pair.quick.quick == 4


@pytest.mark.parametrize("version", VERSIONS)
async def test_replies_name_the_leader_that_has_come_meanwhile(pair: Pair, version: int) -> None:
    for _ in range(2):
        await pair.answer(frame_of(batch(), "followed", version, acks=-1))
    for side in pair.sides:
        side.apply(topic_image("followed", leader=2, followers=(1,), isr=(1, 2), leader_epoch=1))
    replies = await pair.finish()
    assert [error_of(reply, version) for reply in replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert pair.quick.quick == 1


async def test_clients_that_have_logged_in(pair: Pair) -> None:
    """P-17: until the session is over, which closes the connection."""
    now_s = [100.0]
    for side in pair.sides:
        side.connection.sasl = SaslSession({}, 1000, lambda: now_s[0])
        side.connection.sasl.state = State.COMPLETE
    for _ in range(3):
        assert error_of(await pair.answer(frame_of(batch()))) == 0
    assert pair.quick.quick == 2
    for side in pair.sides:
        assert side.connection.sasl is not None
        side.connection.sasl._ends_at_s = 101.0
    assert error_of(await pair.answer(frame_of(batch()))) == 0
    now_s[0] = 101.5
    kind, text = await pair.answer(frame_of(batch()))
    assert kind is CloseConnection
    assert "session is over" in text
    assert pair.quick.quick == 3


@pytest.mark.parametrize("state", [s for s in State if s not in (State.COMPLETE, State.RAW_TOKEN)])
async def test_clients_that_log_in(pair: Pair, state: State) -> None:
    for _ in range(2):
        await pair.answer(frame_of(batch()))
    for side in pair.sides:
        side.connection.sasl = SaslSession({}, 1000, lambda: 0.0)
        side.connection.sasl.state = state
    await pair.answer(frame_of(batch()))
    assert pair.quick.quick == 1


@pytest.mark.parametrize("version", [9, 13])
async def test_the_authorizer_is_asked_each_time(pair: Pair, version: int) -> None:
    acls: list[dict[bytes, Acl]] = [{}]
    for side in pair.sides:
        side.path.services.authorizer = StandardAuthorizer(lambda: acls[0], frozenset(), False)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error_of(await pair.answer(frame_of(batch(), version=version)), version) == refused
    write = Acl(2, "clicks", 3, "User:ANONYMOUS", "*", 4, 3)
    acls[0] = {bytes(16): write}
    for _ in range(3):
        assert error_of(await pair.answer(frame_of(batch(), version=version)), version) == 0
    assert pair.quick.quick == 3
    acls[0] = {bytes(16): write._replace(principal="User:other")}
    assert error_of(await pair.answer(frame_of(batch(), version=version)), version) == refused
    assert pair.quick.quick == 3


async def test_an_authorizer_of_the_user_is_asked_once_for_a_request(pair: Pair) -> None:
    asked: list[Action] = []

    class Odd:
        def __init__(self, *_: object) -> None: ...

        def allows(self, action: Action) -> bool:
            asked.append(action)
            return bool(len(asked) % 2)

    for side in pair.sides:
        side.path.services.authorizer = CustomAuthorizer(Odd, {}, dict)
    frames = [frame_of(batch()) for _ in range(4)]
    found = [await pair.quick.answer(frame) for frame in frames]
    assert len(asked) == 4
    assert found == [await pair.full.answer(frame) for frame in frames]
    assert pair.quick.quick == 0


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
        assert 1 <= len(repeated._kinds) <= 3


async def test_headers_with_tagged_fields_are_left_to_the_general_path(pair: Pair) -> None:
    for _ in range(3):
        frame = frame_of(batch())
        # An empty field in place of none, behind key, version, correlation id and client id.
        assert frame[8 + 2 + 3] == 0
        assert error_of(await pair.answer(frame[:13] + b"\1\0\0" + frame[14:])) == 0
    assert pair.quick.quick == 0


async def test_a_size_of_the_records_that_never_ends(pair: Pair) -> None:
    await pair.answer(frame_of(batch(size=200)))
    frame = frame_of(batch(size=200))
    begin = frame.index(batch(size=200))
    assert (await pair.answer(frame[: begin - 2] + b"\xff" * 10 + frame[begin + 8 :]))[0] is not None
    assert pair.quick.quick == 0


async def test_a_partition_that_follows_by_now(pair: Pair) -> None:
    for _ in range(2):
        assert error_of(await pair.answer(frame_of(batch()))) == 0
    for side in pair.sides:
        side.apply(topic_image("clicks", leader=2, leader_epoch=1, followers=(1,), partition_epoch=1))
    assert error_of(await pair.answer(frame_of(batch()))) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert pair.quick.quick == 1
