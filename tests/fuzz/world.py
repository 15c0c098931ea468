"""Names and ids that exist on the broker under test, for use in frames: fixed names, and ids from its answers."""

from __future__ import annotations

import random
from typing import Any

from pykbroker.protocol.api_keys import ApiKey

TOPICS = ("fuzz-0", "fuzz-1", "fuzz-compacted", "fuzz-append-time", "fuzz-zstd")
TOPIC_CONFIGS: dict[str, dict[str, str]] = {
    "fuzz-compacted": {"cleanup.policy": "compact"},
    "fuzz-append-time": {"message.timestamp.type": "LogAppendTime"},
    "fuzz-zstd": {"compression.type": "zstd"},
}
PARTITIONS = 3
GROUPS = ("fuzz-group-0", "fuzz-group-1", "fuzz-group-2")
TRANSACTIONAL_IDS = ("fuzz-tx-0", "fuzz-tx-1")
KEPT = 8
"""Of each kind of thing learned, so many are remembered."""


class World:
    """Changed by answers, read by whoever makes frames."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.members: list[tuple[str, str, int]] = []  # group, member id, generation
        self.producers: list[tuple[int, int]] = []  # id, epoch
        self.sessions: list[tuple[int, int]] = []  # fetch session id, next epoch

    def learn(self, key: int, request: Any, response: Any) -> None:
        """Takes over what an answer says."""
        if key == ApiKey.METADATA:
            for topic in response.topics or ():
                if topic.name in TOPICS and topic.topic_id != bytes(16):
                    self.topic_ids[topic.name] = topic.topic_id
        elif key == ApiKey.JOIN_GROUP and response.member_id:
            _remember(self.members, (getattr(request, "group_id", ""), response.member_id, response.generation_id))
        elif key == ApiKey.INIT_PRODUCER_ID and response.producer_id >= 0:
            _remember(self.producers, (response.producer_id, response.producer_epoch))
        elif key == ApiKey.FETCH and response.session_id:
            _remember(self.sessions, (response.session_id, getattr(request, "session_epoch", 0) + 1 & 0x7FFFFFFF))


def _remember(kept: list[Any], thing: Any) -> None:
    kept.append(thing)
    del kept[:-KEPT]


def value_for(name: str, kind: str, owner: str, world: World, generator: random.Random) -> Any:
    """A sensible value for a field by its name; None where nothing is known about it.

    `owner` is the name of the message that has the field.
    """
    choose = generator.choice
    if kind == "uuid":
        return choose(list(world.topic_ids.values())) if world.topic_ids and "topic" in name else None
    if kind == "string":
        return _text_for(name, owner, world, generator)
    if kind == "bool":
        return None
    member = choose(world.members) if world.members else ("", "", 0)
    producer = choose(world.producers) if world.producers else (0, 0)
    session = choose(world.sessions) if world.sessions else (0, 0)
    # Little enough is asked for that a huge answer stays an exception, and nobody waits for long.
    table: dict[str, Any] = {
        "acks": choose((-1, 1, 1, 0)),
        "base_sequence": choose((0, 1)),
        "broker_id": None,
        "committed_offset": generator.randrange(100),
        "count": choose((1, 3, 4, 5, 10_000_000)) if generator.random() < 0.2 else 1,
        "current_leader_epoch": choose((-1, 0)),
        "fetch_offset": choose((0, 0, 1, 50, -1)),
        "generation_id": member[2],
        "generation_id_or_member_epoch": member[2],
        "index": generator.randrange(PARTITIONS),
        "isolation_level": choose((0, 1)),
        "key_type": choose((0, 1)),
        "max_bytes": choose((1, 1 << 20, 50 << 20)),
        "max_wait_ms": choose((0, 0, 50)),
        "member_epoch": member[2],
        "min_bytes": choose((0, 1)),
        "num_partitions": choose((1, -1, 2, 0)) if generator.random() < 0.97 else choose((10_000_000, 2**31 - 1)),
        "offset": choose((0, 1, -1)),
        "partition": generator.randrange(PARTITIONS),
        "partition_index": generator.randrange(PARTITIONS),
        "partition_indexes": generator.randrange(PARTITIONS),
        "partition_max_bytes": choose((1, 1 << 20)),
        "partitions": generator.randrange(PARTITIONS),
        "producer_epoch": producer[1],
        "producer_id": producer[0],
        "rebalance_timeout_ms": choose((1, 100, 6000)),
        "replica_id": choose((-1, -1, -1, 1)),
        "replication_factor": choose((1, 1, -1)),
        "resource_type": choose((2, 2, 2, 4, 8, 16, 32)),
        "resource_type_filter": choose((1, 2, 3)),
        "session_epoch": choose((session[1], 0, -1)),
        "session_id": session[0],
        "session_timeout_ms": choose((6000, 10_000)),
        "timeout_ms": choose((0, 100, 1000)),
        "timestamp": choose((-1, -2, -3, -4, 0)),
        "transaction_timeout_ms": choose((1000, 60_000)),
    }
    return table.get(name)


def _text_for(name: str, owner: str, world: World, generator: random.Random) -> str | None:
    choose = generator.choice
    if name in ("topic", "topic_name") or (name in ("name", "topic_names", "topics") and "Topic" in owner):
        return choose(TOPICS) if generator.random() < 0.97 else choose(("__consumer_offsets", "__transaction_state"))
    group, member_id, _ = choose(world.members) if world.members else (GROUPS[0], "", 0)
    table: dict[str, Any] = {
        "coordinator_keys": choose(GROUPS),
        "feature": choose(("metadata.version", "transaction.version", "kraft.version")),
        "group_id": choose((group, *GROUPS)),
        "group_instance_id": choose(("fuzz-instance-0", "fuzz-instance-1")),
        "groups": choose(GROUPS),
        "groups_names": choose(GROUPS),
        "key": choose(GROUPS),
        "log_dir": None,
        "mechanism": choose(("PLAIN", "SCRAM-SHA-256")),
        "member_id": choose((member_id, member_id, "")),
        "name": choose(("range", "roundrobin", "retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes")),
        "protocol_name": "range",
        "protocol_type": "consumer",
        "resource_name": choose((*TOPICS, *GROUPS, "1", "")),
        "transactional_id": choose(TRANSACTIONAL_IDS),
        "transactional_ids": choose(TRANSACTIONAL_IDS),
        "v3_and_below_transactional_id": choose(TRANSACTIONAL_IDS),
        "value": choose(("1", "1000000", "compact", "delete")),
    }
    return table.get(name)
