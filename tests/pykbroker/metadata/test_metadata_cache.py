"""MetadataCache: addresses of brokers from the cluster image."""

from __future__ import annotations

import socket

import pytest

from pykbroker.requests.context import RequestContext
from tests.support.admin import make_context
from tests.support.services import Services


@pytest.mark.parametrize("host", ["localhost", "10.9.9.9", "[fe80::7]"])
def test_a_configured_host_is_told_whatever_was_dialled(host: str) -> None:
    """As Kafka. The dialled host differs from client to client, and from what the other brokers tell."""
    context = make_context(properties={"listeners": f"PLAINTEXT://{host}:9092"}, local=("10.1.2.3", 9092))
    assert _told(context) == (host.strip("[]"), 9092)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_broker_alone_on_every_address_tells_the_dialled_host(host: str) -> None:
    context = make_context(properties={"listeners": f"PLAINTEXT://{host}:9092"}, local=("10.1.2.3", 9092))
    assert _told(context) == ("10.1.2.3", 9092)
    no_host = {"listeners": f"PLAINTEXT://{host}:9092", "advertised.listeners": "PLAINTEXT://:19092"}
    assert _told(make_context(properties=no_host, local=("10.1.2.3", 9092))) == ("10.1.2.3", 19092)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_with_other_brokers_every_address_is_the_name_of_the_machine(host: str) -> None:
    """The others tell it too: a client must not hear two addresses of one broker."""
    properties = {"listeners": f"PLAINTEXT://{host}:9092"}
    context = make_context(properties=properties, broker_ids=(1, 2), local=("10.1.2.3", 9092))
    assert _told(context) == (socket.gethostname(), 9092)
    voters = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@a:9093,2@b:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:9092,CONTROLLER://a:9093",
    }
    first = make_context(properties=voters, local=("10.1.2.3", 9092))
    assert _told(first) == (socket.gethostname(), 9092), "the first of several is not alone"


def _told(context: RequestContext[Services]) -> tuple[str, int]:
    address = context.services.metadata.endpoint(1, context.connection)
    assert address is not None
    return address.host, address.port


def test_advertised_listeners_are_given_per_listener() -> None:
    """P-27: each listener has its own addresses; a broker without the client's listener is not listed."""
    properties = {
        "listeners": "PLAINTEXT://:9092,INNER://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://public.example:19092",
    }
    context = make_context(properties=properties, listener_name="PLAINTEXT")
    (address,) = context.services.metadata.brokers(context.connection)
    assert (address.host, address.port) == ("public.example", 19092)
    hidden = make_context(properties=properties, listener_name="INNER")
    assert hidden.services.metadata.brokers(hidden.connection) == []
