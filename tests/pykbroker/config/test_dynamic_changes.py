"""Checks of changes to dynamic settings that need no cluster."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.dynamic_changes import check_resource_name, check_settings, edited
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, ItemRefused
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


WRAPPED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
LEVEL = "Cannot update these configs at default cluster level, broker id must be specified: [{}]"
REPORTERS = WRAPPED.format(
    "Validation of dynamic config update of Set(metric.reporters) failed with class "
    "class kafka.server.DynamicMetricsReporters"
)
NOT_FOUND = "Invalid value {} for configuration {}: Class {} could not be found."
CORDONED = (
    "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {}"
).format("a, b")
PER_ADDRESS = (
    "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
    "property is set."
)
PREFIX = "listener.name.plaintext."


@pytest.mark.parametrize(
    ("settings", "level", "text"),
    [
        ({"metric.reporters": "x"}, "1", REPORTERS),
        ({"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,no.such.Class"}, "", REPORTERS),
        ({"metric.reporters": "tests.no_such_module:Class"}, "1", REPORTERS),
        ({"metric.reporters": "tests.support.data_path:NO_SUCH"}, "1", REPORTERS),
        ({"metric.reporters": ","}, "1", "Configuration 'metric.reporters' values must not be empty."),
        # The type is looked at under the name without the prefix, and before the level.
        (
            {f"{PREFIX}background.threads": "x"},
            "1",
            "Invalid value x for configuration background.threads: Not a number of type INT",
        ),
        (
            {f"{PREFIX}background.threads": "0"},
            "",
            "Invalid value 0 for configuration background.threads: Value must be at least 1",
        ),
        ({f"{PREFIX}background.threads": "5"}, "", LEVEL.format(f"{PREFIX}background.threads")),
        (
            {"cordoned.log.dirs": "/x", "num.io.threads": "x"},
            "",
            "Invalid value x for configuration num.io.threads: Not a number of type INT",
        ),
        # Values of keys that are not dynamic are read by the listener that has them.
        (
            {f"{PREFIX}connections.max.idle.ms": ""},
            "1",
            WRAPPED.format("Invalid value  for configuration connections.max.idle.ms: Not a number of type LONG"),
        ),
        ({"listener.name.none.sasl.login.class": "1"}, "1", None),
        (
            {f"{PREFIX}sasl.login.class": "1"},
            "1",
            WRAPPED.format("Invalid value 1 for configuration sasl.login.class: Class 1 could not be found."),
        ),
        # Classes that are not there.
        (
            {"ssl.engine.factory.class": "x"},
            "1",
            NOT_FOUND.format("x", "ssl.engine.factory.class", "x"),
        ),
        (
            {"ssl.engine.factory.class": ""},
            "1",
            "Invalid value  for configuration ssl.engine.factory.class: Class  could not be found.",
        ),
        (
            {f"{PREFIX}principal.builder.class": "no.such.Class"},
            "1",
            NOT_FOUND.format("no.such.Class", "principal.builder.class", "no.such.Class"),
        ),
        (
            {"principal.builder.class": "java.lang.String"},
            "1",
            "requirement failed: principal.builder.class must implement KafkaPrincipalSerde",
        ),
        (
            {"listeners": ""},
            "",
            "Configuration 'listeners' must not be empty. Valid values include: any non-empty value",
        ),
        (
            {"log.cleaner.min.cleanable.ratio": "3000000000"},
            "",
            "Invalid value 3.0E9 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
        ),
        ({"listeners": "PLAINTEXT://:1"}, "", LEVEL.format("listeners")),
        # In the order of a HashSet.
        (
            {"listener.security.protocol.map": "x", "listeners": "x"},
            "",
            LEVEL.format("listeners, listener.security.protocol.map"),
        ),
        # Bounds, in Kafka's words and order.
        (
            {"cordoned.log.dirs": "a,b"},
            "1",
            CORDONED,
        ),
        (
            {"cordoned.log.dirs": "*,x"},
            "1",
            "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
        ),
        ({"log.cleaner.threads": "0"}, "", "/ by zero"),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "",
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"log.retention.ms": "0"},
            "1",
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "0"}, "1", "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.roll.jitter.ms": "-1"},
            "1",
            "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
        ),
        (
            {"max.connections.per.ip": "0"},
            "",
            PER_ADDRESS,
        ),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1:1,abc"},
            "",
            "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length 3",
        ),
        ({"max.connections.per.ip.overrides": "127.0.0.1:x"}, "", 'For input string: "x"'),
        (
            {"num.io.threads": "100", "log.cleaner.threads": "100"},
            "1",
            WRAPPED.format(
                "Dynamic thread count update validation failed for num.io.threads=100, value should not be greater "
                "than double the current value 8"
            ),
        ),
        (
            {"log.retention.ms": "10", "log.local.retention.ms": "20", "log.cleaner.threads": "3"},
            "1",
            WRAPPED.format(
                "Invalid value 20 for configuration log.local.retention.ms: Value must not be more than "
                "log.retention.ms property value: 10"
            ),
        ),
    ],
)
def test_refused_changes_in_kafkas_words(settings: dict[str, str], level: str, text: str | None) -> None:
    """P-483."""
    config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})
    error = check_settings(settings, level, config, EMPTY_IMAGE)
    assert (error.code, error.message) == ((ErrorCode.INVALID_REQUEST, text) if text else (ErrorCode.NONE, None))


def test_a_refusal_of_reporters_names_what_has_changed() -> None:
    """P-483: not a stored setting that is the default, nor the id of the broker."""
    config = BrokerConfig.from_properties({"log.dirs": "/data"})
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value="1")
    error = check_settings({"metric.reporters": "x"}, "1", config, apply_records(EMPTY_IMAGE, [record]))
    assert error.message == REPORTERS


def test_a_refusal_of_reporters_leaves_out_what_is_removed() -> None:
    """P-483: changed settings are in the order of Scala's table; those that are set no more are none of them."""
    config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="message.max.bytes", value="9")
    settings = {"log.segment.delete.delay.ms": "7", "metric.reporters": "x", "sasl.enabled.mechanisms": "y"}
    error = check_settings(settings, "1", config, apply_records(EMPTY_IMAGE, [record]))
    assert "Set(metric.reporters, log.segment.delete.delay.ms, sasl.enabled.mechanisms)" in (error.message or "")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"log.retention.ms": "x", "num.io.threads": "y"}, "y for configuration num.io.threads"),
        (
            {
                "num.io.threads": "y",
                "follower.replication.throttled.rate": "x",
                "leader.replication.throttled.rate": "z",
            },
            "z for configuration leader.replication.throttled.rate",
        ),
        (
            {"group.streams.assignment.interval.ms": "y", f"{PREFIX}num.network.threads": "x"},
            "x for configuration num.network.threads",
        ),
    ],
)
def test_of_several_bad_values_the_first_definitions_is_named(settings: dict[str, str], text: str) -> None:
    """P-696: in whatever order the settings are given."""
    for given in (settings, dict(reversed(settings.items()))):
        assert text in (check_settings(given, "1", _node({}), EMPTY_IMAGE).message or "")


