"""The coordinator runtime: one internal topic, a shard of state for each of its partitions.

shard.py              the contract: a kind of coordinator is a pure `CoordinatorShard` and its results
runtime.py            finds the shard of a key, carries out the results of its operations, runs its timers
loaded_shards.py      the shards of this broker, loaded and unloaded as leaders change
loader.py             reads a partition of the topic
partition_writer.py   appends to it, and maps errors of the append to those for clients
replication_queue.py  records that are appended and not replicated yet
timer.py, deadlines.py   the coordinator's clock, and the deadlines of its keys
internal_topic.py, partitioning.py   the topic itself: its creation, and the partition of a key
coordinator_records.py   the frame of the records: version, key and value
broker_sender.py      requests to other brokers
transaction_marker.py the end of a transaction, as it is sent to partitions
re2_pattern.py        regular expressions of requests
"""

from __future__ import annotations
