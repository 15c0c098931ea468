"""P-484: listeners that are added and removed while a broker runs, on whole brokers."""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from interop_tests.ports import free_port
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.produce import ProduceRequest
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker.protocol.messages.vote import VoteRequest
from pykbroker.security.principals import AuthenticationContext
from pykbroker.security.tls.development import BROKER_FILE, prepare
from tests.support.data_path import batch
from tests.support.only_voter import only_voter
from tests.support.whole_broker import TIMEOUT_S, WholeBroker
from tests.support.wire_client import WireClient

BROKER = 4
SET, DELETE = 0, 1
OWN = "PLAINTEXT://127.0.0.1:0"
MAP = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WholeBroker]:
    settings = {"listener.security.protocol.map": MAP, "advertised.listeners": "PLAINTEXT://127.0.0.1:9"}
    with WholeBroker(tmp_path / "data", settings) as started:
        yield started


def alter(broker: WholeBroker, settings: Mapping[str, str | None]) -> tuple[int, str | None]:
    """Error code and text. A value of None removes the setting."""
    configs = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    result = broker.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return result.error_code, result.error_message


def listeners(port: int, name: str = "OTHER") -> dict[str, str | None]:
    return {"listeners": f"{OWN},{name}://127.0.0.1:{port}"}


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_listener_is_added_and_removed(broker: WholeBroker) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    broker.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    port = free_port()
    assert alter(broker, listeners(port)) == (0, None)
    wait_until(lambda: is_open(port))
    added = WireClient(("127.0.0.1", port))
    # The registration has no such listener, as Kafka's would not.
    answer = added.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 8)
    assert answer.brokers == []
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.LISTENER_NOT_FOUND]
    # Another address under the same name has no effect.
    assert alter(broker, listeners(free_port())) == (0, None)
    assert alter(broker, {"listeners": OWN}) == (0, None)
    wait_until(lambda: not is_open(port))
    with pytest.raises((EOFError, ConnectionError)):
        added.call(MetadataRequest(topics=[]), 8)
    added.close()
    # The same name and port again.
    assert alter(broker, listeners(port)) == (0, None)
    wait_until(lambda: is_open(port))


def test_requests_that_wait_end_with_their_listener(broker: WholeBroker) -> None:
    """A fetch waits for records without a task of its own; nothing of it may be left for them."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    broker.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    port = free_port()
    assert alter(broker, listeners(port)) == (0, None)
    wait_until(lambda: is_open(port))
    waiting = WireClient(("127.0.0.1", port))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    waiting.send(fetch, 4)
    assert alter(broker, {"listeners": OWN}) == (0, None)
    with pytest.raises((EOFError, ConnectionError)):
        waiting.receive()
    waiting.close()
    assert broker.produce("t", batch(1)) == 0
    assert broker.client.call(fetch, 4).responses[0].partitions[0].high_watermark == 1


def test_all_dynamic_listeners_go_with_their_setting(broker: WholeBroker) -> None:
    port = free_port()
    assert alter(broker, listeners(port)) == (0, None)
    wait_until(lambda: is_open(port))
    described = broker.client.call(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["listeners"])
            ]
        ),
        4,
    )
    found = described.results[0].configs[0]
    assert (found.value, found.read_only, found.config_source) == (listeners(port)["listeners"], False, 2)
    assert alter(broker, {"listeners": None}) == (0, None)
    wait_until(lambda: not is_open(port))


def test_a_stored_listener_is_opened_by_the_next_start(tmp_path: Path) -> None:
    settings = {"listener.security.protocol.map": MAP}
    port = free_port()
    with WholeBroker(tmp_path / "data", settings) as broker:
        assert alter(broker, listeners(port)) == (0, None)
    assert not is_open(port)
    with WholeBroker(tmp_path / "data", settings):
        assert is_open(port)


def test_a_taken_port_is_logged_and_tried_again(broker: WholeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.ERROR):
        port = taken.getsockname()[1]
        assert alter(broker, listeners(port)) == (0, None)
        wait_until(lambda: "listener OTHER is not opened: cannot listen" in caplog.text)
    assert alter(broker, {"max.connections.per.ip": "100"}) == (0, None)
    wait_until(lambda: is_open(port))


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, port: int) -> None:
    """P-484: it is stored, as in Kafka, and neither this start nor the next one ends with it."""
    settings = {"listener.security.protocol.map": MAP, "advertised.listeners": "PLAINTEXT://127.0.0.1:9"}
    refused = f"listener OTHER is not opened: cannot listen on 127.0.0.1:{port}: port out of range"
    with caplog.at_level(logging.ERROR):
        with WholeBroker(tmp_path / "data", settings) as broker:
            assert alter(broker, listeners(port)) == (0, None)
            wait_until(lambda: refused in caplog.text)
            assert alter(broker, listeners(2**31))[0] == ErrorCode.INVALID_REQUEST
        caplog.clear()
        with WholeBroker(tmp_path / "data", settings) as broker:
            wait_until(lambda: refused in caplog.text)
            assert alter(broker, listeners(free_port())) == (0, None)


def test_a_listener_with_tls_is_added_to_a_broker_without(
    broker: WholeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("cryptography")
    prepare(str(tmp_path), ["127.0.0.1"])
    port = free_port()
    prefix = "listener.name.tls."
    keys = {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(tmp_path / BROKER_FILE)}
    with caplog.at_level(logging.ERROR):
        assert alter(broker, listeners(port, "TLS")) == (0, None)
        wait_until(lambda: "listener TLS is not opened" in caplog.text)
    assert alter(broker, keys) == (0, None)
    wait_until(lambda: is_open(port))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as encrypted:
        assert encrypted.version() == "TLSv1.3"
    assert alter(broker, {"listeners": OWN}) == (0, None)
    wait_until(lambda: not is_open(port))


def test_a_listener_with_sasl_is_added(broker: WholeBroker) -> None:
    port = free_port()
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="secret";'
    settings: dict[str, str | None] = {
        **listeners(port, "LOGIN"),
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": jaas,
    }
    assert alter(broker, settings) == (0, None)
    wait_until(lambda: is_open(port))
    client = WireClient(("127.0.0.1", port))
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).mechanisms == ["PLAIN"]
    client.close()


class OfAddedListener:
    """Principal builder that puts the listener into the name; with one setting it cannot be made."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if settings.get("max.connections.per.ip") == "77":
            raise RuntimeError("not this one")

    def build(self, context: AuthenticationContext) -> str:
        return f"User:{context.listener_name.lower()}-{context.principal.partition(':')[2]}"


