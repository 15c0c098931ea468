"""Requests of real clients are decoded, encoded again, and mutated (see corpus/README.md)."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.headers import read_request_header
from pykbroker.protocol.messages.produce import ProduceRequest
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.records.errors import RecordError
from pykbroker.requests.api_table import APIS, FLEXIBLE_FROM, camel_case

MUTATIONS = 150
FRAMES = [
    (int(key), int(version), bytes.fromhex(frame))
    for key, version, frame in (
        line.split() for line in (Path(__file__).parent / "corpus" / "requests.txt").read_text().splitlines()
    )
]
IDS = [f"{ApiKey(key).name}-v{version}-{len(frame)}" for key, version, frame in FRAMES]


def request_type(key: int) -> Any:
    name = APIS[key].name
    return getattr(importlib.import_module(f"pykbroker.protocol.messages.{name}"), camel_case(name) + "Request")


def read(frame: bytes) -> tuple[Any, int]:
    """Decodes a frame as dispatch does: the request, and where its body began."""
    header = read_request_header(memoryview(frame), FLEXIBLE_FROM)
    api = APIS.get(header.api_key)
    if api is None or not api.lowest <= header.api_version <= api.highest:
        return None, 0
    body, _ = decode_from(request_type(header.api_key), header.api_version, memoryview(frame), header.body_position)
    return body, header.body_position


def walk_records(request: Any) -> None:
    """Reads the records of a Produce request as a log would; a refusal is an answer."""
    if not isinstance(request, ProduceRequest):
        return
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                for batch in iter_batches(partition.records):
                    batch.verify_crc()
                    list(batch.records())


def survives(frame: bytes) -> bool:
    """True if the frame is decoded, False if it is refused with an error of the protocol; other exceptions pass
    through."""
    try:
        walk_records(read(frame)[0])
    except (DecodeError, RecordError):
        return False
    return True


def test_the_corpus_covers_what_clients_call() -> None:
    assert len({key for key, _, _ in FRAMES}) >= 26
    assert len({(key, version) for key, version, _ in FRAMES}) >= 45


@pytest.mark.parametrize(("key", "version", "frame"), FRAMES, ids=IDS)
def test_a_real_frame_is_read_and_written_the_same(key: int, version: int, frame: bytes) -> None:
    request, position = read(frame)
    assert request is not None
    assert encode(request, version) == frame[position:]
    walk_records(request)


@pytest.mark.parametrize(("key", "version", "frame"), FRAMES, ids=IDS)
def test_mutated_real_frames_are_survived(key: int, version: int, frame: bytes) -> None:
    generator = random.Random(frame)
    for _ in range(MUTATIONS):
        mutated = bytearray(frame)
        for _ in range(generator.choice((1, 1, 2, 8))):
            kind = generator.randrange(4)
            at = generator.randrange(len(mutated)) if mutated else 0
            if kind == 0:
                mutated[at : at + 1] = bytes((generator.choice((0, 1, 127, 128, 255)),))
            elif kind == 1:
                mutated[at:at] = generator.randbytes(generator.randint(1, 4))
            elif kind == 2:
                del mutated[at : at + generator.randint(1, 9)]
            else:
                mutated[at : at + 4] = generator.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
        survives(bytes(mutated))
