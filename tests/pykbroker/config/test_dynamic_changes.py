"""Checks of changes to dynamic settings that need no cluster."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.dynamic_changes import check_resource_name, check_settings, edited
from pykbroker.controller.metadata.commands import ApiError, ItemRefused
from pykbroker.controller.metadata.configs import APPEND, ConfigEdit
from pykbroker.controller.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from tests.support.admin import apply_records


@pytest.mark.parametrize("name", ["", "1", "+1", "01"])
def test_names_of_this_broker_and_of_all_brokers(name: str) -> None:
    assert not check_resource_name(name, 1).is_failure


@pytest.mark.parametrize("name", ["x", " 1", "1_0", "1.0", str(2**31), "9" * 5000])
def test_a_name_that_java_does_not_read_as_an_integer(name: str) -> None:
    error = check_resource_name(name, 1)
    assert error.code == ErrorCode.INVALID_REQUEST
    assert error.message == f"Node id must be an integer, but it is: {name}"


def test_the_name_of_another_broker() -> None:
    assert check_resource_name("2", 1).message == "Unexpected broker id, expected 1, but received 2"


ON_ONE_LISTENER = {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}


@pytest.mark.parametrize(
    ("settings", "is_taken"),
    [
        (ON_ONE_LISTENER, True),
        ({**ON_ONE_LISTENER, "ssl.protocol": "TLS"}, False),
        ({**ON_ONE_LISTENER, "max.connections": "5"}, False),
        ({**ON_ONE_LISTENER, "log.cleaner.threads": "2"}, True),
        ({"listener.name.other.sasl.enabled.mechanisms": "PLAIN", "max.connections": "5"}, True),
        ({"listener.name.plaintext.max.connections": "5", "max.connections": "6"}, True),
    ],
)
def test_settings_of_a_listener_that_change_with_those_of_all(settings: dict[str, str], is_taken: bool) -> None:
    """P-311: Kafka compares the listeners' settings only when a key without a prefix changes too."""
    config = BrokerConfig.from_properties({"node.id": "1"})
    error = check_settings(settings, "1", config, EMPTY_IMAGE)
    assert error.is_failure is not is_taken
    if not is_taken:
        text = "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT), restart broker or "
        assert text in str(error.message)


def test_a_stored_setting_of_a_listener_hinders_changes_of_those_of_all() -> None:
    """P-311: Kafka compares with the settings of the start, until the stored one is deleted."""
    config = BrokerConfig.from_properties({"node.id": "1"})
    ((name, value),) = ON_ONE_LISTENER.items()
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=name, value=value)
    image = apply_records(EMPTY_IMAGE, [record])
    assert check_settings({**ON_ONE_LISTENER, "max.connections": "5"}, "1", config, image).is_failure
    assert not check_settings({"max.connections": "5"}, "1", config, image).is_failure
    given = BrokerConfig.from_properties({"node.id": "1", **ON_ONE_LISTENER})
    assert not check_settings({**ON_ONE_LISTENER, "max.connections": "5"}, "1", given, image).is_failure


def test_an_unknown_operation_is_found_before_all_others() -> None:
    """P-153."""
    edits = [ConfigEdit("no.such.key", APPEND, "a"), ConfigEdit("num.io.threads", 9, "a")]
    with pytest.raises(ItemRefused) as refused:
        edited(edits, "1", EMPTY_IMAGE)
    assert refused.value.error == ApiError(ErrorCode.INVALID_REQUEST, "Unknown operations type 9")
    with pytest.raises(ItemRefused) as refused:
        edited(edits[:1], "1", EMPTY_IMAGE)
    assert refused.value.error == ApiError(ErrorCode.INVALID_CONFIG, "Unknown config name: no.such.key")
