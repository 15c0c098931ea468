"""Every declared message against the JSON definitions in Apache Kafka's jars, field by field, version by version."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pytest

import pykbroker.protocol.log_messages
import pykbroker.protocol.messages
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.fields import STRUCT_DEFAULT, Field, Message, VersionRange, version_range
from pykbroker.requests.api_table import APIS, CONTROLLER_APIS, NEVER_FLEXIBLE, camel_case
from tests.support.kafka_jars import definitions

JARS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
)


def declared_messages() -> list[type[Message]]:
    """The top-level messages of all declaring modules."""
    found = []
    for package in (pykbroker.protocol.messages, pykbroker.protocol.log_messages):
        for module_info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = importlib.import_module(module_info.name)
            found += [
                value
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, Message) and value.VERSIONS.highest >= 0
            ]
    return found


MESSAGES = declared_messages()


def kafka_definition(name: str) -> dict[str, Any]:
    for jar in JARS:
        if name in definitions(jar):
            return definitions(jar)[name]
    pytest.fail(f"Apache Kafka has no message {name}")


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("KRaft", "Kraft")).lower()


def described_default(definition: dict[str, Any], kind: str) -> Any:
    """The default of a JSON field as a Python value."""
    text = definition.get("default")
    if kind == "array":
        return None if str(text).lower() == "null" else ()
    if str(text).lower() == "null":
        return None
    if kind == "struct":
        return STRUCT_DEFAULT
    if kind == "records":
        return None
    if kind == "uuid":
        return bytes(16)
    if kind == "string":
        return text or ""
    if kind == "bytes":
        return b""
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "float64":
        return float(text or 0)
    return int(str(text or 0), 0)


def carried_by(definition: dict[str, Any]) -> str:
    """The versions that carry a field; some tagged fields give only `taggedVersions`."""
    versions: str = definition.get("versions") or definition["taggedVersions"]
    return versions


def as_kafka_says(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> list[tuple[Any, ...]]:
    """The fields of a JSON definition at one version, in the form of `as_declared`."""
    described = []
    for definition in fields:
        if version not in version_range(carried_by(definition)):
            continue
        element = definition["type"].removeprefix("[]")
        is_array = element != definition["type"]
        is_struct = element[0].isupper()
        kind = "array" if is_array else "struct" if is_struct else element
        nested = definition.get("fields") or (common[element]["fields"] if is_struct else [])
        is_tagged = "tag" in definition and version in version_range(definition["taggedVersions"])
        described.append(
            (
                snake_case(definition["name"]),
                kind,
                "struct" if is_struct else element,
                version in version_range(definition.get("nullableVersions", "none")),
                definition["tag"] if is_tagged else None,
                described_default(definition, kind),
                as_kafka_says(nested, common, version) if is_struct else [],
            )
        )
    return described


def as_declared(message_type: type[Message], version: int) -> list[tuple[Any, ...]]:
    """(name, kind, element kind, nullable, tag, default, nested fields) of each field that a version has."""
    described = []
    for field in message_type.FIELDS:
        if version not in field.versions:
            continue
        element: Field = field.element if field.kind == "array" else field
        described.append(
            (
                field.name,
                field.kind,
                element.kind,
                version in field.nullable,
                field.tag if version in field.tagged else None,
                field.default,
                as_declared(element.element, version) if element.kind == "struct" else [],
            )
        )
    return described


def ignorable_fields(fields: list[dict[str, Any]], common: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for definition in fields:
        element = definition["type"].removeprefix("[]")
        nested = definition.get("fields") or (common[element]["fields"] if element[0].isupper() else [])
        found[snake_case(definition["name"])] = (
            str(definition.get("ignorable", False)).lower() == "true",
            ignorable_fields(nested, common),
        )
    return found


def declared_ignorable(message_type: type[Message]) -> dict[str, Any]:
    found = {}
    for field in message_type.FIELDS:
        element: Field = field.element if field.kind == "array" else field
        nested = declared_ignorable(element.element) if element.kind == "struct" else {}
        found[field.name] = (field.ignorable, nested)
    return found


@pytest.mark.java
@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
def test_declaration_is_kafkas(message_type: type[Message]) -> None:
    definition = kafka_definition(message_type.__name__)
    common = {struct["name"]: struct for struct in definition.get("commonStructs", [])}
    assert version_range(definition["validVersions"]) == message_type.VERSIONS
    if "apiKey" in definition:
        assert definition["apiKey"] == message_type.KEY
    flexible = version_range(definition["flexibleVersions"])
    for version in message_type.VERSIONS:
        assert (version in flexible) == (version in message_type.FLEXIBLE_VERSIONS)
        assert as_declared(message_type, version) == as_kafka_says(definition["fields"], common, version)
    assert declared_ignorable(message_type) == ignorable_fields(definition["fields"], common)


ALL_APIS = {**APIS, **CONTROLLER_APIS}


@pytest.mark.parametrize("key", ALL_APIS, ids=lambda key: ApiKey(key).name)
def test_the_table_of_apis_follows_the_declarations(key: int) -> None:
    """The table repeats the first flexible version so that headers can be read before a module is imported."""
    api = ALL_APIS[key]
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request = getattr(module, camel_case(api.name) + "Request")
    response = getattr(module, camel_case(api.name) + "Response")
    assert request.KEY == response.KEY == key
    assert api.lowest in request.VERSIONS
    assert api.highest in request.VERSIONS
    assert api.highest in response.VERSIONS
    flexible = request.FLEXIBLE_VERSIONS
    assert api.flexible_from == (NEVER_FLEXIBLE if flexible == VersionRange(0, -1) else flexible.lowest)


@pytest.mark.java
@pytest.mark.parametrize("key", ALL_APIS, ids=lambda key: ApiKey(key).name)
def test_no_version_is_served_that_kafka_calls_unstable(key: int) -> None:
    """Kafka does not advertise a version marked latestVersionUnstable, such as InitProducerId v6."""
    definition = kafka_definition(camel_case(ALL_APIS[key].name) + "Request")
    newest = version_range(definition["validVersions"]).highest
    assert ALL_APIS[key].highest == (newest - 1 if definition.get("latestVersionUnstable") else newest)


@pytest.mark.java
@pytest.mark.parametrize("key", ALL_APIS, ids=lambda key: ApiKey(key).name)
def test_an_api_is_served_on_the_listeners_that_kafka_names(key: int) -> None:
    api = ALL_APIS[key]
    kinds = {kind.value for kind in api.listeners}
    assert kinds == set(kafka_definition(camel_case(api.name) + "Request")["listeners"])
