"""Requests of the client commands that a cluster refuses, or answers with nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest
from kafka.errors import ClusterAuthorizationFailedError, CoordinatorNotAvailableError

import pykbroker.cli.cluster
import pykbroker.cli.topic
from pykbroker.cli.client.cluster import Cluster
from pykbroker.cli.client.library_messages import _field
from pykbroker.cli.completion import names
from pykbroker.cli.errors import CliError
from pykbroker.protocol.messages.fetch import FetchRequest
from tests.pykbroker.cli.conftest import Run
from tests.pykbroker.cli.fake_cluster import FakeCluster

Result = SimpleNamespace


class Answering(Cluster):
    """A cluster without a connection, where every request gets one response.

    Attributes: asked: node ids of the requests that were sent to certain brokers.
    """

    def __init__(self, answer: Any = None, **methods: Callable[..., Any]) -> None:
        self._answer = answer
        self._admin = Result(**methods)
        self.asked: list[int | None] = []

    def _ask(self, request: Callable[[], Any]) -> Any:
        return request()

    def _send(self, request: Any, node_id: int | None = None) -> Any:
        self.asked.append(node_id)
        return self._answer

    def _ask_coordinator(self, *_: Any) -> tuple[int, Any]:
        return 1, self._answer


def refused(code: int, message: str | None = None, **fields: Any) -> Any:
    return Result(error_code=code, error_message=message, **fields)


def test_groups_that_are_refused() -> None:
    """The broker's own message if it has one, else the name of its code."""
    cluster = Answering(Result(groups=[refused(30)]))
    cluster.groups = lambda: [{"group_id": "g", "group_type": "share"}]  # type: ignore[method-assign]
    with pytest.raises(CliError, match="group g: GroupAuthorizationFailedError"):
        cluster._describe_modern_group("g")
    cluster.groups = lambda: [{"group_id": "g", "group_type": "Later"}]  # type: ignore[method-assign]
    with pytest.raises(CliError, match="group g is a later group, which cannot be shown"):
        cluster._describe_modern_group("g")
    with pytest.raises(CliError, match="group g: no share"):
        Answering(Result(groups=[refused(42, "no share")])).group_offsets("g", "share")


def test_offsets_that_are_refused() -> None:
    """All partitions are named; those that were accepted are changed."""
    with pytest.raises(CliError, match="group g: The group is not empty"):
        Answering(refused(68, "The group is not empty")).alter_group_offsets("g", "share", {("t", 0): 5})
    partitions = [Result(partition_index=0, error_code=0), refused(3, "no such partition", partition_index=1)]
    answer = refused(0, responses=[Result(topic_name="t", partitions=partitions)])
    with pytest.raises(CliError, match="group g: not reset: t-1: no such partition"):
        Answering(answer).alter_group_offsets("g", "share", {("t", 0): 5, ("t", 1): 5})

    def alter(group_id: str, wanted: dict[Any, Any]) -> dict[Any, Any]:
        return dict.fromkeys(wanted, ClusterAuthorizationFailedError)

    with pytest.raises(CliError, match="group g: not committed: t-0: ClusterAuthorizationFailedError"):
        Answering(alter_group_offsets=alter).alter_group_offsets("g", "classic", {("t", 0): 5})


def test_transactions_that_are_refused() -> None:
    """A broker that is fenced is not asked, as it coordinates nothing."""
    brokers = {"brokers": [{"broker_id": 1, "is_fenced": True}, {"broker_id": 2}]}
    listing = Answering(refused(31), describe_cluster=lambda: brokers)
    with pytest.raises(CliError, match="the broker refused: ClusterAuthorizationFailedError"):
        listing.transactions()
    assert listing.asked == [2]
    with pytest.raises(CliError, match="transactional id x: TransactionalIdAuthorizationFailedError"):
        Answering(Result(transaction_states=[refused(53)])).describe_transaction("x")
    with pytest.raises(CliError, match="transactional id x: TransactionalIdAuthorizationFailedError"):
        Answering(refused(53)).fence_producer("x")


