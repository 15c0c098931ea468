"""DynamicBrokerConfig: a broker's settings under an image, static and dynamic ones, and those of its logs."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.metadata.dynamic_broker_config import DynamicBrokerConfig
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from tests.support.admin import apply_records


def _with_configs(image: ClusterImage, *configs: tuple[int, str, str, str | None]) -> ClusterImage:
    return apply_records(
        image, [ConfigRecord(resource_type=t, resource_name=r, name=n, value=v) for t, r, n, v in configs]
    )


def test_a_topic_inherits_from_broker_keys_and_these_from_dynamic_ones() -> None:
    """P-152: topic before broker's own dynamic before cluster-wide dynamic before given before default."""
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({"log.retention.hours": "1"}), 1)
    image = EMPTY_IMAGE
    assert settings.log_config(image, "t").retention_ms == 3600000
    image = _with_configs(image, (4, "", "log.retention.ms", "5"))
    assert settings.log_config(image, "t").retention_ms == 5
    image = _with_configs(image, (4, "1", "log.retention.ms", "6"))
    assert settings.log_config(image, "t").retention_ms == 6
    image = _with_configs(image, (2, "t", "retention.ms", "7"))
    assert settings.log_config(image, "t").retention_ms == 7
    assert settings.log_config(image, "u").retention_ms == 6


def test_topics_with_the_same_settings_share_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({}), 1)
    image = _with_configs(EMPTY_IMAGE, (2, "t", "retention.ms", "7"), (2, "u", "retention.ms", "7"))
    found = settings.log_config(image, "t")
    assert settings.log_config(image, "u") is found
    changed = _with_configs(image, (4, "", "log.segment.bytes", "2097152"))
    assert settings.log_config(changed, "u") == found._replace(segment_bytes=2097152)
    # Only so many are kept, and those that have no place are computed again.
    monkeypatch.setattr("pykbroker.metadata.dynamic_broker_config.LOG_CONFIGS_MAX", 1)
    many = _with_configs(changed, *((2, f"t{number}", "retention.ms", str(number)) for number in range(5)))
    for number in (*range(5), 0):
        assert settings.log_config(many, f"t{number}").retention_ms == number


def test_log_config_follows_the_image_that_it_is_asked_for() -> None:
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({"producer.id.expiration.ms": "9"}), 1)
    plain = settings.log_config(EMPTY_IMAGE, "t")
    assert (plain.retention_ms, plain.producer_id_expiration_ms) == (604800000, 9)
    assert settings.log_config(EMPTY_IMAGE, "u") is plain
    changed = _with_configs(EMPTY_IMAGE, (4, "", "log.segment.bytes", "2097152"), (2, "t", "cleanup.policy", "compact"))
    assert settings.log_config(changed, "t").segment_bytes == 2097152
    assert settings.log_config(changed, "t").is_compacted
    assert not settings.log_config(changed, "u").is_compacted
    small = _with_configs(EMPTY_IMAGE, (2, "t", "internal.segment.bytes", "4096"))
    assert settings.log_config(small, "t").segment_bytes == 4096


def test_dynamic_settings_that_cannot_be_are_not_used() -> None:
    """A data directory that Kafka wrote may hold what this broker refuses."""
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({}), 1)
    threads, size = (4, "1", "log.cleaner.threads", "2"), (4, "", "log.cleaner.dedupe.buffer.size", "1048576")
    image = _with_configs(EMPTY_IMAGE, threads, size, (4, "1", "message.max.bytes", "5"))
    assert settings.under(image) is settings.static
    assert settings.log_config(image, "t").max_message_bytes == 1048588


def test_what_was_used_before_stays_where_new_settings_cannot_be() -> None:
    """P-371: as in Kafka all settings stay, and not those of the start alone come back."""
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({}), 1)
    good = _with_configs(EMPTY_IMAGE, (4, "1", "message.max.bytes", "5"), (4, "", "log.cleaner.threads", "2"))
    assert settings.log_config(good, "t").max_message_bytes == 5
    bad = _with_configs(good, (4, "", "log.cleaner.dedupe.buffer.size", "1048576"), (4, "1", "message.max.bytes", "6"))
    assert settings.log_config(bad, "t").max_message_bytes == 5
    assert settings.under(bad).value("log.cleaner.threads") == 2
    mended = _with_configs(bad, (4, "", "log.cleaner.dedupe.buffer.size", None))
    assert settings.log_config(mended, "t").max_message_bytes == 6


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize(("level", "stored", "used"), [("1", 100, 1000), ("", 9000, 5000), ("1", 1000, 1000)])
def test_stored_assignment_intervals_are_held_within_their_bounds(
    kind: str, level: str, stored: int, used: int, caplog: pytest.LogCaptureFixture
) -> None:
    """P-371: the bounds are static, and a restart may have changed them; other dynamic settings are used as well."""
    prefix, suffix = f"group.{kind}.", "assignment.interval.ms"
    static = {f"{prefix}min.{suffix}": "1000", f"{prefix}max.{suffix}": "5000", f"{prefix}{suffix}": "2000"}
    settings = DynamicBrokerConfig(BrokerConfig.from_properties(static), 1)
    image = _with_configs(EMPTY_IMAGE, (4, level, f"{prefix}{suffix}", str(stored)), (4, "1", "message.max.bytes", "5"))
    assert settings.under(image).value(f"{prefix}{suffix}") == used
    assert settings.log_config(image, "t").max_message_bytes == 5
    assert (f"{used} is used" in caplog.text) is (used != stored)


def test_dynamic_settings_are_ignored_one_by_one() -> None:
    """P-371: a controller's port stores what no broker has checked."""
    settings = DynamicBrokerConfig(BrokerConfig.from_properties({}), 1)
    image = _with_configs(
        EMPTY_IMAGE,
        (4, "1", "advertised.listeners", "UNKNOWN://:9093"),
        (4, "1", "num.partitions", "9"),
        (4, "1", "max.connections", "many"),
        (4, "", "ssl.keystore.location", "/x"),
        (4, "", "cordoned.log.dirs", "/x"),
        (4, "1", "my.plugin.key", "x"),
        (4, "1", "message.max.bytes", "5"),
    )
    used = dict(settings.under(image).static_properties)
    assert used.keys() - {"broker.id", "node.id"} == {"my.plugin.key", "message.max.bytes"}
    assert settings.log_config(image, "t").max_message_bytes == 5
