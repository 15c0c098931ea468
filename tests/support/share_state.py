"""A share coordinator for tests in which there is none."""

from __future__ import annotations

from pykbroker.protocol.error_codes import ErrorCode


async def initialize_share_partition(
    group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
) -> ErrorCode:
    """Has initialized every share partition at once."""
    return ErrorCode.NONE
