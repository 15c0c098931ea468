"""Share partitions whose topic partition this broker leads: records in flight, acknowledgements (KIP-932).

`share_partition.py` decides and is pure; `acquisition.py`, `acknowledgement.py`, `in_flight.py` and
`aborted_records.py` are its parts, with the deadlines of `lock_deadlines.py` and the settings of `settings.py`.
`sessions.py` has the share sessions, pure too. `leader.py` is the shell of one share partition and `registry.py` has
all of them; `lazy.py` makes it when it is first needed. `fetch.py` is one ShareFetch request, `waiters.py` those that
wait.
"""
