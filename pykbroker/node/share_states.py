"""GroupShareStates: state of share partitions for the group coordinator. It makes the persister at the first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.groups.modern.errors import GroupError
    from pykbroker.share_state.persister import SharePersister
    from pykbroker.share_state.state import SharePartitionKey

NO_LEADER_EPOCH = -1


class GroupShareStates:
    """The `ShareStates` of the group coordinator.

    Args:
        make_persister: returns the persister.
    """

    def __init__(self, make_persister: Callable[[], SharePersister]) -> None:
        self._make_persister = make_persister

    @cached_property
    def _persister(self) -> SharePersister:
        return self._make_persister()

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
    ) -> GroupError | None:
        """Creates the state of a share partition, or replaces it; returns the error, with a client's text."""
        key = _key(group_id, topic_id, partition)
        refusal = await self._persister.initialize(key, state_epoch, start_offset)
        if refusal is None:
            return None
        from pykbroker.groups.modern.errors import GroupError

        return GroupError(refusal.code, refusal.message)

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        """Deletes the state of a share partition, if there is one."""
        return await self._persister.delete(_key(group_id, topic_id, partition))

    async def read_summary(self, group_id: str, topic_id: bytes, partition: int) -> tuple[int, int, int] | None:
        """Start offset, leader epoch and delivery complete count of a share partition; None if they cannot be read."""
        found = await self._persister.read_summary(_key(group_id, topic_id, partition), NO_LEADER_EPOCH)
        from pykbroker.share_state.state import Refusal

        if isinstance(found, Refusal):
            return None
        return found.start_offset, found.leader_epoch, found.delivery_complete_count


def _key(group_id: str, topic_id: bytes, partition: int) -> SharePartitionKey:
    from pykbroker.share_state.state import SharePartitionKey

    return SharePartitionKey(group_id, topic_id, partition)
