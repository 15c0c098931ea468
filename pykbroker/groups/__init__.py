"""Consumer groups: the classic protocol as a pure state machine on the coordinator runtime.

    group.py          one group: states, transitions, timers, heartbeats; `joins`, `syncs`, `leaves` are its requests
    members.py        who is in it, who leads, which protocol they agree on
    offsets.py        committed offsets of all groups of one partition: fetch, delete, expire
    offset_log.py     both as records of `__consumer_offsets`, and back
    shard.py          the groups and offsets that live in one partition of `__consumer_offsets`
    result.py         what an operation on them comes to
    coordinator.py    the requests, each an operation on a shard; parked requests, expiry

Everything but the coordinator is synchronous and is given the time. An event goes in, a `GroupResult` comes out.
"""

from __future__ import annotations
