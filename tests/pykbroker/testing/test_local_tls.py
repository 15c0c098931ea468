"""LocalBroker and LocalCluster with `tls=True`: their calls by each library, and what clients of their own need."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import pykbroker
from pykbroker.testing import local_client
from pykbroker.testing.local_broker import LocalBrokerError
from pykbroker.testing.local_client import ClientLibrary
from tests.pykbroker.testing.test_local_client import refused

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")
pytest.importorskip("cryptography")

pytestmark = pytest.mark.usefixtures("collect_client_sockets")


@pytest.fixture(scope="module")
def broker() -> Iterator[pykbroker.LocalBroker]:
    with pykbroker.LocalBroker(tls=True, topics=["orders"], config={"ssl.client.auth": "required"}) as started:
        yield started


@pytest.fixture(params=["confluent", "kafka-python"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ClientLibrary:
    from pykbroker.testing.client_confluent_kafka import ConfluentKafka
    from pykbroker.testing.client_kafka_python import KafkaPython

    chosen: ClientLibrary = ConfluentKafka() if request.param == "confluent" else KafkaPython()
    monkeypatch.setattr(local_client, "client_library", lambda: chosen)
    return chosen


def test_calls(broker: pykbroker.LocalBroker, library: ClientLibrary) -> None:
    topic = f"calls-{library.name}"
    broker.create_topic(topic)
    broker.produce(topic, ["a", "b"])
    assert [record.value for record in broker.consume(topic)] == [b"a", b"b"]
    refused(
        lambda timeout_s: broker.wait_for_group("nobody", timeout_s=timeout_s),
        lambda timeout_s: "group nobody is dead with 0 members",
    )


def test_clients_of_their_own(broker: pykbroker.LocalBroker) -> None:
    """The settings as they are; without the client's certificate there is no connection."""
    producer = confluent_kafka.Producer(broker.confluent_settings)
    producer.produce("orders", b"one")
    assert producer.flush(20) == 0
    with closing(kafka.KafkaConsumer(**broker.kafka_python_settings)) as consumer:
        assert consumer.partitions_for_topic("orders") == {0}
    context = ssl.create_default_context(cafile=broker.tls_ca_file)
    assert not is_served(broker, context)
    context.load_cert_chain(broker.tls_client_file)
    assert is_served(broker, context)


def is_served(broker: pykbroker.LocalBroker, context: ssl.SSLContext) -> bool:
    try:
        with (
            socket.create_connection(("localhost", broker.port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(bytes.fromhex("0000001200120000000000010008") + b"liveness")
            return bool(connection.recv(4096))
    except OSError:
        return False


def test_settings_of_java_are_those_of_the_command_line(broker: pykbroker.LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in broker.java_settings.items()))
    command = [sys.executable, "-m", "pykbroker", "topic", "list", "-b", broker.bootstrap_servers]
    done = subprocess.run([*command, "--command-config", str(file)], capture_output=True, text=True, check=False)
    assert "orders" in done.stdout, done.stderr


def test_it_keeps_its_certificates_over_a_restart(broker: pykbroker.LocalBroker) -> None:
    settings, before = broker.confluent_settings, Path(broker.tls_client_file).read_bytes()
    broker.restart()
    assert (broker.confluent_settings, Path(broker.tls_client_file).read_bytes()) == (settings, before)
    broker.produce("orders", "more")


def test_without_tls() -> None:
    with pykbroker.LocalBroker() as broker:
        address = broker.bootstrap_servers
        assert broker.kafka_python_settings == {"bootstrap_servers": address}
        assert broker.confluent_settings == broker.java_settings == {"bootstrap.servers": address}
        with pytest.raises(LocalBrokerError, match="without tls=True"):
            _ = broker.tls_ca_file


def test_listeners_are_in_the_way() -> None:
    settings = {"listeners": "PLAINTEXT://localhost:0"}
    with (
        pytest.raises(LocalBrokerError, match="--tls sets listeners itself"),
        pykbroker.LocalBroker(tls=True, config=settings),
    ):
        pass
    with pytest.raises(ValueError, match="tls=True sets listeners itself"):
        pykbroker.LocalCluster(2, tls=True, config=settings)


def test_a_cluster_with_tls(library: ClientLibrary) -> None:
    """Clients and nodes: a killed node is back in the quorum and serves calls of its own."""
    with pykbroker.LocalCluster(3, tls=True, topics=["t"]) as cluster:
        cluster.produce("t", "a")
        cluster.kill(1)
        cluster.produce("t", "b")
        cluster.start(1)
        assert {record.value for record in cluster.consume("t", 2)} == {b"a", b"b"}
        assert {record.value for record in cluster.node(1).consume("t", 2)} == {b"a", b"b"}
        assert cluster.node(2).tls_ca_file == cluster.tls_ca_file
        assert "PLAINTEXT" not in "".join(cluster.node(number).log for number in cluster.node_ids)
