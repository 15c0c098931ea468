"""Three nodes with TLS between brokers and on the controllers' ports; each checks the certificates of the others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from interop_tests.certificates import Authority
from interop_tests.clients import Message, create_topic, kafka_python_produce, wait_until
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster
from interop_tests.ports import free_ports

pytestmark = [pytest.mark.area("security"), pytest.mark.own_broker, pytest.mark.client("confluent-kafka")]

if shutil.which("openssl") is None:
    pytest.skip("needs the command line of OpenSSL", allow_module_level=True)

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("cluster-certificates"))


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster, authority: Authority) -> Cluster:
    def prepare(cluster: Cluster) -> None:
        """Gives each node a listener with TLS for the other brokers, and its own certificate."""
        for (node_id, node), port in zip(cluster.nodes.items(), free_ports(len(cluster.nodes)), strict=True):
            listener = f"INTERNAL://127.0.0.1:{port}"
            key = authority.issue(f"node-{node_id}", hosts="IP:127.0.0.1")
            node.overrides |= {
                "listeners": f"{node.overrides['listeners']},{listener}",
                "advertised.listeners": f"{node.overrides['advertised.listeners']},{listener}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL",
                "inter.broker.listener.name": "INTERNAL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(key),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.certificate),
                "ssl.client.auth": "required",
            }

    return start_cluster("tls", prepare=prepare)


def ports_with_tls(cluster: Cluster, node_id: int) -> list[str]:
    """Addresses of a node's listeners that have TLS."""
    listeners = cluster.nodes[node_id].overrides["listeners"].split(",")
    return [address for name, _, address in (each.partition("://") for each in listeners) if name != "PLAINTEXT"]


def s_client(address: str, authority: Authority, key: Path | None) -> str:
    own = [] if key is None else ["-cert", str(key), "-key", str(key)]
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, "-tls1_2", "-CAfile", str(authority.certificate), *own],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return done.stdout + done.stderr


@pytest.mark.fault("none")
def test_records_are_replicated_and_the_ports_are_closed_to_others(cluster: Cluster, authority: Authority) -> None:
    """Acknowledged by all; the ports of brokers and controllers take a client with a certificate alone."""
    bootstrap = cluster.nodes[1].bootstrap
    topic = create_topic(bootstrap, "replicated", 3, replicas=3, min_insync_replicas="3")
    kafka_python_produce(bootstrap, topic, [Message(None, bytes(n)) for n in (1, 100_000, 500_000)])
    key = authority.issue("someone")
    for node_id in cluster.nodes:
        addresses = ports_with_tls(cluster, node_id)
        assert len(addresses) == 2
        for address in addresses:
            assert "alert" in s_client(address, authority, None)
            assert "Verify return code: 0 (ok)" in s_client(address, authority, key)


@pytest.mark.fault("kill -9")
def test_a_killed_node_comes_back(cluster: Cluster) -> None:
    """Its connections with TLS are made anew, and it catches up."""
    bootstrap = cluster.nodes[1].bootstrap
    topic = create_topic(bootstrap, "caught-up", 3, replicas=3)
    cluster.nodes[3].kill()
    kafka_python_produce(bootstrap, topic, [Message(None, bytes(1000)) for _ in range(1000)])
    cluster.nodes[3].start()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})

    def is_whole() -> bool:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions.values()
        return all(len(partition.isrs) == 3 for partition in partitions)

    wait_until(is_whole, "all replicas to be in sync", timeout_s=60)
    consumer.close()
