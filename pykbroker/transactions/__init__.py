"""Transactions: the state of one transactional id as a pure state machine, and the shell that runs it.

    transaction.py    one transactional id: states, epochs, timeouts, under both protocol generations
    shard.py          the ids that live in one partition of `__transaction_state`; still pure
    state_log.py      a state as a record of `__transaction_state`, and back
    coordinator.py    the trio shell: which partitions are ours, timers, appends, replay, markers
    markers.py        the markers that are still to be written, per transaction and partition

Everything but the coordinator is synchronous and is given the time.
"""

from __future__ import annotations
