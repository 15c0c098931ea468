"""The coordinator runtime: one internal topic, a shard of state for each of its partitions.

shard.py              the contract: a kind of coordinator is a pure `CoordinatorShard` and its results
runtime.py            finds the shard of a key, carries out what its operations come to, runs its timers
loaded_shards.py      which shards are here: loaded and unloaded as leaders change
loader.py             reads a partition of the topic
partition_writer.py   appends to it, and what a client is told of a failure
replication_queue.py  what is appended and not replicated yet
timer.py, deadlines.py   the time, and who wants to be woken when
internal_topic.py, partitioning.py   the topic itself: its creation, and which partition keeps a key
broker_sender.py      requests to other brokers
"""

from __future__ import annotations
