"""Addresses of other brokers, where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.image import ClusterImage, Endpoint
from pykbroker.controller.node_client import NodeAddress, NodeUnreachable
from pykbroker.metadata.broker_clients import BrokerClients
from tests.support.replicas import broker_image


def test_a_broker_that_cannot_be_connected_to() -> None:
    image = ClusterImage()
    endpoints = (Endpoint("PLAINTEXT", "h", 9092, 0),)
    image.brokers = {
        1: broker_image(1, 10)._replace(endpoints=endpoints),
        2: broker_image(2, 20, is_fenced=True)._replace(endpoints=endpoints),
        3: broker_image(3, 30)._replace(endpoints=(Endpoint("OTHER", "h", 9094, 0),)),
    }
    unused: Any = None
    clients = BrokerClients(lambda: image, "PLAINTEXT", unused, 9)
    assert clients.connect(1).address == NodeAddress("h", 9092)
    for broker_id, reason in (
        (2, "broker 2 is fenced"),
        (3, "broker 3 has no listener PLAINTEXT"),
        (4, "broker 4 is not registered"),
    ):
        with pytest.raises(NodeUnreachable, match=reason):
            clients.connect(broker_id)
