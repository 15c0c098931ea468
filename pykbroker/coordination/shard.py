"""The contract between the coordinator runtime and a kind of coordinator: a shard decides, the runtime does the rest.

A shard is the state of one partition of an internal topic. It is pure: no trio, no clock, no log. An operation on it
returns a `CoordinatorResult`; its records are appended by the runtime and take effect in `CoordinatorShard.stored`,
when they are replicated. So they are never visible in memory while a failover can still truncate them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from pykbroker.protocol.records.batch import RecordFrames
    from pykbroker.protocol.steps import Steps

log = logging.getLogger(__name__)

Record = TypeVar("Record")
Result = TypeVar("Result", bound="CoordinatorResult")


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction a batch is written."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = TransactionalProducer(-1, -1)


@dataclass(slots=True)
class CoordinatorResult:
    """Result of an operation on a shard; a kind of coordinator adds fields for its own side effects.

    Attributes:
        records: records for one batch, in the form that the shard's `encode` takes.
        response: response for the client, sent when the records are replicated.
        producer: the producer whose open transaction the batch is part of, or `NO_PRODUCER`.
        frames: the records, encoded for their batch, if that was done beforehand.
        size_min: a number of bytes that the encoded records are larger than, if they may be very large. A batch that
            cannot fit is not even encoded.
    """

    records: list[Any] = field(default_factory=list)
    response: Any = None
    producer: TransactionalProducer = NO_PRODUCER
    frames: RecordFrames | None = None
    size_min: int = 0


LastRecords = dict[bytes, tuple[int, bytes | None]]
"""Offset and value of the last record of each key."""


class LoggedRecords(NamedTuple):
    """Last records of each key in a partition's log, undecoded and in the order of the log.

    Attributes:
        last: records in effect: those outside of transactions and of committed ones.
        pending: records of open transactions, by producer id.
        aborted: records of aborted transactions.
        source: the log's path, for log lines.
        every: key, value and offset of every record outside of transactions, for shards with `replays_every_record`;
            then `last` is empty.
    """

    last: LastRecords
    pending: dict[int, LastRecords]
    aborted: LastRecords
    source: str
    every: Sequence[tuple[bytes, bytes | None, int]] = ()

    def decoded(
        self, records: LastRecords, decode: Callable[[bytes, bytes | None], Record | None]
    ) -> Iterator[tuple[Record, int]]:
        """Decoded records with their offsets, without those for which `decode` returns None.

        A record that cannot be decoded is skipped and logged, as in Kafka: it must not make all keys of the partition
        unavailable.
        """
        return self._decoded(((key, value, offset) for key, (offset, value) in records.items()), decode)

    def decoded_all(self, decode: Callable[[bytes, bytes | None], Record | None]) -> Iterator[tuple[Record, int]]:
        """As `decoded`, for every record."""
        return self._decoded(self.every, decode)

    def _decoded(
        self,
        records: Iterable[tuple[bytes, bytes | None, int]],
        decode: Callable[[bytes, bytes | None], Record | None],
    ) -> Iterator[tuple[Record, int]]:
        for key, value, offset in records:
            try:
                record = decode(key, value)
            except ProtocolError as error:
                log.error("%s: the record at offset %d is skipped: %s", self.source, offset, error)
                continue
            if record is not None:
                yield record, offset


class CoordinatorShard(ABC, Generic[Result]):
    """The state of one partition of an internal topic, and the decisions of its coordinator.

    Every method is synchronous. Those that return a result may return None for an empty one.

    Attributes:
        replays_every_record: True for a kind whose records depend on earlier ones with the same key. False, if the last
            record of each key says everything: then the others are not even decoded.
    """

    replays_every_record: ClassVar[bool] = False

    # Loading

    @abstractmethod
    def load(self, logged: LoggedRecords, now_ms: int) -> Steps[None]:
        """Replays the records of the log, in steps; done once, before any other method is called."""

    def loaded(self, now_ms: int) -> Result | None:
        """Returns what follows from the loaded records; called when the shard begins to serve requests.

        Timers of what was loaded begin here: loading may have taken long, and clients could not be served meanwhile.
        """

    def unload(self, now_ms: int) -> Result | None:
        """Returns replies to waiting requests, as another broker leads the partition; its records are not appended."""

    # Writing

    @abstractmethod
    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record of a result; the value of a tombstone is None."""

    @abstractmethod
    def stored(self, result: Result, error: ErrorCode, now_ms: int, first_offset: int) -> Result | None:
        """Lets the records of a result take effect, the first one of which has this offset; returns what follows.

        With an `error`, the client's, the records were not appended: then the state must be what it was before.
        """

    def appended(self, result: Result, now_ms: int, first_offset: int) -> None:
        """Notes that the records of a result are appended and not replicated yet; `replicated` may follow."""

    def replicated(self, result: Result, now_ms: int, first_offset: int) -> Result | None:
        """Lets the records of `appended` take effect."""
        return self.stored(result, ErrorCode.NONE, now_ms, first_offset)

    def late(self, result: Result, error: ErrorCode, now_ms: int) -> Result | None:
        """Handles records of `appended` that were not replicated in time; `replicated` may still follow."""

    # Time

    def timer_keys(self) -> Iterable[str]:
        """Keys that may have a timer when the shard is loaded."""
        return ()

    def wake_ms(self, key: str) -> int | None:
        """Time of a key's next `expire_due`, in ms since the epoch; None for no timer. Read after each operation."""

    def expire_due(self, key: str, now_ms: int) -> Result | None:
        """Runs the timers of a key that are due; none is, if its deadline was moved later meanwhile."""
