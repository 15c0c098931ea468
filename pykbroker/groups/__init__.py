"""Groups: pure state machines on the coordinator runtime.

    classic/          the classic protocol
    consumer/         consumer groups (KIP-848)
    share/            share groups (KIP-932), as far as they are membership
    streams/          Streams groups (KIP-1071)
    modern/           what the last three, the modern groups, have in common
    assignors/        server-side assignors
    offsets.py        committed offsets of all groups of one partition, and their expiry
    pending_offsets.py   offsets of open transactions
    offset_log.py     groups and offsets as records of `__consumer_offsets`, and back
    shard.py          the groups and offsets of one partition of `__consumer_offsets`: its state, replay and timers
    result.py         the result of an operation on them
    in_flight.py      records that are appended and not replicated yet; committed.py: modern groups without them
    member_requests.py   JoinGroup, SyncGroup, Heartbeat and LeaveGroup on a shard
    modern_writes.py  heartbeats of modern groups on a shard, and what follows from them
    offset_requests.py   OffsetCommit, OffsetFetch and OffsetDelete on a shard
    offset_cleanup.py    deletion of offsets that have expired, or whose topic is deleted
    administration.py    DescribeGroups, ListGroups and DeleteGroups on a shard
    coordinator.py    the requests, each an operation on a shard; parked requests, expiry

Everything but the coordinators is synchronous and gets the time as an argument: events in, `GroupResult`s out.
"""

from __future__ import annotations