def test_a_quorum_that_is_not_shown() -> None:
    """A quorum that the user may not describe does not make the cluster unhealthy; one without a leader does."""

    def forbid() -> None:
        raise ClusterAuthorizationFailedError

    assert Answering(describe_metadata_quorum=forbid).quorum() is None

    def fail() -> None:
        raise CliError("no leader")

    found = Answering(describe_metadata_quorum=fail).quorum()
    assert found is not None
    assert (found["leader_id"], found["voters"]) == (-1, [])


def test_nothing_is_asked_about_no_topics() -> None:
    cluster = Answering()
    assert cluster.min_in_sync_replicas([]) == {}
    assert cluster.topic_configs([], modified_only=True) == {}
    assert cluster.asked == []


def test_health_is_asked_for_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no broker answers, as when a cluster starts; the last error is that of the command."""
    answers: list[Any] = [CliError("nobody there"), {"is_healthy": False}, {"is_healthy": True}]

    def health_of(_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, CliError):
            raise answer
        return answer

    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", FakeCluster())
    monkeypatch.setattr(pykbroker.cli.cluster, "health_of", health_of)
    monkeypatch.setattr(pykbroker.cli.cluster, "_POLL_S", 0.0)
    code, output, _ = run("cluster", "health", "--wait", "60", "--json")
    assert (code, json.loads(output), answers) == (0, {"is_healthy": True}, [])
    answers.append(CliError("nobody there"))
    code, _, errors = run("cluster", "health")
    assert (code, errors) == (1, "pykbroker: nobody there\n")


def test_a_topic_that_may_not_be_deleted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCluster()
    monkeypatch.setattr(fake, "delete_topic", lambda name: (29, "Authorization failed."))
    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", fake)
    code, _, errors = run("topic", "delete", "t")
    assert (code, errors) == (1, "pykbroker: not deleted: t: Authorization failed.\n")


def test_completion_without_a_cluster_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error would be printed in the middle of the user's command line."""

    def fail(*_: object) -> None:
        raise CliError("nobody there")

    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", fail)
    context = click.Context(click.Command("list"))
    assert names._asking(names._group_ids)(context, click.Option(["--group"]), "") == []


def test_completion_of_other_names() -> None:
    context = click.Context(click.Command("list"))
    cluster: Any = Result(transactions=lambda: [{"transactional_id": "x"}])
    assert names._transactional_ids(cluster, context, "") == ["x"]
    assert names._resource_names(cluster, "client-metrics", context, "") == []


def test_acls_of_a_cluster_without_an_authorizer() -> None:
    """The broker only says that it has none; the command adds the setting."""
    cluster = Answering(Result(filter_results=[refused(54, "No Authorizer is configured.")]))
    with pytest.raises(CliError, match=r"No Authorizer is configured: set authorizer\.class\.name on the brokers"):
        cluster.delete_acls([])


def test_a_coordinator_that_is_not_found() -> None:
    """Its error is raised, so that a retriable one is tried again."""

    class Manager:
        def run(self, send: Any, request: Any, node_id: Any) -> Any:
            assert node_id is None, "nobody else is asked"
            return refused(15, "not yet")

        def send(self) -> None: ...

    cluster = Cluster.__new__(Cluster)
    cluster._admin = Result(_manager=Manager())
    cluster._ask = lambda request: request()  # type: ignore[method-assign]
    with pytest.raises(CoordinatorNotAvailableError, match="not yet"):
        cluster._ask_coordinator(0, "g", None, lambda response: 0)


def test_a_retriable_error_is_tried_again_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], [0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr("pykbroker.cli.client.cluster.time", clock)
    cluster = Cluster.__new__(Cluster)
    cluster._bootstrap_servers, cluster._deadline = "localhost:9092", 1.0

    def ask() -> None:
        asked[0] += 1
        raise CoordinatorNotAvailableError("not yet")

    with pytest.raises(CliError, match="not yet"):
        cluster._ask(ask)
    assert asked[0] > 2
    assert now[0] <= 1.0


def test_definitions_of_tagged_fields_for_the_library() -> None:
    (cluster_id,) = [_field(field) for field in FetchRequest.FIELDS if field.name == "cluster_id"]
    assert (cluster_id["tag"], cluster_id["taggedVersions"]) == (0, "12+")
