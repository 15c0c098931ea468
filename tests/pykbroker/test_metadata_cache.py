"""MetadataCache: topics, addresses and effective settings from the cluster image."""

from __future__ import annotations

from pykbroker.config import BrokerConfig
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.metadata_cache import MetadataCache
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from tests.support.admin import apply_records, make_context


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
    image = _with_configs(EMPTY_IMAGE, (4, "1", "listeners", "SSL://:9093"), (4, "1", "message.max.bytes", "5"))
    assert cache.config_under(image) is cache.static_config
    assert cache.log_config(image, "t").max_message_bytes == 1048588


def test_without_advertised_listeners_the_dialled_address_is_given() -> None:
    context = make_context(local=("10.1.2.3", 19092))
    address = context.services.metadata.endpoint(1, context)
    assert address is not None
    assert (address.host, address.port) == ("10.1.2.3", 19092)


def test_advertised_listeners_are_given_per_listener() -> None:
    """P-27: each listener has its own addresses; a broker without the client's listener is not listed."""
    properties = {
        "listeners": "PLAINTEXT://:9092,INNER://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://public.example:19092",
    }
    context = make_context(properties=properties, listener_name="PLAINTEXT")
    (address,) = context.services.metadata.brokers(context)
    assert (address.host, address.port) == ("public.example", 19092)
    hidden = make_context(properties=properties, listener_name="INNER")
    assert hidden.services.metadata.brokers(hidden) == []
