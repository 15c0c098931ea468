"""The client commands against broker processes: ours, and Apache Kafka where its jars are (`-m java`).

`PYKBROKER_TEST_BOOTSTRAP=host:port` runs the tests against that cluster instead. Each test is one for any Kafka: it
knows of the broker only that anonymous users may do everything and that there is an authorizer.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from pykbroker.testing.local_broker import LocalBroker
from tests.support.apache_kafka import apache_kafka
from tests.support.command_line import Cli

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="package", params=["pykbroker", pytest.param("kafka", marks=pytest.mark.java)])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("PYKBROKER_TEST_BOOTSTRAP")
    if given:
        yield given
    elif request.param == "pykbroker":
        with LocalBroker(config=dict(SETTINGS)) as broker:
            yield broker.bootstrap_servers
    else:
        folder = tmp_path_factory.mktemp("kafka")
        more = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
        with apache_kafka(folder, folder / "data", is_new=True, **more) as bootstrap_servers:
            yield bootstrap_servers


@pytest.fixture
def cli(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(address, capsys, monkeypatch)


@pytest.fixture
def new_name() -> Callable[[], str]:
    return lambda: f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _sockets(collect_client_sockets: None) -> None:
    """The commands run in this process, by kafka-python."""
