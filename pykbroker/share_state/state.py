"""State of a share partition: a start offset, and batches of records with their delivery state and count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.uuids import uuid_to_text

AVAILABLE = 0
ACQUIRED = 1
"""Delivery state of records that a consumer holds; it is not stored."""
ACKNOWLEDGED = 2
ARCHIVED = 4

WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
UNINITIALIZED_START_OFFSET = -1
NO_DELIVERY_COMPLETE_COUNT = -1
NO_EPOCH = -1
"""Leader or state epoch of a request that is not to be checked."""


class SharePartitionKey(NamedTuple):
    """A topic partition as one share group consumes it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds the share coordinator: group:topic id:partition."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets from `first_offset` to `last_offset`, both inclusive, with one delivery state and delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def batches_of(message: Any) -> list[StateBatch]:
    """The batches of a request, a response or a record: its `state_batches`."""
    return [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in message.state_batches
    ]


class PartitionState(NamedTuple):
    """State of a share partition in a response of the share coordinator.

    Attributes:
        start_offset: first offset that may be delivered; -1 before the first fetch has set it.
        batches: records from the start offset on, without those that were never delivered.
        delivery_complete_count: number of records from the start offset on that are acknowledged or archived; -1 if it
            is unknown.
        leader_epoch: greatest leader epoch of the topic partition in the requests so far.
    """

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    leader_epoch: int = 0


class WriteState(NamedTuple):
    """Change of the state of a share partition; epochs of -1 are not checked, a start offset of -1 is not changed."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Refusal(NamedTuple):
    """The error of a request about one share partition; without a message the client gets the code's own text."""

    code: ErrorCode
    message: str | None = None


WriteOutcome: TypeAlias = "Refusal | Callable[[], Awaitable[Refusal | None]] | None"
"""Outcome of a write that has begun: None for success, an error, or a call that waits for either."""
