"""AlterConfigs and IncrementalAlterConfigs (P-153)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigs,
    ConfigEdit,
    ConfigResourceEdits,
    ConfigResourceReplacement,
    IncrementalAlterConfigs,
)
from pykbroker.controller.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.world import World

OK = (ErrorCode.NONE, None)


def world_with_topic() -> World:
    world = World()
    world.do(CreateTopics([NewTopic("t", configs=[("retention.ms", "1"), ("segment.bytes", "2")])]))
    return world


def edit(world: World, *edits: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC_RESOURCE) -> object:
    resource = ConfigResourceEdits(kind, name, [ConfigEdit(*e) for e in edits])
    (result,) = world.do(IncrementalAlterConfigs([resource]))
    return result.error


def replace(world: World, *configs: tuple[str, str | None], name: str = "t", kind: int = TOPIC_RESOURCE) -> object:
    (result,) = world.do(AlterConfigs([ConfigResourceReplacement(kind, name, configs)]))
    return result.error


def test_p153_the_old_api_replaces_everything() -> None:
    """P-153."""
    world = world_with_topic()
    assert replace(world, ("retention.ms", "7")) == OK
    assert world.image.topic_config("t") == {"retention.ms": "7"}
    assert replace(world) == OK
    assert world.image.topic_config("t") == {}


def test_p153_the_new_api_edits() -> None:
    """P-153: what is not named stays; deleting a key that is not set succeeds."""
    world = world_with_topic()
    assert edit(world, ("retention.ms", SET, "7"), ("cleanup.policy", DELETE, None)) == OK
    assert world.image.topic_config("t") == {"retention.ms": "7", "segment.bytes": "2"}
    assert edit(world, ("retention.ms", DELETE, None)) == OK
    assert world.image.topic_config("t") == {"segment.bytes": "2"}


def test_p153_lists_grow_and_shrink() -> None:
    """P-153: APPEND and SUBTRACT begin with the default where nothing was set."""
    world = world_with_topic()
    assert edit(world, ("cleanup.policy", APPEND, "compact")) == OK
    assert world.image.topic_config("t")["cleanup.policy"] == "delete,compact"
    assert edit(world, ("cleanup.policy", APPEND, "compact")) == OK
    assert edit(world, ("cleanup.policy", SUBTRACT, "delete,absent")) == OK
    assert world.image.topic_config("t")["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("operation", "value", "after"),
    [
        (APPEND, "compact,", "delete,compact"),
        (APPEND, ",", "delete"),
        (SUBTRACT, "delete,,", ""),
    ],
)
def test_p153_empty_parts_at_the_end_are_none(operation: int, value: str, after: str) -> None:
    """P-153: what Java's String.split leaves of the value."""
    world = world_with_topic()
    assert edit(world, ("cleanup.policy", SET, "delete")) == OK
    assert edit(world, ("cleanup.policy", operation, value)) == OK
    assert world.image.topic_config("t")["cleanup.policy"] == after


def test_p153_append_to_what_is_no_list() -> None:
    """P-153."""
    assert edit(world_with_topic(), ("retention.ms", APPEND, "1")) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


def test_p153_one_bad_key_changes_nothing_of_its_resource() -> None:
    """P-153."""
    world = world_with_topic()
    assert edit(world, ("retention.ms", SET, "9"), ("segment.bytes", SET, "bad")) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value bad for configuration segment.bytes",
    )
    assert world.image.topic_config("t") == {"retention.ms": "1", "segment.bytes": "2"}


def test_the_first_of_several_edits_that_are_refused_is_that_of_kafkas_table() -> None:
    """P-696."""
    for names in (("retention.ms", "flush.ms", "segment.ms"), ("segment.ms", "flush.ms", "retention.ms")):
        error = edit(world_with_topic(), *((name, APPEND, "1") for name in names))
        assert error == (ErrorCode.INVALID_CONFIG, "Can't APPEND to key flush.ms because its type is not LIST.")


def test_requests_that_are_malformed() -> None:
    world = world_with_topic()
    assert edit(world, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )
    assert edit(world, ("retention.ms", SET, None)) == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    )
    assert edit(world, ("retention.ms", 9, "1")) == (ErrorCode.INVALID_REQUEST, "Unknown operations type 9")
    assert edit(world, name="t", kind=99) == (ErrorCode.INVALID_REQUEST, "Unknown resource type 99")
    assert replace(world, ("retention.ms", None)) == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    )
    assert replace(world, ("retention.ms", "x" * 32768)) == (
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
    )
    twice = ConfigResourceReplacement(TOPIC_RESOURCE, "t", [])
    assert [result.error for result in world.do(AlterConfigs([twice, twice]))] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2


@pytest.mark.parametrize(
    ("kind", "name", "code", "text"),
    [
        (TOPIC_RESOURCE, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC_RESOURCE, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (BROKER_RESOURCE, "x", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        # Numbers for Python, but not for Java.
        (BROKER_RESOURCE, "0_1", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER_RESOURCE, " 1", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER_RESOURCE, "2147483648", ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."),
        (BROKER_RESOURCE, "-1", ErrorCode.INVALID_REQUEST, "Invalid negative broker ID."),
        (GROUP_RESOURCE, "", ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
    ],
)
def test_names_that_no_resource_can_have(kind: int, name: str, code: ErrorCode, text: str | None) -> None:
    error: Any = edit(world_with_topic(), name=name, kind=kind)
    assert error[0] == code
    assert error[1] == text if text is not None else "contains one or more characters other than" in error[1]


def test_resources_that_do_not_exist() -> None:
    world = world_with_topic()
    assert edit(world, ("retention.ms", SET, "1"), name="none") == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'none' does not exist.",
    )
    assert edit(world, name="") == (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    assert edit(world, ("log.cleaner.threads", SET, "2"), name="7", kind=BROKER_RESOURCE) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "No node with id 7 found.",
    )
    assert edit(world, name="one", kind=BROKER_RESOURCE) == (
        ErrorCode.INVALID_REQUEST,
        "Unable to parse broker name as a base 10 number.",
    )


def test_broker_configs_are_written_again_although_unchanged() -> None:
    """A broker reads password files again when a record names their key; for other resources no record is needed."""
    world = world_with_topic()
    for _ in range(2):
        before = len(world.records)
        assert edit(world, ("log.cleaner.threads", SET, "2"), name="", kind=BROKER_RESOURCE) == OK
        assert len(world.records) == before + 1
    before = len(world.records)
    assert edit(world, ("retention.ms", SET, "1")) == OK
    assert len(world.records) == before


def test_validate_only_writes_nothing() -> None:
    world = world_with_topic()
    resource = ConfigResourceReplacement(TOPIC_RESOURCE, "t", [])
    (result,) = world.do(AlterConfigs([resource], validate_only=True))
    assert result.error == OK
    assert len(world.image.topic_config("t")) == 2
