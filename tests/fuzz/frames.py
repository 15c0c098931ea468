"""Frames to send: of real clients and made from the declarations, about things that exist, whole or mutated."""

from __future__ import annotations

import importlib
import random
from functools import cache
from pathlib import Path
from typing import Any

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.errors import DecodeError, EncodeError
from pykbroker.protocol.fields import Field, Message, default_struct
from pykbroker.protocol.headers import read_request_header
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.requests.api_table import APIS, FLEXIBLE_FROM, camel_case
from tests.fuzz.batches import bad_batch, good_batch
from tests.fuzz.mutation import mutated
from tests.fuzz.world import TOPICS, World, value_for
from tests.support.message_strategies import random_message

CORPUS = Path(__file__).resolve().parents[1] / "protocol" / "corpus" / "requests.txt"
LEFT_OUT = {"UNREGISTER_BROKER"}
"""APIs that are left out because a broker that obeys them is lost for the rest of the run."""

MANY_PARTITIONS = 100
MOST_PARTITIONS_MADE = 10_000
"""Of one request; Kafka refuses more."""

MANY_TIMES_MAX = 4
"""So many requests of one `FrameMaker` may ask for many partitions: megabytes each, for as long as they are there."""

GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes.fromhex("16030100c8010000c40303") + bytes(200),
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x00\x00\x00\x01\x00",
    b"\x00\x00\x00\x0a" + b"\xff" * 10,
)


@cache
def real_frames() -> list[bytes]:
    """Requests of stock clients, of the APIs that exist here."""
    frames = [bytes.fromhex(line.split()[2]) for line in CORPUS.read_text().splitlines()]
    return [frame for frame in frames if int.from_bytes(frame[:2], "big") in APIS]


@cache
def request_type(key: int) -> Any:
    api = APIS[key]
    return getattr(importlib.import_module(f"pykbroker.protocol.messages.{api.name}"), camel_case(api.name) + "Request")


@cache
def response_type(key: int) -> Any:
    api = APIS[key]
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    return getattr(module, camel_case(api.name) + "Response")


