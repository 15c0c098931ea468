"""Several nodes on one machine: the settings of each."""

from __future__ import annotations

import socket

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.properties_file import parse_properties
from pykbroker.metadata.advertised_listeners import broker_endpoints
from pykbroker.testing.cluster_layout import LayoutError, NodePorts, properties_of_nodes, text_of_properties

PORTS = [NodePorts(9092, 19092, 29092), NodePorts(9093, 19093, 29093), NodePorts(9094, 19094, 29094)]


def test_each_node_has_its_own_ports_and_folder_and_knows_all_voters() -> None:
    nodes = properties_of_nodes({"listeners": "PLAINTEXT://localhost:0"}, PORTS, "/data")
    assert list(nodes) == [1, 2, 3]
    assert nodes[2]["node.id"] == "2"
    assert nodes[2]["log.dirs"] == "/data/node-2"
    assert nodes[2]["listeners"] == "PLAINTEXT://localhost:9093,CONTROLLER://127.0.0.1:19093"
    assert nodes[2]["advertised.listeners"] == "PLAINTEXT://localhost:9093"
    voters = {properties["controller.quorum.voters"] for properties in nodes.values()}
    assert voters == {"1@127.0.0.1:19092,2@127.0.0.1:19093,3@127.0.0.1:19094"}


def test_three_replicas_of_which_two_must_have_it_unless_told_otherwise() -> None:
    (first, *_) = properties_of_nodes({}, PORTS, "/data").values()
    assert (first["default.replication.factor"], first["min.insync.replicas"]) == ("3", "2")
    assert (first["offsets.topic.replication.factor"], first["transaction.state.log.min.isr"]) == ("3", "2")
    (first, *_) = properties_of_nodes({"min.insync.replicas": "1"}, PORTS, "/data").values()
    assert first["min.insync.replicas"] == "1"


def test_no_more_replicas_than_nodes() -> None:
    for count in (1, 2):
        (first, *_) = properties_of_nodes({}, PORTS[:count], "/data").values()
        assert first["default.replication.factor"] == str(count)
        assert first["min.insync.replicas"] == "1"


def test_where_clients_log_in_the_nodes_have_a_listener_of_their_own() -> None:
    base = {"listeners": "CLIENTS://0.0.0.0:1", "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT"}
    base["advertised.listeners"] = "CLIENTS://kafka.example:1"
    node = properties_of_nodes(base, PORTS, "/data")[1]
    assert node["listeners"] == "CLIENTS://0.0.0.0:9092,INTERNAL://127.0.0.1:29092,CONTROLLER://127.0.0.1:19092"
    assert node["advertised.listeners"] == "CLIENTS://kafka.example:9092,INTERNAL://127.0.0.1:29092"
    assert node["listener.security.protocol.map"] == "CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert node["inter.broker.listener.name"] == "INTERNAL"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_on_every_address_the_nodes_tell_the_name_of_their_machine(host: str) -> None:
    """Such a host is left out of advertised.listeners, so that each node inserts the name of its machine."""
    properties = properties_of_nodes({"listeners": f"PLAINTEXT://{host}:0"}, PORTS, "/data")[2]
    assert properties["listeners"].startswith(f"PLAINTEXT://{host}:9093,")
    assert properties["advertised.listeners"] == "PLAINTEXT://:9093"
    (endpoint, *_) = broker_endpoints(BrokerConfig.from_properties(properties), {})
    assert (endpoint.host, endpoint.port) == (socket.gethostname(), 9093)


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ({"node.id": "7"}, "node.id is set for each node"),
        ({"controller.quorum.voters": "1@a:1"}, "controller.quorum.voters is set for each node"),
        ({"listeners": "PLAINTEXT://a:1,OTHER://b:2"}, "each node has one listener"),
        ({"listeners": "localhost:9092"}, "expected NAME://host:port"),
    ],
)
def test_what_cannot_be_asked(base: dict[str, str], text: str) -> None:
    with pytest.raises(LayoutError, match=text):
        properties_of_nodes(base, PORTS, "/data")


def test_written_as_it_is_read() -> None:
    properties = {"a.key": "a value = with : signs", "jaas": 'user_a="b\\c" ;\nnext', "empty": "", "blank": " x"}
    assert parse_properties(text_of_properties(properties)) == properties
