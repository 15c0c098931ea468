"""A cluster in memory with the operations of `pykbroker.cli.client.cluster.Cluster`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from pykbroker.cli.client.cluster import EARLIEST, LATEST
from pykbroker.cli.errors import CliError
from pykbroker.protocol.topic_partition import TopicPartition


class FakeCluster:
    """Its state is public: tests fill it and read it."""

    def __init__(self) -> None:
        self.partition_counts: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.ranges: dict[TopicPartition, tuple[int, int]] = {}
        self.by_time: dict[TopicPartition, int | None] = {}
        self.commits: dict[str, dict[TopicPartition, int]] = {}
        self.members: dict[str, list[dict[str, Any]]] = {}
        self.leaderless: set[TopicPartition] = set()
        self.connected_to: list[str] = []

    def __call__(self, bootstrap_servers: str, timeout_s: float) -> Self:
        """Stands in for the class: connecting returns this cluster."""
        self.connected_to.append(bootstrap_servers)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ignored: object) -> None:
        return None

    def topics(self) -> list[dict[str, Any]]:
        return [self._topic(name) for name in sorted(self.partition_counts)]

    def describe_topics(self, names: Iterable[str]) -> list[dict[str, Any]]:
        for name in names:
            if name not in self.partition_counts:
                raise CliError(f"topic {name}: does not exist")
        return [self._topic(name) for name in names]

    def _topic(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "topic_id": f"id-of-{name}",
            "is_internal": name.startswith("__"),
            "partitions": [
                {
                    "partition": partition,
                    "leader": -1 if (name, partition) in self.leaderless else 1,
                    "replicas": [1],
                    "isr": [1],
                    "offline_replicas": [],
                }
                for partition in range(self.partition_counts[name])
            ],
        }

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> tuple[int, str]:
        if name in self.partition_counts:
            return 36, f"Topic '{name}' already exists."
        self.partition_counts[name] = 1 if partitions == -1 else partitions
        self.configs[name] = dict(configs)
        return 0, ""

    def delete_topic(self, name: str) -> tuple[int, str]:
        return (0, "") if self.partition_counts.pop(name, None) else (3, "unknown")

    def create_partitions(self, name: str, count: int) -> tuple[int, str]:
        if count <= self.partition_counts[name]:
            return 37, "not an increase"
        self.partition_counts[name] = count
        return 0, ""

    def topic_configs(self, names: Iterable[str], *, modified_only: bool) -> dict[str, dict[str, str]]:
        defaults = {} if modified_only else {"segment.bytes": "1073741824"}
        return {name: {**defaults, **self.configs.get(name, {})} for name in names}

    def alter_configs(self, resource_type: str, name: str, changes: Mapping[str, str], unset: Iterable[str]) -> None:
        assert resource_type == "topic"
        self.configs.setdefault(name, {}).update(changes)
        for key in unset:
            self.configs[name].pop(key, None)

    def offsets(self, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int | None]:
        assert not self.leaderless & set(partitions)
        if timestamp in (EARLIEST, LATEST):
            return {where: self.ranges.get(where, (0, 0))[timestamp == LATEST] for where in partitions}
        return {where: self.by_time.get(where) for where in partitions}

    def groups(self) -> list[dict[str, Any]]:
        keys = sorted({*self.commits, *self.members})
        return [
            {"group_id": key, "protocol_type": "consumer", "group_state": self._state(key), "group_type": "classic"}
            for key in keys
        ]

    def _state(self, group_id: str) -> str:
        if self.members.get(group_id):
            return "Stable"
        return "Empty" if group_id in self.commits else "Dead"

    def describe_group(self, group_id: str) -> dict[str, Any]:
        return {
            "group_id": group_id,
            "group_type": "classic",
            "group_state": self._state(group_id),
            "protocol_type": "consumer",
            "protocol": "range",
            "members": self.members.get(group_id, []),
        }

    def group_offsets(self, group_id: str, group_type: str) -> dict[TopicPartition, int]:
        return dict(self.commits.get(group_id, {}))

    def alter_group_offsets(self, group_id: str, group_type: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.setdefault(group_id, {}).update(offsets)

    def delete_group(self, group_id: str) -> str | None:
        if self.members.get(group_id):
            return "NonEmptyGroupError"
        return None if self.commits.pop(group_id, None) is not None else "GroupIdNotFoundError"
