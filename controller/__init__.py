"""The metadata quorum: the state of the cluster, replicated by Raft as Kafka's own metadata records.

raft/             pure: agreement of the voters on a log, by KRaft's rules; independent of its content
metadata/         pure: metadata records, the immutable cluster image, commands that are planned into records
raft_storage.py   the files of a replica: the log, quorum_state_file.py, snapshot_file.py
settings.py       settings of a node, fixed at its start
node.py           one node in trio: drives the two pure parts with timers, disk and peers

raft and metadata do not import each other; node.py joins them.
"""
