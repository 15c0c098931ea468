"""Scripts of requests, with placeholders for values that only a broker can give and for record batches.

Names that begin with "~" are a script's own: a `World` puts the run's name in the place of the tilde, so that every run
has topics, groups and transactions for itself. `Ref` and `Records` take the place of a value in a request; a `World`
puts in what it knows from its broker's answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykbroker.protocol.fields import Message
from pykbroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, build_batch
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.layout import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE
from pykbroker.protocol.records.record import Record

GUESTS = 10
"""Connections from this number on come from `GUEST_HOST`, the others from `HOST`."""
HOST, GUEST_HOST = "127.0.0.1", "127.0.0.2"

NEXT = None
"""The sequence number that the broker expects next."""


class Ref(NamedTuple):
    """A value that only the broker knows.

    `kind` is one of topic_id, member, generation, producer_id, producer_epoch, session_id, session_epoch; `name` is the
    topic, group or transactional id; `number` counts members or producers in the order in which they became known, from
    the last one if it is negative. Of the kind subscribed, `name` has the topics of a classic consumer's subscription.
    `shift` is added to numbers. What is not known yet is a value that no broker gives out.

    Of a member that chose its id, `name` is group and member ("~g0 m1"): member_epoch, share_epoch (the next one of its
    share session), active_tasks, standby_tasks, assigned (its partitions), and acquired, the batches of records that it
    was given of a partition ("~g0 m1 ~t0 0") with `number` as the type of their acknowledgement, each once. A client of
    metrics has a `number`: client is its instance id, of -1 the one that the broker drew last; subscription is the id
    that it was told.
    """

    kind: str
    name: str = ""
    number: int = 0
    shift: int = 0


class Batch(NamedTuple):
    """One record batch, and what is wrong with it.

    `producer` is the transactional id or, with `producer_index` from 0, the idempotent producer that it comes from;
    `damage` one of `DAMAGES`.
    """

    record_count: int = 1
    value: str | None = "value"
    key: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    timestamp: int = 1_790_000_000_000
    codec: int = 0
    producer: str | None = None
    producer_index: int = -1
    epoch_shift: int = 0
    sequence: int | None = NEXT
    is_transactional: bool = False
    is_control: bool = False
    base_offset: int = 0
    damage: str = ""


class Records(NamedTuple):
    """The value of a `records` field: batches one behind the other, and bytes behind them."""

    batches: tuple[Batch, ...] = (Batch(),)
    tail: bytes = b""


class Step(NamedTuple):
    """A request on one of the script's connections. `damage` is one of `FRAME_DAMAGES`."""

    connection: int
    api: str
    version: int
    request: Message
    damage: str = ""

    def __str__(self) -> str:
        damage = f", {self.damage}" if self.damage else ""
        return f"connection {self.connection}: {self.api} v{self.version}{damage} {shown(self.request)}"


DAMAGES = (
    "crc",
    "count_more",
    "count_less",
    "count_negative",
    "last_offset_delta",
    "magic_0",
    "magic_1",
    "magic_3",
    "length_more",
    "length_less",
    "length_negative",
    "length_tiny",
    "truncated",
    "header_only",
    "codec_unknown",
    "codec_wrong",
    "payload_junk",
    "log_append_time",
    "unused_attribute",
    "delete_horizon",
    "record_offset",
    "max_timestamp",
)
"""Ways to spoil a batch; those that a CRC covers get a right CRC, so that what is behind it is looked at."""

FRAME_DAMAGES = ("truncated", "trailing", "version_high", "version_low", "empty", "api_unknown")


def shown(value: Any) -> str:
    """A message as text, without the fields that have their default."""
    if isinstance(value, Message):
        fields = ((f, getattr(value, f.name)) for f in value.FIELDS)
        said = [
            f"{f.name}={shown(v)}"
            for f, v in fields
            if v != (list(f.default) if f.kind == "array" and f.default is not None else f.default)
        ]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, str) and len(value) > 60:
        return f"{value[:10]!r}... ({len(value)})"
    if isinstance(value, Batch):
        unusual = {k: v for k, v in value._asdict().items() if v != Batch._field_defaults[k]}
        return f"Batch({', '.join(f'{k}={shown(v)}' for k, v in unusual.items())})"
    if isinstance(value, Records):
        return f"Records({', '.join(map(shown, value.batches))}{f', tail={value.tail!r}' if value.tail else ''})"
    return repr(value)


def batch_bytes(
    batch: Batch,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """The batch as it goes over the wire."""
    key, value = _encoded(batch.key), _encoded(batch.value)
    headers = tuple((name, _encoded(content)) for name, content in batch.headers)
    records = [Record(n, batch.timestamp + n, key, value, headers) for n in range(batch.record_count)]
    data = bytearray(
        build_batch(
            records,
            codec=batch.codec,
            base_offset=batch.base_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
        )
    )
    return bytes(_damaged(data, batch.damage)) if batch.damage else bytes(data)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _set(data: bytearray, position: int, size: int, change: Any) -> None:
    old = int.from_bytes(data[position : position + size], "big", signed=True)
    data[position : position + size] = change(old).to_bytes(size, "big", signed=True)


_FIELDS = {
    # damage: (position, size in bytes, what becomes of the number)
    "count_more": (57, 4, lambda n: n + 1),
    "count_less": (57, 4, lambda n: n - 1),
    "count_negative": (57, 4, lambda n: -n),
    "last_offset_delta": (23, 4, lambda n: n + 3),
    "magic_0": (16, 1, lambda n: 0),
    "magic_1": (16, 1, lambda n: 1),
    "magic_3": (16, 1, lambda n: 3),
    "length_more": (8, 4, lambda n: n + 1),
    "length_less": (8, 4, lambda n: n - 1),
    "length_negative": (8, 4, lambda n: -n),
    "length_tiny": (8, 4, lambda n: 10),
    "codec_unknown": (21, 2, lambda n: n | 7),
    "codec_wrong": (21, 2, lambda n: n & ~7 | (1 if n & 7 != 1 else 3)),
    "log_append_time": (21, 2, lambda n: n | 8),
    "unused_attribute": (21, 2, lambda n: n | 0x100),
    "delete_horizon": (21, 2, lambda n: n | 0x40),
    "max_timestamp": (35, 8, lambda n: n + 1000),
}
_UNCOVERED = ("magic_0", "magic_1", "magic_3", "length_more", "length_less", "length_negative", "length_tiny")


def _damaged(data: bytearray, damage: str) -> bytearray:
    if damage in _FIELDS:
        _set(data, *_FIELDS[damage])
    elif damage == "crc":
        _set(data, CRC_POSITION, 4, lambda n: n ^ 1)
        return data
    elif damage == "truncated":
        return data[:-1]
    elif damage == "header_only":
        return data[: HEADER_SIZE - 1]
    elif damage == "payload_junk":
        data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    elif damage == "record_offset":
        # length, attributes, timestamp delta: one byte each in front of the offset delta of the first record
        data[HEADER_SIZE + 3] = 8
    if damage not in _UNCOVERED:
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(bytes(data[ATTRIBUTES_POSITION:])).to_bytes(4, "big")
    return data
