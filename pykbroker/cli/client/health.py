"""A cluster's health, from responses that any Kafka gives to clients: brokers, partitions, the metadata quorum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.cli.client.cluster import Cluster

VOTER_SILENCE_MS_MAX = 10_000
"""A voter lags if it was not caught up for longer, in ms: five times Kafka's controller.quorum.fetch.timeout.ms."""
_NAMES_MAX = 10


def health_of(cluster: Cluster) -> dict[str, Any]:
    """Asks a cluster and returns its health, as `--json` prints it."""
    found = cluster.brokers()
    topics = cluster.topics()
    quorum = cluster.quorum()
    minima = cluster.min_in_sync_replicas([item["name"] for item in topics])
    return judge(found, topics, minima, quorum)


def judge(
    found: dict[str, Any], topics: list[dict[str, Any]], minima: dict[str, int], quorum: dict[str, Any] | None
) -> dict[str, Any]:
    """Returns the health of a cluster of these brokers, topics, min.insync.replicas by topic, and this quorum.

    A partition at min.insync.replicas counts only if it has lost replicas: one with a single replica is always at its
    minimum.
    """
    alive = {broker["broker_id"] for broker in found["brokers"] if not broker["is_fenced"]}
    fenced = {broker["broker_id"] for broker in found["brokers"] if broker["is_fenced"]}
    lists: dict[str, list[dict[str, Any]]] = {
        "leaderless_partitions": [],
        "under_replicated_partitions": [],
        "under_min_isr_partitions": [],
        "at_min_isr_partitions": [],
        "offline_replicas": [],
    }
    needed: set[int] = set()
    for item in topics:
        minimum = minima.get(item["name"], 1)
        for part in item["partitions"]:
            where = {"topic": item["name"], "partition": part["partition"]}
            in_sync, count = len(part["isr"]), len(part["replicas"])
            needed.update(part["replicas"])
            if part["leader"] < 0:
                lists["leaderless_partitions"].append(where)
            if in_sync < count:
                lists["under_replicated_partitions"].append(where)
                if in_sync == minimum:
                    lists["at_min_isr_partitions"].append(where)
            if in_sync < minimum:
                lists["under_min_isr_partitions"].append(where)
            lists["offline_replicas"] += [{**where, "broker_id": broker} for broker in part["offline_replicas"]]
    controller_id = quorum["leader_id"] if quorum else found["controller_id"]
    down = sorted(needed - alive - fenced)
    lagging = [node["node_id"] for node in (quorum["voters"] if quorum else []) if _lags(node)]
    return {
        # A partition in at_min_isr_partitions is always in under_replicated_partitions, too.
        "is_healthy": controller_id >= 0 and not (fenced or down or lagging or any(lists.values())),
        "cluster_id": found["cluster_id"],
        "controller_id": controller_id,
        "brokers": sorted(alive),
        "fenced_brokers": sorted(fenced),
        "missing_brokers": down,
        **lists,
        "lagging_voters": lagging,
        "quorum": quorum,
    }


def _lags(voter: dict[str, Any]) -> bool:
    silent_ms = voter["caught_up_ms_ago"]
    return voter["lag"] is None or (silent_ms is not None and silent_ms > VOTER_SILENCE_MS_MAX)


def problems_of(health: dict[str, Any]) -> list[str]:
    """Returns the problems, one line each."""
    lines = []
    if health["controller_id"] < 0:
        lines.append("no controller leads")
    for key, words in (
        ("fenced_brokers", "brokers that are down or fenced"),
        ("missing_brokers", "brokers that have replicas and are not there"),
        ("leaderless_partitions", "partitions without a leader"),
        ("under_min_isr_partitions", "partitions with fewer replicas in sync than min.insync.replicas"),
        ("at_min_isr_partitions", "partitions that lost replicas and have just min.insync.replicas left"),
        ("under_replicated_partitions", "partitions with replicas that are not in sync"),
        ("offline_replicas", "replicas that are offline"),
        ("lagging_voters", "voters of the metadata quorum that do not keep up"),
    ):
        if health[key]:
            lines.append(f"{words}: {len(health[key])} ({_names(health[key])})")
    return lines


def _names(items: Iterable[Any]) -> str:
    names = [_name(item) for item in items]
    return ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")


def _name(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    broker = f" on {item['broker_id']}" if "broker_id" in item else ""
    return f"{item['topic']}-{item['partition']}{broker}"
