"""AlterClientQuotas: the records of a request, and the errors for clients (P-160)."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.client_quotas import AlterClientQuotas, Entity, QuotaAlteration
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, CommandRefused
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord
from tests.controller.world import World

ANNA: Entity = (("user", "anna"),)
ANYBODY: Entity = (("user", None),)
ANNAS_CLIENTS: Entity = (("client-id", None), ("user", "anna"))
RATE = "producer_byte_rate"


def alter(world: World, *changes: tuple[Entity, list[tuple[str, float | None]]]) -> dict[Entity, ApiError]:
    return world.do(AlterClientQuotas([QuotaAlteration(entity, operations) for entity, operations in changes]))


def stored(world: World) -> set[tuple[frozenset[tuple[str, str | None]], str, float]]:
    return {
        (frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key, record.value)
        for record in world.image.kept_records.values()
        if isinstance(record, ClientQuotaRecord)
    }


def text_of(world: World, entity: Entity, key: str = RATE, value: float = 1.0) -> str | None:
    (error,) = alter(world, (entity, [(key, value)])).values()
    assert error.code == (ErrorCode.INVALID_REQUEST if error.message else ErrorCode.NONE)
    return error.message


def test_a_default_is_not_a_name_and_a_pair_is_not_its_parts() -> None:
    """P-160."""
    world = World()
    values = {ANNA: 1.0, ANYBODY: 2.0, ANNAS_CLIENTS: 3.0, (("ip", None),): 4.0}
    for entity, value in values.items():
        key = "connection_creation_rate" if entity[0][0] == "ip" else RATE
        assert alter(world, (entity, [(key, value)])) == {entity: NO_ERROR}
    assert {value for _, _, value in stored(world)} == {1.0, 2.0, 3.0, 4.0}
    alter(world, (ANYBODY, [(RATE, None)]))
    assert {value for _, _, value in stored(world)} == {1.0, 3.0, 4.0}


def test_what_changes_nothing_is_not_written() -> None:
    world = World()
    alter(world, (ANNA, [(RATE, 5.0)]))
    before = world.image.offset
    assert alter(world, (ANNA, [(RATE, 5.0), ("nothing.like.it", None)])) == {ANNA: NO_ERROR}
    command = AlterClientQuotas([QuotaAlteration(ANNA, [(RATE, 6.0)])], validate_only=True)
    assert world.do(command) == {ANNA: NO_ERROR}
    assert world.image.offset == before


def test_one_bad_quota_keeps_its_entity_as_it_was_and_no_other() -> None:
    world = World()
    errors = alter(world, (ANNA, [(RATE, 5.0), ("nope", 1.0)]), (ANYBODY, [(RATE, 6.0)]))
    assert errors[ANNA] == ApiError(ErrorCode.INVALID_REQUEST, "Invalid configuration key nope")
    assert errors[ANYBODY] == NO_ERROR
    assert {value for _, _, value in stored(world)} == {6.0}


def test_of_several_bad_quotas_the_first_of_a_hash_table_is_named() -> None:
    """P-160: Kafka's order is that of a HashMap for as many keys as the entity has."""
    for keys in (["alpha", "beta"], ["beta", "alpha"]):
        errors = alter(World(), (ANNA, [(key, 1.0) for key in keys]))
        assert errors[ANNA].message == "Invalid configuration key beta"
    errors = alter(World(), (ANNA, [("controller_mutation_rate", -1.0), ("nope", 1.0)]))
    assert errors[ANNA].message == "Invalid configuration key nope"


def test_an_entity_that_comes_twice_keeps_what_it_was_given_first() -> None:
    world = World()
    errors = alter(world, (ANNAS_CLIENTS, [(RATE, 1.0)]), (ANNAS_CLIENTS, [(RATE, 2.0)]))
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=anna})"
    assert errors == {ANNAS_CLIENTS: ApiError(ErrorCode.INVALID_REQUEST, text)}
    assert {value for _, _, value in stored(world)} == {1.0}
    (error,) = alter(world, (ANNA, [(RATE, 1.0), (RATE, 2.0)])).values()
    assert error.message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=anna})"
    assert len(stored(world)) == 1


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        ((), "Invalid empty client quota entity"),
        ((("planet", "x"),), "Unhandled client quota entity type: planet"),
        # In the order of Java's hash table.
        ((("planet", "x"), ("star", "y")), "Unhandled client quota entity type: star"),
        ((("user", ""),), "Empty user not supported"),
        (
            (("user", "u"), ("ip", "1.2.3.4")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
def test_entities_that_make_no_sense(entity: Entity, text: str) -> None:
    assert text_of(World(), entity) == text


def test_hosts_that_nobody_knows() -> None:
    command = AlterClientQuotas(
        [QuotaAlteration((("ip", name),), [("connection_creation_rate", 1.0)]) for name in ("here", "nowhere")],
        unknown_hosts=frozenset({"nowhere"}),
    )
    world = World()
    assert [error.message for error in world.do(command).values()] == [
        None,
        "nowhere is not a valid IP or resolvable host.",
    ]
    assert len(stored(world)) == 1


@pytest.mark.parametrize(
    ("entity", "key", "value", "text"),
    [
        (ANNA, RATE, 0.0, f"Quota {RATE} must be greater than 0"),
        (ANNA, RATE, -1.0, f"Quota {RATE} must be greater than 0"),
        (ANNA, RATE, 1.5, f"{RATE} cannot be a fractional value."),
        (ANNA, RATE, 1.0000001, None),
        (ANNA, RATE, 2.0**63, None),
        (ANNA, RATE, 1e19, f"Proposed value for {RATE} is too large for a LONG."),
        (ANNA, RATE, float("inf"), f"Proposed value for {RATE} is too large for a LONG."),
        (ANNA, RATE, float("nan"), None),
        (ANNA, "request_percentage", 0.01, None),
        (ANNA, "request_percentage", float("inf"), None),
        (ANNA, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ((("ip", None),), "connection_creation_rate", 2.0**31 - 1, None),
        (
            (("ip", None),),
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ((("ip", None),), RATE, 1.0, f"Invalid configuration key {RATE}"),
    ],
)
def test_values_are_judged_as_kafka_does(entity: Entity, key: str, value: float, text: str | None) -> None:
    assert text_of(World(), entity, key, value) == text


def test_a_request_with_too_many_records_is_refused_as_a_whole() -> None:
    alterations = [QuotaAlteration((("user", str(number)),), [(RATE, 1.0)]) for number in range(10_001)]
    with pytest.raises(CommandRefused) as refused:
        World().do(AlterClientQuotas(alterations))
    assert refused.value.error.code == ErrorCode.POLICY_VIOLATION
