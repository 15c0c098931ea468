"""`pykbroker cluster` on one node of any Kafka."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.command_line import Cli


def test_info(cli: Cli, address: str, new_name: Callable[[], str]) -> None:
    before = cli.json("cluster", "info")
    cli.new_topic(new_name(), "-p", "3")
    found = cli.json("cluster", "info")
    assert len(found["cluster_id"]) == 22
    assert found["controller_id"] == 1
    [broker] = found["brokers"]
    assert f"{broker['host']}:{broker['port']}" in (address, address.replace("localhost", "127.0.0.1"))
    assert (broker["broker_id"], broker["rack"], broker["is_fenced"]) == (1, None, False)
    assert broker["leaders"] == broker["replicas"] == found["partitions"]
    assert (found["topics"], found["partitions"]) == (before["topics"] + 1, before["partitions"] + 3)
    assert found["features"]["metadata.version"] >= 30
    assert found["quorum"]["leader_id"] == 1
    assert [node["node_id"] for node in found["quorum"]["voters"]] == [1]
    shown = cli.ask("cluster", "info")
    assert shown.startswith(f"cluster {found['cluster_id']}  controller 1\n")
    assert f"metadata.version {found['features']['metadata.version']}" in shown


def test_health(cli: Cli, new_name: Callable[[], str]) -> None:
    found = cli.json("cluster", "health", "--wait", "30")
    assert found["is_healthy"]
    assert (found["brokers"], found["fenced_brokers"], found["lagging_voters"]) == ([1], [], [])
    assert ": healthy" in cli.ask("cluster", "health", "--wait", "30")
    # A topic that asks for more replicas than there are.
    topic = new_name()
    cli.new_topic(topic, "-p", "2", "-c", "min.insync.replicas=2")
    code, output, errors = cli.run("cluster", "health")
    assert (code, errors) == (1, "")
    assert "NOT healthy" in output
    assert f"min.insync.replicas: 2 ({topic}-0, {topic}-1)" in output
    cli.ask("topic", "delete", topic)
    assert cli.run("cluster", "health", "--wait", "10")[0] == 0