class FrameMaker:
    """An endless source of frames, the same for the same seed and the same answers."""

    def __init__(self, world: World, generator: random.Random) -> None:
        self._world = world
        self._generator = generator
        self._versions = [
            (key, version)
            for key, api in APIS.items()
            if api.key.name not in LEFT_OUT
            for version in range(api.lowest, api.highest + 1)
        ]
        # How often more than a hundred partitions were asked for.
        self.many_count = 0

    def frame(self) -> bytes:
        """The next frame, without its size."""
        while True:
            frame = self._frame()
            if not asks_for_many_partitions(frame):
                return frame
            if self.many_count < MANY_TIMES_MAX:
                self.many_count += 1
                return frame

    def _frame(self) -> bytes:
        generator = self._generator
        source = generator.random()
        if source < 0.0003:
            frame = self._many_partitions()
        elif source < 0.35:
            frame = self.real_frame()
        elif source < 0.97:
            frame = self._made()
        else:
            frame = generator.randbytes(generator.choice((0, 1, 9, 30, 300)))
        if generator.random() < 0.3 and len(frame) > 10:
            behind_header = 11 + max(0, int.from_bytes(frame[8:10], "big", signed=True))
            frame = mutated(frame, generator, behind_header if generator.random() < 0.9 else 0)
        return frame

    def real_frame(self) -> bytes:
        """A request of a stock client; half of them get names of this run."""
        frame = self._generator.choice(real_frames())
        if self._generator.random() < 0.5:
            return frame
        header = read_request_header(frame, FLEXIBLE_FROM)
        body, _ = decode_from(request_type(header.api_key), header.api_version, frame, header.body_position)
        self._enrich(body, header.api_version)
        return frame[: header.body_position] + encode(body, header.api_version)

    def _made(self) -> bytes:
        generator = self._generator
        key, version = generator.choice(self._versions)
        kind = request_type(key)
        while True:
            request = random_message(kind, version, generator)
            self._enrich(request, version)
            try:
                return self.with_header(key, version, encode(request, version))
            except EncodeError:
                continue

    def _many_partitions(self) -> bytes:
        """A request that makes hundreds or thousands of partitions, of one topic or of many."""
        generator = self._generator
        count = generator.choice((101, 1000, 5000, MOST_PARTITIONS_MADE))
        if generator.random() < 0.3:
            name = generator.choice(TOPICS)
            request: Message = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=1000
            )
            return self.with_header(ApiKey.CREATE_PARTITIONS, 3, encode(request, 3))
        topic_count = generator.choice((1, 1, 3, 100))
        topics = [
            CreatableTopic(name=f"many-{number}", num_partitions=count // topic_count, replication_factor=1)
            for number in range(topic_count)
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000)
        return self.with_header(ApiKey.CREATE_TOPICS, 7, encode(request, 7))

    def with_header(self, key: int, version: int, body: bytes) -> bytes:
        """A frame of an API with the client id ``fuzz``."""
        generator = self._generator
        name = b"\0\4fuzz" if generator.random() < 0.9 else generator.choice((b"\xff\xff", b"\0\0", b"\0\1\xff"))
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + generator.randbytes(4) + name
        if version >= APIS[key].flexible_from:
            frame += b"\0" if generator.random() < 0.97 else b"\x02\x05\x01x\x09\x00"
        return frame + body

    def _enrich(self, message: Any, version: int) -> None:
        """Puts in names and numbers that mean something, for most fields whose names say what they are."""
        owner = type(message).__name__
        for field in message.FIELDS:
            if version not in field.versions:
                continue
            value = getattr(message, field.name)
            if isinstance(value, Message):
                # The default is shared by all messages.
                if value is not default_struct(field.element):
                    self._enrich(value, version)
            elif field.kind == "array" and value:
                setattr(message, field.name, [self._element(field, owner, item, version) for item in value])
            elif field.kind in ("records", "bytes"):
                setattr(message, field.name, self._bytes(field, value))
            elif field.kind != "array" and value is not None and self._generator.random() < 0.85:
                known = value_for(field.name, field.kind, owner, self._world, self._generator)
                if known is not None:
                    setattr(message, field.name, known)

    def _element(self, field: Field, owner: str, item: Any, version: int) -> Any:
        if isinstance(item, Message):
            self._enrich(item, version)
            return item
        if self._generator.random() < 0.15:
            return item
        known = value_for(field.name, field.element.kind, owner, self._world, self._generator)
        return item if known is None else known

    def _bytes(self, field: Field, value: Any) -> Any:
        generator = self._generator
        if field.kind == "records":
            make = good_batch if generator.random() < 0.6 else bad_batch
            return make(generator, self._world.producers)
        if field.name in ("metadata", "assignment") and generator.random() < 0.5:
            return b"\0\0\0\0\0\1\0\6fuzz-0\xff\xff\xff\xff"
        return value


def is_known(frame: bytes) -> tuple[int, int] | None:
    """API key and version of a frame that we advertise; None for others."""
    if len(frame) < 8:
        return None
    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    api = APIS.get(key)
    return (key, version) if api is not None and api.lowest <= version <= api.highest else None


class MutatedRealFrames:
    """A quicker source: frames of real clients, as they were and about things that exist here, nearly all mutated."""

    def __init__(self, world: World, generator: random.Random) -> None:
        self._world = world
        self._generator = generator
        self._pool: list[bytes] = []
        self._left = 0

    def frame(self) -> bytes:
        """The next frame, without its size."""
        if not self._left:
            # What exists changes: names stay and ids do not.
            maker = FrameMaker(self._world, self._generator)
            self._pool, self._left = [maker.real_frame() for _ in range(1000)], 10_000
        self._left -= 1
        while True:
            frame = self._generator.choice(self._pool)
            if self._generator.random() < 0.9:
                frame = mutated(frame, self._generator, 4 if self._generator.random() < 0.9 else 0)
            if not asks_for_many_partitions(frame):
                return frame


def asks_for_many_partitions(frame: bytes) -> bool:
    """True if the broker will, correctly, create more than MANY_PARTITIONS partitions: slow, and megabytes large."""
    known = is_known(frame)
    if known is None or known[0] not in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS):
        return False
    try:
        header = read_request_header(frame, FLEXIBLE_FROM)
        request, _ = decode_from(request_type(known[0]), known[1], frame, header.body_position)
    except DecodeError:
        return False
    counts = [getattr(topic, "num_partitions", 0) or getattr(topic, "count", 0) for topic in request.topics]
    return MANY_PARTITIONS < sum(count for count in counts if count > 0) <= MOST_PARTITIONS_MADE
