"""Transactions: the state of one transactional id as a pure state machine, and the shell that runs it.

    transaction.py    one transactional id: states, epochs, timeouts, under both protocol generations
    shard.py          the ids that live in one partition of `__transaction_state`; still pure
    state_log.py      a state as a record of `__transaction_state`, and back
    markers.py        writing markers, and what each way of failing means
    id_pattern.py     regular expressions for ListTransactions that cannot stall the broker
    coordinator.py    the trio shell: which partitions are ours, requests, timers, appends, replay
    endings.py        its part that brings decided transactions to their end

Everything but the shell is synchronous and is given the time.
"""

from __future__ import annotations
