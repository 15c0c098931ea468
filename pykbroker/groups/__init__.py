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
    coordinator.py    the shards of one broker on the coordinator runtime; expiry of offsets
    member_requests.py   JoinGroup, SyncGroup, Heartbeat and LeaveGroup; requests that wait for their group
    modern_writes.py  heartbeats of modern groups on a shard, and what follows from them
    offset_commit.py, offset_fetch.py, offset_delete.py   one API each
    offset_cleanup.py    deletion of offsets that have expired, or whose topic is deleted
    administration.py    DescribeGroups, ListGroups and DeleteGroups

A function for a request comes in two parts: one with the coordinator as its first argument, which waits, and one with
a shard as its first argument, which decides.

The second parts, and all that is below them, are synchronous and get the time as an argument: events in,
`GroupResult`s out.
"""

from __future__ import annotations
