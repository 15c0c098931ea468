"""Settings that Apache Kafka takes start us, and those that it refuses do not, but for what is explained here.

`cases.txt` has what Kafka's KafkaConfig says of combinations; it is compared with every run, and asked again
where Java is at hand. There every key is also given values around the edges of types and ranges.
"""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, SHORT, STRING, ConfigKey
from pykbroker.config.definitions.broker import BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS
from tests.support.kafka_config import BASES, Case, ask_kafka, recorded_cases

ONE_NODE = "without it one node is made that is broker and controller, with defaults where Kafka has none"
NO_PLACE = "Kafka takes an address that nobody can connect to"
LATER = "not available yet"

EXPLAINED = {
    "-process.roles": ONE_NODE,
    "-controller.listener.names": ONE_NODE,
    "-controller.quorum.voters": ONE_NODE,
    "-listeners": ONE_NODE,
    "controller.listener.names=controller": "names of listeners are the same in lower case",
    "controller.quorum.voters=1@:9093": NO_PLACE,
    "controller.quorum.voters=-1@localhost:9093": NO_PLACE,
    "controller.quorum.voters=1@localhost:9093,2@0.0.0.0:9093": NO_PLACE,
    "controller.quorum.voters=1@localhost:9093,2@localhost:0": NO_PLACE,
    "-controller.quorum.voters | controller.quorum.bootstrap.servers=:9093": NO_PLACE,
    "-controller.quorum.voters | controller.quorum.bootstrap.servers=localhost:0": NO_PLACE,
    "controller.listener.names=SASL_PLAINTEXT": LATER,
    "advertised.listeners=PLAINTEXT://localhost:9092": "a controller has no use for it: it may be a mistake",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT": LATER,
}
"""Changes whose verdict here is not Kafka's, with the reason; in some roles they may have the same."""

EXPLAINED_ENDINGS = {
    "listeners=A://0.0.0.0:9092,CONTROLLER://localhost:9093": "a client is told the address that it has dialled",
}

EXPLAINED_KEYS = {
    "authorizer.class.name": LATER,
    "broker.heartbeat.interval.ms": "Kafka takes intervals that are no times",
    "broker.session.end.on.refusal": "a key of ours",
    "broker.session.timeout.ms": "Kafka takes timeouts that are no times",
    "controller.quorum.election.on.refusal": "a key of ours",
    "controller.quorum.voters": ONE_NODE,
    "listeners": ONE_NODE,
    "log.dirs": LATER,
    "replica.selector.class": LATER,
}
"""Keys with values of which Kafka takes some and we others. Classes cannot be looked for without Java."""

NUMBERS = [
    "-2",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "5",
    "10",
    "11",
    "100",
    "1000",
    "5000",
    "10000",
    "1048576",
    "1048577",
    "60000",
    "100000000",
    "x",
    "+5",
    "1.5",
    "0x10",
    "1_0",
]
VALUES = {
    DOUBLE: [*NUMBERS, "", " 5 ", "0.5", ".5", "5.", "1e3", "5d", "NaN", "Infinity", "nan", "inf", "-0.1", "1.1"],
    BOOLEAN: ["true", "TRUE", " false", "yes", "1", ""],
    LIST: ["", "a", "a,b", "a,a", " a , b ", ",", "a,,b", "*"],
    STRING: ["", "a", " "],
    CLASS: ["", " "],
}
BITS = {SHORT: 16, INT: 32, LONG: 64}


def refusal(settings: dict[str, str]) -> str | None:
    try:
        BrokerConfig.from_properties(settings)
    except ConfigError as error:
        return str(error)
    return None


def is_explained(changes: str) -> bool:
    return changes in EXPLAINED or changes.endswith(tuple(EXPLAINED_ENDINGS))


def test_combinations_have_kafkas_verdict() -> None:
    differing = []
    for case in recorded_cases():
        reason = refusal(case.settings)
        if (reason is None) is not case.is_accepted and not is_explained(case.changes):
            differing.append(f"{case.base}: {case.changes}: {reason or 'accepted here'}")
    assert differing == []


def test_every_explanation_is_of_use() -> None:
    """A difference that is gone is taken from the list."""
    used = {case.changes for case in recorded_cases() if (refusal(case.settings) is None) is not case.is_accepted}
    assert set(EXPLAINED) <= used
    assert all(any(changes.endswith(ending) for changes in used) for ending in EXPLAINED_ENDINGS)


@pytest.mark.java
def test_kafka_still_says_so() -> None:
    """The file is what Apache Kafka says."""
    cases = list(recorded_cases())
    answers = ask_kafka([case.settings for case in cases])
    differing = [
        f"{case.base}: {case.changes}: {answer or 'accepted by Kafka'}"
        for case, answer in zip(cases, answers, strict=True)
        if (answer is None) is not case.is_accepted
    ]
    assert differing == []


def values_of(definition: ConfigKey) -> list[str]:
    bits = BITS.get(definition.type)
    if bits is None:
        values = VALUES.get(definition.type, [])
        if definition.default is None:
            return values
        is_text = definition.type == STRING
        return [*values, definition.default, *([definition.default.upper()] if is_text else [])]
    limit = 1 << (bits - 1)
    return [*NUMBERS, "", " 5 ", str(limit - 1), str(limit), str(-limit)]


@pytest.mark.java
def test_each_key_takes_the_values_that_kafka_takes() -> None:
    cases = [
        Case("both", f"{key}={value}", is_accepted=True)
        for key, definition in {**BROKER_CONFIGS, **INTERNAL_BROKER_CONFIGS}.items()
        if key not in EXPLAINED_KEYS
        for value in values_of(definition)
    ]
    answers = ask_kafka([{**BASES[case.base], **case.settings} for case in cases])
    differing = [
        f"{case.changes}: Kafka: {answer or 'accepted'}; here: {reason or 'accepted'}"
        for case, answer in zip(cases, answers, strict=True)
        if (answer is None) is not ((reason := refusal(case.settings)) is None)
    ]
    assert differing == []
