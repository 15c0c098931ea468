"""The state of share partitions in memory, for tests in which there is no share coordinator."""

from __future__ import annotations

from pykbroker.groups.modern.errors import GroupError
from pykbroker.protocol.error_codes import ErrorCode


class MemoryShareStates:
    """The `ShareStates` of a group coordinator.

    Attributes:
        start_offsets: (group id, topic id, partition) -> state epoch and start offset.
        complete_counts: the same key -> number of records that are delivered for good; unknown for others.
        error: given instead of every success, if it is not NONE.
    """

    def __init__(self) -> None:
        self.start_offsets: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        self.complete_counts: dict[tuple[str, bytes, int], int] = {}
        self.error = ErrorCode.NONE

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
    ) -> GroupError | None:
        if self.error is not ErrorCode.NONE:
            return GroupError(self.error, f"Error in initialize state RPC. {self.error.name}")
        self.start_offsets[group_id, topic_id, partition] = state_epoch, start_offset
        return None

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        if self.error is ErrorCode.NONE:
            self.start_offsets.pop((group_id, topic_id, partition), None)
        return self.error

    async def read_summary(self, group_id: str, topic_id: bytes, partition: int) -> tuple[int, int, int] | None:
        if self.error is not ErrorCode.NONE:
            return None
        key = (group_id, topic_id, partition)
        return self.start_offsets.get(key, (0, -1))[1], 0, self.complete_counts.get(key, -1)
