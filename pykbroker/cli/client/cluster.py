"""Operations of the client commands on a Kafka cluster, with plain values and one kind of error.

The client library is kafka-python. Only this directory, produce.py and consume.py of the command line use it; tests
replace this class by a fake. Values have the shape that `--json` prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from pykbroker.cli.client.acls import ClusterAcls
from pykbroker.cli.client.client_settings import connection_settings, timeout_ms
from pykbroker.cli.client.configs import ClusterConfigs
from pykbroker.cli.client.errors import error_text, explained_errors, prepare_client_library
from pykbroker.cli.client.groups import ClusterGroups
from pykbroker.cli.client.state import ClusterState
from pykbroker.cli.client.transactions import ClusterTransactions
from pykbroker.cli.errors import CliError

_RETRY_S = 0.2
EARLIEST = -2
LATEST = -1


class Cluster(ClusterAcls, ClusterConfigs, ClusterGroups, ClusterState, ClusterTransactions):
    """An open admin connection; use it as a context manager.

    It has the operations on topics; its base classes have the others.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float) -> None:
        """Connects to the cluster.

        Raises:
            CliError: no broker answered within `timeout_s`.
        """
        prepare_client_library()
        from kafka import KafkaAdminClient

        self._deadline = time.monotonic() + timeout_s
        settings = connection_settings(bootstrap_servers, timeout_s)
        with explained_errors(bootstrap_servers):
            self._admin = KafkaAdminClient(request_timeout_ms=timeout_ms(timeout_s), **settings)
        self._bootstrap_servers = bootstrap_servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._admin.close()

    # Topics

    def topics(self) -> list[dict[str, Any]]:
        """Returns every topic: name, topic_id, is_internal, partitions (as `describe_topics`), sorted by name."""
        found = self._ask(lambda: self._admin.describe_topics(None))
        return sorted((_topic(item) for item in found), key=lambda topic: str(topic["name"]))

    def describe_topics(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Returns the named topics, with each partition's leader, replicas and in-sync replicas.

        Raises:
            CliError: one of them does not exist or has an impossible name.
        """
        found = self._ask(lambda: self._admin.describe_topics(list(names)))
        for item in found:
            if item["error_code"]:
                raise CliError(f"topic {item['name']}: {error_text(item['error_code'])}")
        return [_topic(item) for item in found]

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> tuple[int, str]:
        """Creates a topic (-1: the broker's default); returns its error code, 0 when created, and the error message."""
        topic = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": dict(configs)}
        result = self._ask(lambda: self._admin.create_topics({name: topic}, raise_errors=False))
        return _outcome(result["topics"][0])

    def delete_topic(self, name: str) -> tuple[int, str]:
        """Deletes a topic; returns its error code, 0 when deleted, and the error message."""
        result = self._ask(lambda: self._admin.delete_topics([name], raise_errors=False))
        return _outcome(result["topics"][0])

    def create_partitions(self, name: str, count: int) -> tuple[int, str]:
        """Grows a topic to `count` partitions; returns the error code, 0 when done, and the error message."""
        result = self._ask(lambda: self._admin.create_partitions({name: count}, raise_errors=False))
        return _outcome(result.results[0].to_dict())

    def topic_configs(self, names: Iterable[str], *, modified_only: bool) -> dict[str, dict[str, str]]:
        """Returns each topic's settings, all or those that differ from the defaults of Kafka and of the broker."""
        from kafka.admin import ConfigResource

        resources = [ConfigResource("topic", name) for name in names]
        if not resources:
            return {}
        config_filter = "modified" if modified_only else "all"
        found = self._ask(lambda: self._admin.describe_configs(resources, config_filter=config_filter))
        return {
            name: {
                key: "(hidden)" if item["is_sensitive"] else item["value"]
                for key, item in configs.items()
                if not (modified_only and item["config_source"] != "DYNAMIC_TOPIC_CONFIG")
            }
            for name, configs in found.get("topic", {}).items()
        }

    def offsets(self, partitions: Iterable[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int | None]:
        """Returns each partition's offset for `EARLIEST`, `LATEST` or a time in ms (None: no record since then)."""
        from kafka import TopicPartition

        wanted = {TopicPartition(topic, partition): timestamp for topic, partition in partitions}
        if not wanted:
            return {}
        found = self._ask(lambda: self._admin.list_partition_offsets(wanted))
        return {
            (topic_partition.topic, topic_partition.partition): item.offset if item.offset >= 0 else None
            for topic_partition, item in found.items()
        }

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Deletes the records before an offset of each partition, and returns the new log start offsets.

        Raises:
            CliError: a partition was refused; others may have been trimmed.
        """
        from kafka import TopicPartition

        wanted = {TopicPartition(*topic_partition): offset for topic_partition, offset in offsets.items()}
        found = self._ask(lambda: self._admin.delete_records(wanted))
        return {
            (topic_partition.topic, topic_partition.partition): int(item["low_watermark"])
            for topic_partition, item in found.items()
        }

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        # The library's public methods drop fields of some responses, and support fewer values than the protocol has.
        manager = self._admin._manager
        return self._ask(lambda: manager.run(manager.send, request, node_id))

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Runs a request, repeats it on retriable errors until the deadline, and raises errors as CliError."""
        from kafka.errors import RetriableError, UnknownTopicOrPartitionError

        with explained_errors(self._bootstrap_servers):
            while True:
                try:
                    return request()
                except RetriableError as error:
                    is_final = isinstance(error, UnknownTopicOrPartitionError)
                    if is_final or time.monotonic() + _RETRY_S > self._deadline:
                        raise
                time.sleep(_RETRY_S)


def _outcome(item: Mapping[str, Any]) -> tuple[int, str]:
    code = int(item["error_code"])
    return code, str(item.get("error_message") or error_text(code)) if code else ""


def _topic(item: Mapping[str, Any]) -> dict[str, Any]:
    topic_id = item.get("topic_id")
    return {
        "name": item["name"],
        "topic_id": None if topic_id is None else str(topic_id),
        "is_internal": bool(item.get("is_internal")),
        "partitions": [
            {
                "partition": partition["partition_index"],
                "leader": partition["leader_id"],
                "replicas": list(partition["replica_nodes"]),
                "isr": list(partition["isr_nodes"]),
                "offline_replicas": list(partition.get("offline_replicas") or ()),
            }
            for partition in sorted(item["partitions"], key=lambda partition: int(partition["partition_index"]))
        ],
    }
