"""Groups: pure state machines on the coordinator runtime. The classic protocol is here:

    group.py          one group: states, transitions, timers, heartbeats; `joins`, `syncs`, `leaves` are its requests
    members.py        its members, the leader, the choice of the protocol
    offsets.py        committed offsets of all groups of one partition: fetch, delete, expire
    offset_log.py     groups and offsets as records of `__consumer_offsets`, and back
    shard.py          the groups and offsets of one partition of `__consumer_offsets`
    result.py         the result of an operation on them
    coordinator.py    the requests, each an operation on a shard; parked requests, expiry

Consumer groups (KIP-848) are in `consumer/`, share groups (KIP-932) in `share/`, Streams groups (KIP-1071) in
`streams/`, what these three have in common in `modern/`, and server-side assignors in `assignors/`.

Everything but the coordinator is synchronous and gets the time as an argument: events in, `GroupResult`s out.
"""

from __future__ import annotations
