"""The share coordinator (KIP-932): the state of share partitions, stored in `__share_group_state`.

state.py         values: the key of a share partition, its state and changes of it
batches.py       combination of overlapping state batches
records.py       the records of `__share_group_state`, and back
shard.py         the pure state of one partition of the topic, and the decisions about requests
coordinator.py   the requests, each an operation on a shard
persister.py     access to the coordinator of a share partition, here or on another broker
"""
