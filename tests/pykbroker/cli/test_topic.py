from __future__ import annotations

import json

import pytest

from tests.pykbroker.cli.conftest import Run
from tests.pykbroker.cli.fake_cluster import FakeCluster


def test_create(run: Run, cluster: FakeCluster) -> None:
    code, output, _ = run("topic", "create", "t", "-p", "3", "-c", "retention.ms=5", "-c", "cleanup.policy=compact")
    assert (code, output) == (0, "created topic t\n")
    assert cluster.partition_counts == {"t": 3}
    assert cluster.configs == {"t": {"retention.ms": "5", "cleanup.policy": "compact"}}
    assert cluster.connected_to == ["localhost:9092"]


def test_create_again(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts["t"] = 1
    code, output, errors = run("topic", "create", "t")
    assert (code, output) == (1, "")
    assert errors == "pykbroker: topic t was not created: Topic 't' already exists.\n"
    code, output, _ = run("topic", "create", "t", "--if-not-exists", "--json")
    assert (code, json.loads(output)) == (0, {"name": "t", "created": False})


def test_a_config_without_value_is_wrong_usage(run: Run, cluster: FakeCluster) -> None:
    code, _, errors = run("topic", "create", "t", "-c", "retention.ms")
    assert code == 2
    assert "--config 'retention.ms': expected KEY=VALUE" in errors
    assert cluster.partition_counts == {}


def test_list_leaves_out_internal_topics(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts.update({"b": 2, "a": 1, "__consumer_offsets": 50})
    code, output, _ = run("topic", "list", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(output)] == ["a", "b"]
    code, output, _ = run("topic", "list", "--internal")
    assert code == 0
    assert "__consumer_offsets" in output


def test_list_of_nothing(run: Run, cluster: FakeCluster) -> None:
    assert run("topic", "list")[:2] == (0, "no topics\n")
    assert json.loads(run("topic", "list", "--json")[1]) == []


def test_describe(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts["t"] = 2
    cluster.configs["t"] = {"retention.ms": "5"}
    cluster.ranges = {("t", 0): (3, 10), ("t", 1): (0, 0)}
    code, output, _ = run("topic", "describe", "t", "--json")
    assert code == 0
    [topic] = json.loads(output)
    assert topic["configs"] == {"retention.ms": "5"}
    assert topic["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "offline_replicas": [],
        "start_offset": 3,
        "end_offset": 10,
    }
    code, output, _ = run("topic", "describe", "t", "--all-configs")
    assert code == 0
    assert "segment.bytes=1073741824" in output


def test_describe_a_partition_without_a_leader(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts["t"] = 2
    cluster.leaderless.add(("t", 1))
    code, output, _ = run("topic", "describe", "t", "--json")
    assert code == 0
    assert [part["end_offset"] for part in json.loads(output)[0]["partitions"]] == [0, None]
    assert "none" in run("topic", "describe", "t")[1]


def test_describe_what_is_not_there(run: Run, cluster: FakeCluster) -> None:
    code, _, errors = run("topic", "describe", "nope")
    assert (code, errors) == (1, "pykbroker: topic nope: does not exist\n")


def test_alter(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts["t"] = 1
    cluster.configs["t"] = {"retention.ms": "5"}
    code, _, _ = run("topic", "alter", "t", "-p", "4", "--set", "segment.bytes=9", "--unset", "retention.ms")
    assert code == 0
    assert cluster.partition_counts["t"] == 4
    assert cluster.configs["t"] == {"segment.bytes": "9"}
    code, _, errors = run("topic", "alter", "t", "-p", "2")
    assert (code, errors) == (1, "pykbroker: topic t was not changed: not an increase\n")
    assert run("topic", "alter", "t")[0] == 2


def test_delete(run: Run, cluster: FakeCluster) -> None:
    cluster.partition_counts.update({"a": 1, "b": 1})
    code, output, errors = run("topic", "delete", "a", "nope", "b")
    assert (code, output) == (1, "deleted topic a\ndeleted topic b\n")
    assert errors == "pykbroker: not deleted: nope does not exist\n"
    assert run("topic", "delete", "nope", "--if-exists")[0] == 0


def test_the_cluster_can_come_from_the_environment(
    run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKBROKER_BOOTSTRAP_SERVERS", "kafka.example:9000")
    run("topic", "list")
    run("topic", "list", "-b", "other:1")
    assert cluster.connected_to == ["kafka.example:9000", "other:1"]