def test_of_a_key_and_its_listeners_key_one_value_is_checked() -> None:
    """P-696: the one that comes last in Kafka's table."""
    key = "group.streams.assignment.interval.ms"
    settings = {key: "1.5", f"listener.name.x.{key}": "10"}
    for given in (settings, dict(reversed(settings.items()))):
        assert check_settings(given, "", _node({}), EMPTY_IMAGE).message == LEVEL.format(f"listener.name.x.{key}")


@pytest.mark.parametrize(
    "names",
    [
        "org.apache.kafka.common.metrics.JmxReporter",
        "com.acme.Reporter,tests.support.data_path:ManualClock",
        "",
    ],
)
def test_reporters_that_are_taken(names: str) -> None:
    """P-483: classes of Kafka, in Python, and what the broker was started with; a class is not made for the check."""
    config = BrokerConfig.from_properties({"node.id": "1", "metric.reporters": "com.acme.Reporter"})
    assert not check_settings({"metric.reporters": names}, "1", config, EMPTY_IMAGE).is_failure


def test_the_log_says_why_a_reporter_cannot_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """P-483: Kafka's text for the client has no reason."""
    config = BrokerConfig.from_properties({"node.id": "1"})
    assert check_settings({"metric.reporters": "tests.no_such_module:Class"}, "1", config, EMPTY_IMAGE).is_failure
    assert (
        "metric.reporters: the class tests.no_such_module:Class cannot be loaded: ModuleNotFoundError(" in caplog.text
    )


ADVERTISED = "PLAINTEXT://a:9092"
OWN = "PLAINTEXT://a:9092,CONTROLLER://a:9093"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SPARE:PLAINTEXT,TLS:SSL"
MAP = "listener.security.protocol.map"
CREATING = "Error creating broker listeners from '[PLAINTEXT://a:9092, CONTROLLER://a:9093, {}]': {}"
ON_STACKS = (
    "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 "
    "address"
)


