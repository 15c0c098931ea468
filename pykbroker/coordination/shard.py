"""The contract between the coordinator runtime and a kind of coordinator: a shard decides, the runtime does the rest.

A shard is the state of one partition of an internal topic. It is pure: no trio, no clock, no log. An operation on it
gives a `CoordinatorResult`; its records are appended by the runtime and take effect in `CoordinatorShard.stored`, when
they are replicated. So memory is never ahead of what a failover can take back.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError

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
        records: appended as one batch, in a form that the shard's `encode` understands.
        response: the client's answer, given when the records are replicated.
        producer: the batch is part of the transaction that this producer has open.
    """

    records: list[Any] = field(default_factory=list)
    response: Any = None
    producer: TransactionalProducer = NO_PRODUCER


LastRecords = dict[bytes, tuple[int, bytes | None]]
"""Offset and value of the last record of each key."""


class LoggedRecords(NamedTuple):
    """Records of a partition's log, undecoded and in the order of the log.

    Attributes:
        last: the records that count.
        pending: by producer id those that an open transaction holds back.
        aborted: those of aborted transactions.
        source: the log's path, for messages to operators.
    """

    last: LastRecords
    pending: dict[int, LastRecords]
    aborted: LastRecords
    source: str

    def decoded(
        self, records: LastRecords, decode: Callable[[bytes, bytes | None], Record | None]
    ) -> Iterator[tuple[Record, int]]:
        """The records that can be read and mean something to the coordinator, each with its offset.

        One bad record must not take all keys of the partition away, so it is skipped, as in Kafka.
        """
        for key, (offset, value) in records.items():
            try:
                record = decode(key, value)
            except ProtocolError as error:
                log.error("%s: the record at offset %d is skipped: %s", self.source, offset, error)
                continue
            if record is not None:
                yield record, offset


class CoordinatorShard(ABC, Generic[Result]):
    """The state of one partition of an internal topic, and what is decided about it.

    Every method is synchronous. Those that give a result may give None for one that is empty.
    """

    # Loading

    @abstractmethod
    def load(self, logged: LoggedRecords, now_ms: int) -> None:
        """Takes over what the log says; called once, before anything else."""

    def loaded(self, now_ms: int) -> Result | None:
        """The shard serves requests from now on: what follows from what was loaded."""

    def unload(self, now_ms: int) -> Result | None:
        """The partition belongs to another broker: its records cannot be appended, replies to who waits can be sent."""

    # Writing

    @abstractmethod
    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record of a result; without a value it is a tombstone."""

    @abstractmethod
    def stored(self, result: Result, error: ErrorCode, now_ms: int, first_offset: int) -> Result | None:
        """The records of a result are replicated, the first one at this offset, and take effect; gives what follows.

        Or they could not be appended, with the client's `error`: then the state must be what it was before.
        """

    def appended(self, result: Result) -> None:
        """The records of a result are in the log and not replicated yet; `replicated` may follow."""

    def replicated(self, result: Result, now_ms: int, first_offset: int) -> Result | None:
        """Let the records of `appended` take effect."""
        return self.stored(result, ErrorCode.NONE, now_ms, first_offset)

    def late(self, result: Result, error: ErrorCode, now_ms: int) -> Result | None:
        """The records of `appended` were not replicated in time; they may be replicated yet."""

    # Time

    def timer_keys(self) -> Iterable[str]:
        """Keys that may have a timer when the shard is loaded."""
        return ()

    def wake_ms(self, key: str) -> int | None:
        """Time of a key's next `expire_due`, in ms since the epoch; None for no timer. Read after each operation."""

    def expire_due(self, key: str, now_ms: int) -> Result | None:
        """Does what is due by now for a key; there may be nothing, if its timer was moved meanwhile."""