BUILDER = f"{__name__}:{OfAddedListener.__name__}"


def may_create(port: int) -> bool:
    client = WireClient(("127.0.0.1", port))
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True), 5)
    client.close()
    error_code: int = answer.topics[0].error_code
    return error_code == ErrorCode.NONE


@pytest.mark.parametrize("key", ["listener.name.other.principal.builder.class", "principal.builder.class"])
def test_an_added_listener_has_the_principal_builder_of_now(tmp_path: Path, key: str) -> None:
    """P-313: the class for it, or else the general one. Those that are open keep theirs."""
    settings = {
        "listener.security.protocol.map": MAP,
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with WholeBroker(tmp_path / "data", settings) as broker:
        port = free_port()
        assert alter(broker, {**listeners(port), key: BUILDER}) == (0, None)
        wait_until(lambda: is_open(port))
        assert not may_create(port)
        assert may_create(broker.address.port)
        if key == "principal.builder.class":
            assert alter(broker, {key: None}) == (0, None)
            assert not may_create(port)
        assert alter(broker, {"listeners": OWN, key: None}) == (0, None)
        wait_until(lambda: not is_open(port))
        assert alter(broker, listeners(port)) == (0, None)
        wait_until(lambda: is_open(port))
        assert may_create(port)


def test_a_principal_builder_that_cannot_be_made_opens_no_listener(
    broker: WholeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """P-313, P-484."""
    port = free_port()
    key = "listener.name.other.principal.builder.class"
    with caplog.at_level(logging.ERROR):
        assert alter(broker, {**listeners(port), key: BUILDER, "max.connections.per.ip": "77"}) == (0, None)
        wait_until(lambda: "listener OTHER is not opened" in caplog.text)
    assert "RuntimeError('not this one')" in caplog.text
    assert not is_open(port)
    assert alter(broker, {"max.connections.per.ip": None}) == (0, None)
    wait_until(lambda: is_open(port))


@pytest.mark.parametrize("order", [*itertools.permutations(["PLAINTEXT", "CONTROLLER", "OTHER"])], ids=" ".join)
def test_listeners_may_be_given_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Ports of clients answer the APIs of a broker, and that of nodes the APIs of a controller."""
    ports = {name: free_port() for name in order}
    settings = {
        **only_voter(ports["CONTROLLER"]),
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in order),
        "listener.security.protocol.map": f"{MAP},CONTROLLER:PLAINTEXT",
    }
    with WholeBroker(tmp_path / "data", {name: str(value) for name, value in settings.items()}) as broker:
        assert broker.address.port == ports[next(name for name in order if name != "CONTROLLER")]
        for name, port in ports.items():
            client = WireClient(("127.0.0.1", port))
            known = {api.api_key for api in client.call(ApiVersionsRequest(), 0).api_keys}
            client.close()
            assert (ProduceRequest.KEY in known, VoteRequest.KEY in known) == (
                name != "CONTROLLER",
                name == "CONTROLLER",
            )
