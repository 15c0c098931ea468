"""Addresses of registrations: advertised before configured, bound ports for port 0, never one that nobody can dial."""

from __future__ import annotations

import socket

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.metadata.advertised_listeners import broker_endpoints, controller_endpoints, voter_endpoints

NAME = socket.gethostname()
BOTH = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@one.example:9093,2@two.example:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}
EVERY = pytest.mark.parametrize("every", ["", "0.0.0.0", "[::]"])


def read(**properties: str) -> BrokerConfig:
    return BrokerConfig.from_properties({**BOTH, **{key.replace("_", "."): text for key, text in properties.items()}})


def test_the_host_of_listeners_and_the_port_that_was_bound() -> None:
    config = read(listeners="CLIENTS://[::1]:0,PLAINTEXT://inside.example:9092,CONTROLLER://one.example:9093")
    endpoints = broker_endpoints(config, {"CLIENTS": 40001, "PLAINTEXT": 9092})
    assert endpoints == [("PLAINTEXT", "inside.example", 9092, 0), ("CLIENTS", "::1", 40001, 2)]


def test_the_listener_between_brokers_comes_first() -> None:
    """As in Kafka's registrations: the active controller looks there whether a silent broker is gone."""
    config = read(
        listeners="CLIENTS://:9094,PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="CLIENTS://public.example:19094,PLAINTEXT://inside.example:9092",
    )
    assert [endpoint.host for endpoint in broker_endpoints(config, {})] == ["inside.example", "public.example"]


def test_a_listener_that_is_not_advertised_is_not_registered() -> None:
    """Clients of that listener are told of no broker, by this broker as by the others."""
    config = read(
        listeners="CLIENTS://:9094,PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://inside.example:0",
    )
    endpoints = broker_endpoints(config, {"CLIENTS": 9094, "PLAINTEXT": 9092})
    assert endpoints == [("PLAINTEXT", "inside.example", 9092, 0)]


@EVERY
def test_every_address_is_told_as_the_name_of_the_machine(every: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    config = read(listeners=f"PLAINTEXT://{every}:9092,CONTROLLER://one.example:9093")
    assert broker_endpoints(config, {}) == [("PLAINTEXT", NAME, 9092, 0)]
    assert f"{NAME}:9092, the name of this machine, is advertised to clients and nodes" in caplog.text


@EVERY
def test_a_controller_on_every_address_is_where_the_voters_have_it(every: str) -> None:
    """Nodes cannot dial 0.0.0.0, which such a controller has registered before."""
    config = read(listeners=f"PLAINTEXT://one.example:9092,CONTROLLER://{every}:9093")
    assert controller_endpoints(config, {}) == [("CONTROLLER", "one.example", 9093, 0)]
    assert voter_endpoints(config) == (("CONTROLLER", "one.example", 9093),)


@EVERY
def test_a_controller_on_every_address_that_no_setting_names_has_the_name_of_the_machine(every: str) -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "controller",
            "controller.quorum.bootstrap.servers": "two.example:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{every}:9093",
        }
    )
    assert controller_endpoints(config, {}) == [("CONTROLLER", NAME, 9093, 0)]
    assert voter_endpoints(config) == (("CONTROLLER", NAME, 9093),)


def test_an_advertised_controller() -> None:
    config = read(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://one.example:9092,CONTROLLER://outside.example:19093",
    )
    assert controller_endpoints(config, {}) == [("CONTROLLER", "outside.example", 19093, 0)]
