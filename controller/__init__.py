"""The metadata quorum: what the cluster is, agreed by Raft and kept as Kafka's own metadata records.

raft/       pure: how the voters agree on a log (KRaft's rules); knows nothing of topics
metadata/   pure: metadata records, the immutable cluster image, commands that turn wishes into records
raft_storage.py   what a replica keeps on disk: the log, quorum_state_file.py, snapshot_file.py
settings.py   what a node is told once
node.py     the only trio file: drives the two pure parts with timers, disk and peers

raft and metadata do not know each other; node.py joins them.
"""
