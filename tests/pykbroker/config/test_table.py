"""The table of broker keys and the values of BrokerConfig: each has what the other says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import pykbroker
from pykbroker.config import values
from pykbroker.config.broker_config import SINGLE_NODE_DEFAULTS, BrokerConfig
from pykbroker.config.controller_rules import ServerConfigRules
from pykbroker.config.definitions import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    READ_ONLY,
    SHORT,
    STRING,
    ConfigError,
    ConfigKey,
    format_value,
)
from pykbroker.config.definitions.broker import BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.definitions.documentation import broker_documentation
from pykbroker.config.definitions.topic import BROKER_SYNONYMS, TOPIC_CONFIGS
from pykbroker.controller.metadata.image import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE
from pykbroker.groups.modern.settings import settings_of_group

TRANSCRIPT = Path(__file__).parents[2] / "transcripts" / "admin.jsonl"
SOURCE = Path(pykbroker.__file__).parent

KEYS = {**BROKER_CONFIGS, **INTERNAL_BROKER_CONFIGS}
OF_ONE_KEY = {definition.attribute: key for key, definition in KEYS.items() if definition.attribute is not None}
OF_SEVERAL = {definition.part_of for definition in KEYS.values() if definition.part_of is not None}
NOT_OF_KEYS = {
    # What is said of the file as a whole.
    "static_properties",
    "unknown_keys",
    "ineffective_keys",
    # The same values as `groups`.
    "consumer_groups.classic",
    # From the listeners and controller.listener.names, as network.listeners is.
    "network.all_listeners",
    "network.controller_listeners",
    "network.advertised_controller_listeners",
    "network.security_protocols",
    # Settings of Kafka's authorizer, which its broker does not know.
    "security.super_users",
    "security.allow_everyone_if_no_acl_found",
}
PYTHON_TYPES: dict[int, type] = {
    BOOLEAN: bool,
    STRING: str,
    CLASS: str,
    PASSWORD: str,
    INT: int,
    SHORT: int,
    LONG: int,
    DOUBLE: float,
    LIST: tuple,
}


def fields_of(group: type) -> Iterator[tuple[str, Any]]:
    """Paths and types of all values below a class of values."""
    for name, kind in get_type_hints(group).items():
        if isinstance(kind, type) and issubclass(kind, values.Frozen) and name != "classic":
            for path, inner in fields_of(kind):
                yield f"{name}.{path}", inner
        else:
            yield name, kind


FIELDS = dict(fields_of(BrokerConfig))


def value_at(config: BrokerConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def given(key: str, definition: ConfigKey) -> str | None:
    return SINGLE_NODE_DEFAULTS.get(key, definition.default)


def test_each_value_has_a_row_and_each_row_a_value() -> None:
    assert set(FIELDS) == {*OF_ONE_KEY, *OF_SEVERAL, *NOT_OF_KEYS}


def test_a_value_has_one_row_and_a_row_one_place() -> None:
    assert len(OF_ONE_KEY) == len([key for key, row in KEYS.items() if row.attribute is not None])
    assert not [key for key, row in KEYS.items() if row.attribute is not None and row.part_of is not None]


def test_a_new_config_has_every_value() -> None:
    """The classes of values take what they are given: nothing is missing, and nothing is there that mypy cannot see."""
    config = BrokerConfig.from_properties({})
    found = set()
    for name, value in vars(config).items():
        found |= {f"{name}.{field}" for field in vars(value)} if isinstance(value, values.Frozen) else {name}
    assert found == set(FIELDS)


@pytest.mark.parametrize("path", OF_ONE_KEY)
def test_the_type_that_mypy_sees_is_that_of_the_row(path: str) -> None:
    definition = KEYS[OF_ONE_KEY[path]]
    kind = FIELDS[path]
    plain = (
        {get_origin(part) or part for part in get_args(kind)}
        if type(None) in get_args(kind)
        else {get_origin(kind) or kind}
    )
    is_nullable = given(OF_ONE_KEY[path], definition) is None and path != "log.dirs"
    assert plain == {PYTHON_TYPES[definition.type], *([type(None)] if is_nullable else [])}


def test_types_of_values_hold() -> None:
    config = BrokerConfig.from_properties(
        {
            "broker.rack": "r",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.quorum.bootstrap.servers": "one:9093",
        }
    )
    for path, kind in FIELDS.items():
        value = value_at(config, path)
        kinds = tuple(
            get_origin(part) or part for part in (get_args(kind) if type(None) in get_args(kind) else (kind,))
        )
        assert isinstance(value, kinds), path
        assert not isinstance(value, list | dict | set), path


@pytest.mark.parametrize("path", OF_ONE_KEY)
def test_defaults_are_kafkas(path: str) -> None:
    key = OF_ONE_KEY[path]
    value = value_at(BrokerConfig.from_properties({}), path)
    if path == "log.dirs":
        assert value == tuple(KEYS["log.dir"].parse("log.dir", KEYS["log.dir"].default or ""))
        return
    text = given(key, KEYS[key])
    shown = format_value(list(value) if isinstance(value, tuple) else value)
    assert (None if value is None else shown) == (None if text is None else format_value(KEYS[key].parse(key, text)))


def described_by_kafka() -> dict[str, dict[str, Any]]:
    """Apache Kafka's DescribeConfigs of a broker with few settings, as tests/transcripts/record.py recorded it."""
    steps = map(json.loads, TRANSCRIPT.read_text(encoding="utf-8").splitlines())
    for step in steps:
        if (
            step
            and step["api"] == "describe_configs"
            and step["request"]["resources"] == [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
        ):
            (result,) = step["response"]["results"]
            return {entry["name"]: entry for entry in result["configs"]}
    raise AssertionError("no broker is described in the transcript")


def test_kafka_lists_the_keys_of_the_table_with_these_types_and_defaults() -> None:
    listed = described_by_kafka()
    for name in ("unknown.key", "listener.name.plaintext.ssl.keystore.password"):
        del listed[name]
    assert set(listed) == set(BROKER_CONFIGS)
    differing = []
    for name, entry in listed.items():
        row = BROKER_CONFIGS[name]
        defaults = [
            at.get("value", "") for at in entry.get("synonyms", []) if at.get("name") == name and at.get("source") == 5
        ]
        default = defaults[0] if defaults else None
        ours = None if row.default is None or row.is_sensitive else format_value(row.parse(name, row.default))
        if (ours, row.type, row.update_mode == READ_ONLY) != (
            default,
            entry["config_type"],
            entry.get("read_only", False),
        ):
            differing.append((name, ours, default))
    assert differing == []


def test_every_key_without_an_effect_is_reported() -> None:
    """A key that this broker makes no use of must not be an attribute: it is named to the user instead."""
    effects = {key for key, row in KEYS.items() if row.has_effect}
    own = {name for synonyms in BROKER_SYNONYMS.values() for name in synonyms}
    # Tiers of storage are not served, though a topic key inherits from these.
    assert own - effects == {"log.local.retention.bytes", "log.local.retention.ms"}
    for key, row in KEYS.items():
        if row.default is not None and key not in ("broker.id", "process.roles"):
            config = BrokerConfig.from_properties({key: row.default})
            assert config.ineffective_keys == (() if row.has_effect else (key,)), key
            assert config.unknown_keys == ()


def names_read(function: Callable[[Any], object]) -> set[str]:
    """Attributes that a function reads from its argument."""
    names = set()

    class Values:
        def __getattr__(self, name: str) -> int:
            names.add(name)
            return 0

        def replaced(self, **values: Any) -> None: ...

    function(Values())
    return names


def test_every_value_is_used() -> None:
    """Each is read as config.quorum.fetch_timeout_ms or quorum.fetch_timeout_ms by a module that does not make it."""
    makers = {"definitions", "parsing.py", "values.py"}
    sources = [
        path.read_text(encoding="utf-8")
        for path in SOURCE.rglob("*.py")
        if not makers & set(path.relative_to(SOURCE).parts)
    ]
    read_elsewhere = {"process_roles"}  # by is_broker and is_controller
    for group in ("consumer_groups", "share_groups", "streams_groups"):
        read_elsewhere |= {f"{group}.{name}" for name in names_read(lambda times: settings_of_group(times, "", {}))}
    read_elsewhere.add("consumer_groups.migration_policy")  # by is_migration_enabled
    for directory in ("classic", "consumer", "share", "streams"):
        group = "groups" if directory == "classic" else f"{directory}_groups"
        for path in (*(SOURCE / "groups" / directory).glob("*.py"), SOURCE / "groups" / "coordinator.py"):
            names = re.findall(r"\bsettings\.(\w+)", path.read_text(encoding="utf-8"))
            read_elsewhere |= {f"{group}.{name}" for name in names}
    unused = [
        path
        for path in FIELDS
        if path not in read_elsewhere
        and not any(re.search(rf"\b{path if '.' in path else f'config.{path}'}\b", source) for source in sources)
    ]
    assert unused == []


@pytest.mark.parametrize("value", ["0:1", "0:1,12:3", "*", ""])
def test_throttled_replicas(value: str) -> None:
    definition = TOPIC_CONFIGS["leader.replication.throttled.replicas"]
    definition.parse("leader.replication.throttled.replicas", value)


@pytest.mark.parametrize("value", ["0", "0:", "a:1", "\N{SUPERSCRIPT TWO}:1", "1:\N{ARABIC-INDIC DIGIT TWO}"])
def test_throttled_replicas_that_kafka_refuses(value: str) -> None:
    """Python takes other digits for numbers too; a broker that threw at them would end."""
    definition = TOPIC_CONFIGS["leader.replication.throttled.replicas"]
    with pytest.raises(ConfigError):
        definition.parse("leader.replication.throttled.replicas", value)


@pytest.mark.parametrize("name", ["group.consumer.no.such.thing", "group.later.size", "no.such.key"])
def test_unknown_keys_have_no_documentation(name: str) -> None:
    assert broker_documentation(name) is None


def test_kinds_of_resources_without_settings_have_no_defaults() -> None:
    rules = ServerConfigRules(BrokerConfig.from_properties({}))
    assert rules.default(BROKER_LOGGER_RESOURCE, "num.partitions") is None
    assert rules.default(BROKER_RESOURCE, "num.partitions") == "1"
