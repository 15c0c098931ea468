"""Transactions: the state of one transactional id as a pure state machine on the coordinator runtime.

    transaction.py    one transactional id: states, epochs, timeouts, under both protocol generations
    states.py         the states, and the fields that a record has for a transactional id
    shard.py          the ids of one partition of `__transaction_state`
    events.py         requests and timeouts, as a shard applies them
    state_log.py      a state as a record of `__transaction_state`, and back
    marker_queue.py   markers that wait to be written, and the outcome of each error of a marker
    coordinator.py    the requests of producers, each an event on a shard; fresh producer ids
    administration.py   DescribeTransactions, ListTransactions
    timeouts.py       aborts transactions that have timed out, deletes transactional ids that have expired
    completion.py     completes decided transactions: writes markers, then the record that completes them
    remote_verification.py   verification of partitions by coordinators on other brokers

All but the last five are synchronous and get the time as an argument.
"""

from __future__ import annotations
