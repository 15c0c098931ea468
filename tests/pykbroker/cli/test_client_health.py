"""Reasons for which a cluster is not healthy."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.cli.client.health import judge, problems_of


def brokers(*ids: int, fenced: tuple[int, ...] = ()) -> dict[str, Any]:
    rows = [{"broker_id": item, "is_fenced": item in fenced} for item in (*ids, *fenced)]
    return {"cluster_id": "c", "controller_id": 1, "brokers": rows}


def topic(isr: list[int], *, leader: int = 1, offline: tuple[int, ...] = ()) -> dict[str, Any]:
    part = {"partition": 0, "leader": leader, "replicas": [1, 2, 3], "isr": isr, "offline_replicas": list(offline)}
    return {"name": "t", "partitions": [part]}


def quorum(*voters: tuple[int, int | None, int | None], leader_id: int = 1) -> dict[str, Any]:
    nodes = [{"node_id": node, "lag": lag, "caught_up_ms_ago": silent} for node, lag, silent in voters]
    return {"leader_id": leader_id, "voters": nodes, "observers": []}


ALL = brokers(1, 2, 3)


@pytest.mark.parametrize(
    ("found", "topics", "minimum", "voters", "problems"),
    [
        (ALL, [topic([1, 2, 3])], 2, quorum((1, 0, 0), (2, 3, 500)), []),
        (ALL, [topic([1, 2, 3])], 2, None, []),
        (brokers(1, 2, fenced=(3,)), [], 2, None, ["brokers that are down or fenced: 1 (3)"]),
        (
            brokers(1, 2),
            [topic([1, 2, 3])],
            2,
            None,
            ["brokers that have replicas and are not there: 1 (3)"],
        ),
        (ALL, [topic([1], leader=-1)], 1, None, ["partitions without a leader: 1 (t-0)"]),
        (ALL, [topic([1])], 2, None, ["partitions with fewer replicas in sync than min.insync.replicas: 1 (t-0)"]),
        (
            ALL,
            [topic([1, 2])],
            2,
            None,
            [
                "partitions that lost replicas and have just min.insync.replicas left: 1 (t-0)",
                "partitions with replicas that are not in sync: 1 (t-0)",
            ],
        ),
        (ALL, [topic([1, 2], offline=(3,))], 1, None, ["replicas that are offline: 1 (t-0 on 3)"]),
        (ALL, [], 1, quorum((1, 0, 0), (2, None, None)), ["voters of the metadata quorum that do not keep up: 1 (2)"]),
        (ALL, [], 1, quorum((1, 0, 0), (2, 9, 60_000)), ["voters of the metadata quorum that do not keep up: 1 (2)"]),
        (ALL, [], 1, quorum(leader_id=-1), ["no controller leads"]),
    ],
)
def test_what_is_wrong(
    found: dict[str, Any], topics: list[dict[str, Any]], minimum: int, voters: Any, problems: list[str]
) -> None:
    health = judge(found, topics, {"t": minimum}, voters)
    assert health["is_healthy"] == (not problems)
    assert set(problems) <= set(problems_of(health))
    if not problems:
        assert problems_of(health) == []


def test_a_partition_with_one_replica_is_well_at_its_minimum() -> None:
    part = {"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "offline_replicas": []}
    health = judge(brokers(1), [{"name": "t", "partitions": [part]}], {"t": 1}, None)
    assert health["is_healthy"]
    assert health["at_min_isr_partitions"] == []


def test_many_names_are_cut() -> None:
    topics = [{**topic([1, 2]), "name": f"t{number}"} for number in range(20)]
    [line] = problems_of(judge(ALL, topics, {}, None))
    assert line.endswith(": 20 (t0-0, t1-0, t2-0, t3-0, t4-0, t5-0, t6-0, t7-0, t8-0, t9-0, ...)")
