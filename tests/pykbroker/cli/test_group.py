from __future__ import annotations

import json

import pytest

from tests.pykbroker.cli.conftest import Run
from tests.pykbroker.cli.fake_cluster import FakeCluster

MEMBER = {
    "member_id": "m-1",
    "group_instance_id": None,
    "client_id": "c",
    "client_host": "/127.0.0.1",
    "partitions": [{"topic": "t", "partition": 1}],
}


@pytest.fixture
def group(cluster: FakeCluster) -> FakeCluster:
    """Topic t with offsets 10..100 and 0..50; group g has committed 40 in the first partition."""
    cluster.partition_counts["t"] = 2
    cluster.ranges = {("t", 0): (10, 100), ("t", 1): (0, 50)}
    cluster.commits["g"] = {("t", 0): 40}
    return cluster


def test_list(run: Run, group: FakeCluster) -> None:
    assert json.loads(run("group", "list", "--json")[1])[0]["group_state"] == "Empty"
    assert "classic" in run("group", "list")[1]


def test_list_of_nothing(run: Run, cluster: FakeCluster) -> None:
    assert run("group", "list")[:2] == (0, "no groups\n")


def test_describe_shows_lag_and_partitions_without_a_commit(run: Run, group: FakeCluster) -> None:
    group.members["g"] = [MEMBER]
    code, output, _ = run("group", "describe", "g", "--json")
    assert code == 0
    first, second = json.loads(output)["partitions"]
    assert (first["committed"], first["end_offset"], first["lag"], first["member_id"]) == (40, 100, 60, None)
    assert (second["committed"], second["lag"], second["member_id"]) == (None, None, "m-1")
    assert "m-1" in run("group", "describe", "g", "--members")[1]


def test_describe_a_group_with_commits_for_a_deleted_topic(run: Run, group: FakeCluster) -> None:
    group.commits["g"]["gone", 0] = 7
    [row] = [
        part for part in json.loads(run("group", "describe", "g", "--json")[1])["partitions"] if part["topic"] == "gone"
    ]
    assert (row["committed"], row["end_offset"], row["lag"]) == (7, None, None)


def test_describe_what_is_not_there(run: Run, cluster: FakeCluster) -> None:
    code, _, errors = run("group", "describe", "nope")
    assert (code, errors) == (1, "pykbroker: group nope does not exist\n")


def new_offsets(run: Run, *words: str) -> dict[int, int]:
    code, output, _ = run("group", "reset-offsets", "g", "--json", *words)
    assert code == 0
    return {row["partition"]: row["new_offset"] for row in json.loads(output)["partitions"]}


def test_reset_shows_only_and_executes_on_demand(run: Run, group: FakeCluster) -> None:
    assert new_offsets(run, "--all-topics", "--to-earliest") == {0: 10}
    assert group.commits["g"] == {("t", 0): 40}
    code, _, errors = run("group", "reset-offsets", "g", "--all-topics", "--to-earliest")
    assert (code, errors) == (0, "nothing was changed: add --execute to do it\n")
    assert new_offsets(run, "--all-topics", "--to-earliest", "--execute") == {0: 10}
    assert group.commits["g"] == {("t", 0): 10}


def test_reset_targets(run: Run, group: FakeCluster) -> None:
    group.by_time = {("t", 0): 77, ("t", 1): None}
    assert new_offsets(run, "-t", "t", "--to-latest") == {0: 100, 1: 50}
    assert new_offsets(run, "-t", "t:1", "--to-latest") == {1: 50}
    assert new_offsets(run, "-t", "t", "--to-offset", "60") == {0: 60, 1: 50}, "kept within what there is"
    assert new_offsets(run, "-t", "t", "--to-offset", "3") == {0: 10, 1: 3}
    assert new_offsets(run, "-t", "t", "--to-timestamp", "5") == {0: 77, 1: 50}, "nothing so late: the end"
    assert new_offsets(run, "-t", "t:0", "--shift-by", "-5") == {0: 35}
    assert new_offsets(run, "-t", "t:0", "--shift-by", "1000") == {0: 100}
    assert new_offsets(run, "-t", "t:1", "--shift-by", "5") == {1: 50}, "nothing to shift from: the end"


@pytest.mark.parametrize(
    "words",
    [
        ("--all-topics",),
        ("--to-latest",),
        ("--all-topics", "-t", "t", "--to-latest"),
        ("--all-topics", "--to-latest", "--to-earliest"),
        ("-t", "t:x", "--to-latest"),
        ("--all-topics", "--to-timestamp", "yesterday"),
    ],
)
def test_reset_wants_one_target_and_one_scope(run: Run, group: FakeCluster, words: tuple[str, ...]) -> None:
    assert run("group", "reset-offsets", "g", *words)[0] == 2


def test_reset_refuses_a_group_at_work(run: Run, group: FakeCluster) -> None:
    group.members["g"] = [MEMBER]
    code, _, errors = run("group", "reset-offsets", "g", "--all-topics", "--to-latest", "--execute")
    assert (code, errors) == (1, "pykbroker: group g has 1 running members: stop them first\n")


def test_reset_of_an_unknown_partition_or_group(run: Run, group: FakeCluster) -> None:
    assert "partitions 0 to 1, not 9" in run("group", "reset-offsets", "g", "-t", "t:9", "--to-latest")[2]
    assert "does not exist" in run("group", "reset-offsets", "nope", "--all-topics", "--to-latest")[2]


def test_delete(run: Run, group: FakeCluster) -> None:
    group.commits["busy"] = {}
    group.members["busy"] = [MEMBER]
    code, output, errors = run("group", "delete", "g", "busy", "nope")
    assert (code, output) == (1, "deleted group g\n")
    assert errors == "pykbroker: not deleted: busy has running members; nope does not exist\n"
