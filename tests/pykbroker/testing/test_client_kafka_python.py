"""Defects of kafka-python that the adapter corrects; its calls are tested beside those of the other library."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from pykbroker.testing.client_kafka_python import KafkaPython
from pykbroker.testing.client_library import LocalBrokerError, NewTopic
from pykbroker.testing.client_settings import Access
from pykbroker.testing.local_broker import LocalBroker

# In a process of its own: pytest keeps what is logged, and with a logged error the frames that hold the socket.
_SUITE = """
import gc, socket
from pykbroker.testing.local_broker import LocalBroker
from pykbroker.testing.client_kafka_python import KafkaPython, NewTopic
from pykbroker.testing.client_settings import Access

with socket.create_server(("127.0.0.1", 0)) as server:
    refused = f"127.0.0.1:{server.getsockname()[1]}"
with LocalBroker() as broker:
    for number in range(8):
        servers = f"{refused},{broker.bootstrap_servers}"
        KafkaPython().create_topic(Access(servers), NewTopic(f"t{number}", 1, 1, {}), 10)
gc.collect()
"""


def test_a_refused_connection_leaves_no_socket_to_the_garbage_collector() -> None:
    """kafka-python asks the bootstrap servers in random order, so the refused one is met in most of the rounds."""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _SUITE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "unclosed" not in done.stderr


def test_a_dead_bootstrap_server_that_is_chosen_again_and_again_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kafka-python's own delays the twelve choices took longer than its 30 s for finding a server."""
    manager = pytest.importorskip("kafka.net.manager")
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused_port = server.getsockname()[1]
    chosen: list[int] = []

    def choose(servers: Sequence[Any]) -> Any:
        found = next(server for server in servers if (server.port == refused_port) == (len(chosen) < 12))
        chosen.append(found.port)
        return found

    with LocalBroker() as broker, monkeypatch.context() as context:
        context.setattr(manager.random, "choice", choose)
        servers = f"127.0.0.1:{refused_port},{broker.bootstrap_servers}"
        KafkaPython().create_topic(Access(servers), NewTopic("found", 1, 1, {}), 10)
    assert chosen.count(refused_port) == 12


def test_a_controller_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine metadata named a controller, and the next one did not have that broker."""
    errors = pytest.importorskip("kafka.errors")
    if not hasattr(errors, "UnknownBrokerIdError"):
        pytest.skip("this kafka-python has no such error")
    create = KafkaAdminClient.create_topics
    refused: list[int] = []

    def create_topics(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(refused) < 2:
            refused.append(1)
            raise errors.UnknownBrokerIdError(1)
        return create(self, *args, **kwargs)

    monkeypatch.setattr(KafkaAdminClient, "create_topics", create_topics)
    with LocalBroker() as broker:
        KafkaPython().create_topic(Access(broker.bootstrap_servers), NewTopic("t", 1, 1, {}), 10)
        with pytest.raises(LocalBrokerError, match="exists"):
            KafkaPython().create_topic(Access(broker.bootstrap_servers), NewTopic("t", 1, 1, {}), 10)
    assert len(refused) == 2
