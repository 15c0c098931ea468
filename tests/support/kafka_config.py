"""Settings in `tests/pykbroker/config/cases.txt`, and what Apache Kafka's own KafkaConfig says of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.java_programs import ask

CASES_FILE = Path(__file__).parent.parent / "pykbroker" / "config" / "cases.txt"

_COMMON = {"controller.quorum.voters": "1@localhost:9093", "controller.listener.names": "CONTROLLER"}
BASES: dict[str, dict[str, str]] = {
    "both": {
        **_COMMON,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "log.dirs": "/data",
    },
    "broker": {
        **_COMMON,
        "process.roles": "broker",
        "node.id": "2",
        "listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/data",
    },
    "controller": {
        **_COMMON,
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://localhost:9093",
        "log.dirs": "/data",
    },
}
"""Settings that Kafka takes, one for each choice of roles."""


class Case(NamedTuple):
    """Changes to a base, such as ``num.partitions=0`` or ``-log.dirs``, and whether Kafka takes the settings then."""

    base: str
    changes: str
    is_accepted: bool

    @property
    def settings(self) -> dict[str, str]:
        settings = dict(BASES[self.base])
        for change in filter(None, self.changes.split(" | ")):
            key, _, value = change.partition("=")
            if change.startswith("-"):
                del settings[change[1:]]
            else:
                settings[key] = value
        return settings


def recorded_cases() -> Iterator[Case]:
    """The cases of the file. A line has the verdict, the bases and the changes, separated by tabs."""
    for line in CASES_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            verdict, bases, changes = line.split("\t")
            for base in bases.split(","):
                yield Case(base, changes, verdict == "accepted")


def ask_kafka(settings: Sequence[Mapping[str, str]]) -> list[str | None]:
    """Kafka's error text for each of these settings; None for settings that Kafka accepts.

    The test is skipped where the installed Java has no compiler for the program.
    """
    answers: list[str | None] = ask("KafkaConfigCheck", settings)
    return answers
