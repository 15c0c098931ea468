"""Brokers, features and the metadata quorum of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.cli.client.calls import ClusterCalls
from pykbroker.cli.errors import CliError

_TOPIC = 2


class ClusterState(ClusterCalls):
    """The operations behind `pykbroker cluster`."""

    def brokers(self) -> dict[str, Any]:
        """Returns cluster_id, controller_id and brokers: broker_id, host, port, rack, is_fenced, sorted by id.

        A cluster older than Apache Kafka 4 does not list fenced brokers. A KRaft cluster returns any broker as its
        controller, as each forwards requests to the active controller, whose id `quorum` returns.
        """
        found = self._ask(lambda: self._admin.describe_cluster())
        keys = ("broker_id", "host", "port", "rack")
        brokers = [
            {**{key: item.get(key) for key in keys}, "is_fenced": bool(item.get("is_fenced"))}
            for item in found["brokers"]
        ]
        return {
            "cluster_id": found["cluster_id"],
            "controller_id": found["controller_id"],
            "brokers": sorted(brokers, key=lambda broker: int(broker["broker_id"])),
        }

    def features(self) -> dict[str, int]:
        """Returns the finalized level of each feature, such as metadata.version."""
        found = self._ask(lambda: self._admin.describe_features())
        return {name: item["finalized"][1] for name, item in sorted(found.items()) if "finalized" in item}

    def quorum(self) -> dict[str, Any] | None:
        """Returns the metadata quorum; None if the cluster uses ZooKeeper or this user may not describe the quorum.

        It has leader_id, leader_epoch, high_watermark, voters and observers. Each node has its id, its lag behind the
        leader in records, and the time in ms, by the leader's clock, since it was last caught up (None: unknown). A
        quorum without a leader has the leader_id -1 and no nodes, as only a leader describes them.
        """
        from kafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion, UnsupportedVersionError

        def request() -> Any:
            try:
                return self._admin.describe_metadata_quorum()
            except (ClusterAuthorizationFailedError, IncompatibleBrokerVersion, UnsupportedVersionError):
                return None

        try:
            found = self._ask(request)
        except CliError:
            return {"leader_id": -1, "leader_epoch": -1, "high_watermark": -1, "voters": [], "observers": []}
        if found is None:
            return None
        state = found["topics"][0]["partitions"][0]
        voters, observers = state["current_voters"], state["observers"]
        leader = next((item for item in voters if item["replica_id"] == state["leader_id"]), None)
        return {
            "leader_id": state["leader_id"],
            "leader_epoch": state["leader_epoch"],
            "high_watermark": state["high_watermark"],
            "voters": [_quorum_node(item, leader) for item in voters],
            "observers": [_quorum_node(item, leader) for item in observers],
        }

    def min_in_sync_replicas(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns min.insync.replicas of each topic; a topic that was deleted meanwhile, or is refused, is left out."""
        from kafka.protocol.admin import DescribeConfigsRequest

        wanted = [(_TOPIC, name, ["min.insync.replicas"]) for name in topics]
        if not wanted:
            return {}
        response = self._send(DescribeConfigsRequest(resources=wanted, min_version=0))
        return {
            item.resource_name: int(item.configs[0].value)
            for item in response.results
            if not item.error_code and item.configs
        }


def _quorum_node(item: dict[str, Any], leader: dict[str, Any] | None) -> dict[str, Any]:
    end, leader_end = int(item["log_end_offset"]), -1 if leader is None else int(leader["log_end_offset"])
    caught_up, now = (int((node or {}).get("last_caught_up_timestamp", -1)) for node in (item, leader))
    return {
        "node_id": item["replica_id"],
        "lag": leader_end - end if end >= 0 and leader_end >= 0 else None,
        "caught_up_ms_ago": max(0, now - caught_up) if caught_up >= 0 and now >= 0 else None,
    }
