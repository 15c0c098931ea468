"""`pykbroker group` and the kinds of groups, on any Kafka that has them: list, describe, reset, delete.

The members of share and Streams groups speak the protocol themselves, as no client library in Python has it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.pykbroker.cli_on_brokers.test_group_members import described, member
from tests.support.command_line import Cli
from tests.support.transcripts import Client

Name = Callable[[], str]

LEAVES = -1
RETRIABLE = {14, 15, 16}


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    host, _, port = address.rpartition(":")
    connection = Client(host, int(port))
    yield connection
    connection.close()


def require(client: Client, api: ApiKey) -> None:
    """Skips the test where the broker does not serve the API."""
    answer: Any = client.call(ApiVersionsRequest(), 2)
    if api not in {one.api_key for one in answer.api_keys}:
        pytest.skip(f"this broker does not serve {api.name} yet")


def find_coordinator(client: Client, group: str) -> None:
    """Waits until there is a coordinator; it is the broker that is asked."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer: Any = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        if answer.coordinators[0].error_code == 0:
            return
        time.sleep(0.01)
    pytest.fail("no coordinator")


def beat(client: Client, request: Any, version: int) -> Any:
    """The answer of a heartbeat; one while the coordinator loads is sent again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer: Any = client.call(request, version)
        if answer.error_code not in RETRIABLE:
            assert answer.error_code == 0, answer
            return answer
        time.sleep(0.01)
    pytest.fail("the coordinator does not load")


@pytest.fixture
def topic(cli: Cli, new_name: Name) -> str:
    """Five records in each of three partitions."""
    name = new_name()
    cli.new_topic(name, "-p", "3")
    for partition in range(3):
        cli.ask("produce", name, "-p", str(partition), stdin=b"a\n" * 5)
    return name


def listed(cli: Cli, group_type: str) -> set[str]:
    found = cli.json("group", "list", "--type", group_type)
    assert {item["group_type"].lower() for item in found} <= {group_type}
    return {item["group_id"] for item in found}


def test_groups_are_listed_by_type(cli: Cli, address: str, topic: str, new_name: Name) -> None:
    newer, older = new_name(), new_name()
    with member(address, topic, newer, "new", group_protocol="consumer"), member(address, topic, older, "old"):
        described(cli, newer, members=1, partitions=3)
        described(cli, older, members=1, partitions=3)
        assert newer in listed(cli, "consumer")
        assert older in listed(cli, "classic")
        assert not {newer, older} & listed(cli, "share")
    assert cli.json("group", "describe", newer)["group_state"] == "Empty"
    assert cli.ask("group", "delete", newer, older) == f"deleted group {newer}\ndeleted group {older}\n"
    assert newer not in listed(cli, "consumer")


def test_a_share_group(cli: Cli, client: Client, topic: str, new_name: Name) -> None:
    require(client, ApiKey.SHARE_GROUP_HEARTBEAT)
    group, member_id = new_name(), str(uuid.uuid4())
    find_coordinator(client, group)

    def heartbeat(epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        return beat(client, request, 1)

    epoch = heartbeat(0, [topic]).member_epoch
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        epoch = heartbeat(epoch).member_epoch
        found = cli.json("group", "describe", group)
        if found["members"][0]["partitions"]:
            break
    assert (found["group_type"], found["group_state"], found["protocol"]) == ("share", "Stable", "simple")
    assert [item["member_id"] for item in found["members"]] == [member_id]
    assert found["members"][0]["partitions"] == [{"topic": topic, "partition": number} for number in range(3)]
    assert group in listed(cli, "share")
    assert cli.ask("group", "describe", group).startswith(f"share group {group}: Stable, 1 member\n")
    assert member_id in cli.ask("group", "describe", group, "--members")
    words = ("group", "reset-offsets", group, "--topic", topic, "--to-offset", "2", "--execute")
    assert "1 running members: stop them first" in cli.run(*words)[2]
    heartbeat(LEAVES)
    cli.ask(*words)
    rows = cli.json("group", "describe", group)["partitions"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [(n, 2, 3) for n in range(3)]
    cli.ask("group", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    rows = cli.json("group", "describe", group)["partitions"]
    assert [row["committed"] for row in rows] == [5, 5, 5]
    assert cli.ask("group", "delete", group) == f"deleted group {group}\n"
    assert group not in listed(cli, "share")


def test_a_streams_group(cli: Cli, client: Client, topic: str, new_name: Name) -> None:
    require(client, ApiKey.STREAMS_GROUP_HEARTBEAT)
    group, member_id = new_name(), str(uuid.uuid4())
    find_coordinator(client, group)
    subtopology = Subtopology(subtopology_id="0", source_topics=[topic])
    joining = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        rebalance_timeout_ms=10_000,
        topology=Topology(epoch=1, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=str(uuid.uuid4()),
        client_tags=[],
    )
    epoch, active = beat(client, joining, 0).member_epoch, None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
        if active is not None:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = active, [], []
        answer = beat(client, request, 0)
        epoch = answer.member_epoch
        active = active if answer.active_tasks is None else answer.active_tasks
        if active and active[0].partitions == [0, 1, 2]:
            break
        # The first assignment waits for three seconds (`group.streams.initial.rebalance.delay.ms`).
        time.sleep(0.05)
    found = cli.json("group", "describe", group)
    assert (found["group_type"], found["protocol"]) == ("streams", None)
    (described_member,) = found["members"]
    assert described_member["member_id"] == member_id
    assert described_member["tasks"] == {"active": ["0_0", "0_1", "0_2"], "standby": [], "warmup": []}
    assert [item["partition"] for item in described_member["partitions"]] == [0, 1, 2]
    assert group in listed(cli, "streams")
    assert "0_0, 0_1, 0_2" in cli.ask("group", "describe", group, "--members")
    beat(client, StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=LEAVES), 0)
    cli.ask("group", "reset-offsets", group, "--topic", topic, "--to-offset", "2", "--execute")
    rows = cli.json("group", "describe", group)["partitions"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [(n, 2, 3) for n in range(3)]
    assert cli.ask("group", "delete", group) == f"deleted group {group}\n"