def _node(settings: dict[str, str]) -> BrokerConfig:
    given = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@a:9093",
        "listeners": OWN,
        MAP: PROTOCOLS,
    }
    return BrokerConfig.from_properties({**given, **settings})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"listeners": f"{OWN},SPARE://a:1"}, None),
        ({"listeners": f"{OWN},spare://:1"}, None),
        ({"listeners": f"{OWN},TLS://a:1"}, None),
        ({"listeners": f"{OWN},{OWN}"}, None),
        ({"listeners": "PLAINTEXT://b:1,CONTROLLER://a:9093"}, None),
        ({"listeners": f"{OWN},X://a:1"}, CREATING.format("X://a:1", "No security protocol defined for listener X")),
        ({"listeners": f"{OWN},foo"}, CREATING.format("foo", "Unable to parse foo to a broker endpoint")),
        (
            {"listeners": f"{OWN},SPARE://a b:1"},
            CREATING.format("SPARE://a b:1", "Unable to parse SPARE://a b:1 to a broker endpoint"),
        ),
        (
            {"listeners": f"{OWN},://a:1"},
            CREATING.format("://a:1", "The provided listener name is null or empty string"),
        ),
        (
            {"listeners": f"{OWN},plaintext://a:1"},
            CREATING.format(
                "plaintext://a:1",
                "Each listener must have a different name, listeners: "
                "[PLAINTEXT://a:9092, CONTROLLER://a:9093, plaintext://a:1]",
            ),
        ),
        (
            {"listeners": f"{OWN},SPARE://a:9092"},
            CREATING.format(
                "SPARE://a:9092",
                "Each listener must have a different port, listeners: "
                "[PLAINTEXT://a:9092, CONTROLLER://a:9093, SPARE://a:9092]",
            ),
        ),
        (
            {"listeners": f"{OWN},SPARE://[::1]:9092"},
            CREATING.format(
                "SPARE://[::1]:9092",
                f"{ON_STACKS}, listeners: [PLAINTEXT://a:9092, CONTROLLER://a:9093, SPARE://[::1]:9092], port: 9092",
            ),
        ),
        (
            {"listeners": "CONTROLLER://a:9093"},
            (
                "requirement failed: There must be at least one broker advertised listener. Perhaps all listeners "
                "appear in controller.listener.names?"
            ),
        ),
        (
            {"listeners": "PLAINTEXT://a:9092,SPARE://a:1"},
            (
                "requirement failed: controller.listener.names must contain at least one value appearing in the "
                "'listeners' configuration when running the KRaft controller role"
            ),
        ),
        (
            {"listeners": "SPARE://a:1,CONTROLLER://a:9093"},
            (
                "requirement failed: inter.broker.listener.name must be a listener name defined in "
                "advertised.listeners. The valid options based on currently configured listeners are SPARE"
            ),
        ),
        ({MAP: f"{PROTOCOLS},x:y"}, f"Invalid security protocol `y` defined in {MAP}"),
        ({MAP: f"{PROTOCOLS},X"}, f"Error parsing configuration property '{MAP}': begin 0, end -1, length 1"),
        ({MAP: f"{PROTOCOLS},,X:SSL"}, f"Error parsing configuration property '{MAP}': begin 0, end -1, length 0"),
        ({MAP: f"{PROTOCOLS},:SSL"}, "The provided listener name is null or empty string"),
        (
            {MAP: f"{PROTOCOLS},spare:SSL"},
            "Duplicate key ListenerName(SPARE) (attempted merging values PLAINTEXT and SSL)",
        ),
        ({MAP: f"{PROTOCOLS},SPARE:SSL,,"}, None),
        (
            {MAP: PROTOCOLS.replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SSL")},
            WRAPPED.format("Security protocol cannot be updated for existing listener ListenerName(CONTROLLER)"),
        ),
        ({"listeners": f"{OWN},SPARE://a:1", "listener.name.spare.max.connections": "0"}, None),
        ({"listeners": f"{OWN},SPARE://a:1", "listener.name.spare.num.network.threads": "900"}, None),
        (
            {"listeners": f"{OWN},SPARE://a:1", f"{PREFIX}socket.send.buffer.bytes": "1"},
            WRAPPED.format(
                "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT), restart broker "
                "or create a new listener for update"
            ),
        ),
    ],
)
def test_changes_of_listeners_in_kafkas_words(settings: dict[str, str], text: str | None) -> None:
    """P-484."""
    error = check_settings(settings, "1", _node({}), EMPTY_IMAGE)
    assert error.message == text


def test_an_advertised_listener_cannot_be_removed() -> None:
    """P-484: without advertised.listeners, one that was added is advertised too."""
    added = {"listeners": f"{OWN},SPARE://a:1"}
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="listeners", value=added["listeners"])
    image = apply_records(EMPTY_IMAGE, [record])
    error = check_settings({}, "1", _node({}), image)
    assert error.message == WRAPPED.format(
        "Advertised listeners 'Set(ListenerName(PLAINTEXT), ListenerName(SPARE))' must be a subset of listeners "
        "'Set(ListenerName(PLAINTEXT), ListenerName(CONTROLLER))'"
    )
    named = _node({"advertised.listeners": ADVERTISED})
    assert not check_settings({}, "1", named, image).is_failure
    error = check_settings({"listeners": "SPARE://a:1,CONTROLLER://a:9093"}, "1", named, image)
    assert error.message == (
        "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined in "
        "listeners. Found PLAINTEXT. The valid options based on the current configuration are SPARE,CONTROLLER"
    )
    error = check_settings({"listeners": "CONTROLLER://a:9093,SPARE://a:1"}, "1", named, image)
    assert (error.message or "").endswith("current configuration are CONTROLLER,SPARE")
    error = check_settings({"listeners": "SPARE://a:1"}, "1", named, image)
    assert (error.message or "").startswith("requirement failed: controller.listener.names must contain")


def test_a_change_of_settings_that_are_not_used() -> None:
    """Another Kafka may have stored them; the broker goes by its static ones, to which the change is compared."""
    stored = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="listeners", value="OTHER://:9099")
    image = apply_records(EMPTY_IMAGE, [stored])
    config = BrokerConfig.from_properties({"node.id": "1"})
    assert check_settings({"log.cleaner.threads": "2"}, "1", config, image) == NO_ERROR
