"""MetadataCache: topics, addresses and effective settings from the cluster image."""

from __future__ import annotations

import socket

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.requests.context import RequestContext
from tests.support.admin import apply_records, make_context
from tests.support.services import Services


def _with_configs(image: ClusterImage, *configs: tuple[int, str, str, str | None]) -> ClusterImage:
    return apply_records(
        image, [ConfigRecord(resource_type=t, resource_name=r, name=n, value=v) for t, r, n, v in configs]
    )


def test_a_topic_inherits_from_broker_keys_and_these_from_dynamic_ones() -> None:
    """P-152: topic before broker's own dynamic before cluster-wide dynamic before given before default."""
    config = BrokerConfig.from_properties({"log.retention.hours": "1"})
    cache = MetadataCache(config, 1)
    assert cache.topic_config("t")["retention.ms"] == "3600000"
    cache.image = _with_configs(EMPTY_IMAGE, (4, "", "log.retention.ms", "5"))
    assert cache.topic_config("t")["retention.ms"] == "5"
    cache.image = _with_configs(cache.image, (4, "1", "log.retention.ms", "6"))
    assert cache.topic_config("t")["retention.ms"] == "6"
    cache.image = _with_configs(cache.image, (2, "t", "retention.ms", "7"))
    assert cache.topic_config("t")["retention.ms"] == "7"
    assert cache.topic_config("u")["retention.ms"] == "6"


def test_log_config_follows_the_image_that_it_is_asked_for() -> None:
    cache = MetadataCache(BrokerConfig.from_properties({"producer.id.expiration.ms": "9"}), 1)
    plain = cache.log_config(EMPTY_IMAGE, "t")
    assert (plain.retention_ms, plain.producer_id_expiration_ms) == (604800000, 9)
    assert cache.log_config(EMPTY_IMAGE, "u") is plain
    changed = _with_configs(EMPTY_IMAGE, (4, "", "log.segment.bytes", "2097152"), (2, "t", "cleanup.policy", "compact"))
    assert cache.log_config(changed, "t").segment_bytes == 2097152
    assert cache.log_config(changed, "t").is_compacted
    assert not cache.log_config(changed, "u").is_compacted
    small = _with_configs(EMPTY_IMAGE, (2, "t", "internal.segment.bytes", "4096"))
    assert cache.log_config(small, "t").segment_bytes == 4096


def test_dynamic_settings_that_cannot_be_are_not_used() -> None:
    """A data directory that Kafka wrote may hold what this broker refuses."""
    cache = MetadataCache(BrokerConfig.from_properties({}), 1)
    threads, size = (4, "1", "log.cleaner.threads", "2"), (4, "", "log.cleaner.dedupe.buffer.size", "1048576")
    image = _with_configs(EMPTY_IMAGE, threads, size, (4, "1", "message.max.bytes", "5"))
    assert cache.config_under(image) is cache.static_config
    assert cache.log_config(image, "t").max_message_bytes == 1048588


def test_dynamic_settings_are_ignored_one_by_one() -> None:
    """P-371: a controller's port stores what no broker has checked."""
    cache = MetadataCache(BrokerConfig.from_properties({}), 1)
    image = _with_configs(
        EMPTY_IMAGE,
        (4, "1", "listeners", "UNKNOWN://:9093"),
        (4, "1", "num.partitions", "9"),
        (4, "1", "max.connections", "many"),
        (4, "", "ssl.keystore.location", "/x"),
        (4, "", "cordoned.log.dirs", "/x"),
        (4, "1", "my.plugin.key", "x"),
        (4, "1", "message.max.bytes", "5"),
    )
    used = dict(cache.config_under(image).static_properties)
    assert used.keys() - {"broker.id", "node.id"} == {"my.plugin.key", "message.max.bytes"}
    assert cache.log_config(image, "t").max_message_bytes == 5


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
