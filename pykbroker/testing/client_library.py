"""Calls that LocalClient needs of a Kafka client library, and the values that go in and out.

`client_confluent_kafka` and `client_kafka_python` implement them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pykbroker.named_tuple import NamedTuple
from pykbroker.testing.client_settings import Access

GROUP_ID_NOT_FOUND = 69
COORDINATOR_NOT_READY = frozenset({14, 15, 16})
"""Error codes while the coordinator loads its partition, moves, or has its topic created. They are numbers, so that the
broker's table of codes is not imported into the process of a test."""


class LocalBrokerError(RuntimeError):
    """A broker process, or a call to it, failed.

    The text has the reason, and ends with the broker's log where that helps.
    """


class Position(NamedTuple):
    """Partition and offset of a record."""

    partition: int
    offset: int


class Record(NamedTuple):
    """A record that was read. Headers keep their order, and a name may come twice."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class Reading(NamedTuple):
    """A read of a topic: up to `record_count` records, fewer at the timeout; None for those up to the ends."""

    topic: str
    record_count: int | None
    timeout_s: float
    from_beginning: bool
    isolation_level: str


class NewRecord(NamedTuple):
    """A record to be written; `partition` None leaves the choice to the client library."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


class GroupStates(Protocol):
    """Asks for the state of one group."""

    def __call__(self, timeout_s: float) -> tuple[str, int]:
        """State in lower case, such as "stable", and number of members; ("dead", 0) when there is no such group."""


class ClientLibrary(Protocol):
    """Adapter of a client library. Its failures are LocalBrokerError with the library's text."""

    name: str

    def create_topic(self, access: Access, topic: NewTopic, timeout_s: float) -> None: ...

    def produce(self, access: Access, topic: str, records: Sequence[NewRecord], timeout_s: float) -> list[Position]: ...

    def consume(self, access: Access, reading: Reading) -> list[Record]: ...

    def group_states(self, access: Access, group: str) -> AbstractContextManager[GroupStates]: ...
