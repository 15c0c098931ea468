"""Preferred read replica of a consumer (KIP-392): one in its own rack. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.replication.partition import Partition


def preferred_read_replica(
    partition: Partition, fetch_offset: int, rack: str, leader_rack: str | None, rack_of: Callable[[int], str | None]
) -> int:
    """Id of the follower that a consumer in `rack` should fetch from; -1 if the leader serves it.

    Only in-sync followers that have the offset are eligible: others would send the consumer back. `rack_of` returns the
    rack of a broker that the consumer can reach, else None.
    """
    leadership = partition.leadership
    if leadership is None or not rack or leader_rack == rack:
        return -1
    best: tuple[int, float, int] | None = None
    for broker_id in leadership.isr:
        follower = leadership.followers.get(broker_id)
        if (
            follower is not None
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and rack_of(broker_id) == rack
        ):
            candidate = (follower.log_end_offset, follower.last_caught_up, broker_id)
            if best is None or candidate > best:
                best = candidate
    return -1 if best is None else best[2]
