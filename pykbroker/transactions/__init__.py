"""Transactions: the state of one transactional id as a pure state machine on the coordinator runtime.

    transaction.py    one transactional id: states, epochs, timeouts, under both protocol generations
    shard.py          the ids that live in one partition of `__transaction_state`
    state_log.py      a state as a record of `__transaction_state`, and back
    marker_queue.py   markers that wait to be written, and what each way of failing means
    id_pattern.py     regular expressions for ListTransactions that cannot stall the broker
    coordinator.py    the requests, each an event on a shard; fresh producer ids, timeouts, expiry
    completion.py     brings decided transactions to their end: writes markers, then the record that completes them

All but the last two and `remote_verification` is synchronous and is given the time.
"""

from __future__ import annotations
