"""Writes docs/compatibility.md: `python tools/compatibility.py`; `--check` only compares.

The versions served come from the table of APIs (`pykbroker/requests/api_table.py`), those of Apache Kafka from
kafka_apis.txt beside this file, the differences in single answers from `tests/differential/explained.py`, where the
comparison of both brokers takes them from. tests/tools/test_compatibility.py fails when the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
if str(CHECKOUT) not in sys.path:
    sys.path.append(str(CHECKOUT))

from pykbroker.requests.api_table import APIS, CONTROLLER_APIS, camel_case  # noqa: E402
from tests.differential.explained import EXPLAINED  # noqa: E402

if TYPE_CHECKING:
    from pykbroker.requests.api_table import Api

PAGE = CHECKOUT / "docs" / "compatibility.md"
KAFKA_APIS = Path(__file__).resolve().parent / "kafka_apis.txt"

# What is known to differ in an API that is served, beside single answers.
REMARKS = {
    "Metadata": "a single broker that listens on every address and has no host in `advertised.listeners` names the "
    "host that the client dialled",
    "ShareFetch": "a partition of an unknown topic id has UNKNOWN_TOPIC_ID; Kafka fails the whole request, "
    "UNKNOWN_SERVER_ERROR",
    "ApiVersions": "the features of what is not served are missing",
    "AssignReplicasToDirs": "brokers with one directory send it when their disk is full",
    **dict.fromkeys(
        ("GetTelemetrySubscriptions", "PushTelemetry"),
        "as in Kafka, ApiVersions lists it if `metric.reporters` names a receiver, which is a Python class here",
    ),
}

ZOOKEEPER = "left Kafka with ZooKeeper"
NOT_SERVED = {
    **dict.fromkeys(("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"), ZOOKEEPER),
}

HEAD = """# Compatibility

Made by `python tools/compatibility.py`; do not edit. The reference is Apache Kafka 4.3.1. A client learns the
same from the broker: ApiVersions names exactly the versions below.

## APIs

"Port" says where an API is served: on brokers' listeners, controllers' listeners, or both. Where nothing is said of the
difference none is known.

| key | API | versions | Kafka 4.3.1 | port | what differs |
|---|---|---|---|---|---|
"""

SINGLE_ANSWERS = """
## Single answers

The same requests are sent to both brokers (`tests/differential`). These differences are meant, and any other fails:

"""


class KafkaApi(NamedTuple):
    """An API of Apache Kafka: `versions` as its message definition has them, "none" for one that is gone."""

    key: int
    name: str
    versions: str
    listeners: str
    is_highest_unstable: bool


def kafka_apis() -> list[KafkaApi]:
    """All APIs of Apache Kafka, by key."""
    found = []
    for line in KAFKA_APIS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            key, name, versions, listeners, *rest = line.split()
            found.append(KafkaApi(int(key), name, versions, listeners, rest == ["unstable"]))
    return found


def served(key: int) -> Api | None:
    """The entry of our table, None for an API that is not served."""
    return APIS.get(key) or CONTROLLER_APIS.get(key)


def version_text(lowest: int, highest: int) -> str:
    """`0-4`, or `0` for a single version."""
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def row(api: KafkaApi) -> str:
    """A line of the table; raises KeyError for an API that is not served without a reason in NOT_SERVED."""
    theirs = api.versions + (" (the last one is unstable)" if api.is_highest_unstable else "")
    ours = served(api.key)
    if ours is None:
        return f"| {api.key} | {api.name} | - | {theirs} |  | not served: {NOT_SERVED[api.name]} |"
    remarks = [REMARKS[api.name]] if api.name in REMARKS else []
    versions = version_text(ours.lowest, ours.highest)
    if ours.advertised_lowest != ours.lowest:
        remarks.append(
            f"as in Kafka, ApiVersions names versions from {ours.advertised_lowest}, which old librdkafka looks for"
        )
    if ours.unstable is not None:
        remarks.append(f"as in Kafka, {ours.unstable} only with `unstable.api.versions.enable`")
    port = ", ".join(sorted(listener.name.lower() for listener in ours.listeners))
    return f"| {api.key} | {api.name} | {versions} | {theirs} | {port} | {'; '.join(remarks)} |"


def answers() -> list[str]:
    """The differences in single answers, as the lines of a list."""
    return [
        f"* {'all APIs' if entry.api == '.*' else ', '.join(map(camel_case, entry.api.split('|')))}: {entry.reason}"
        for entry in EXPLAINED
    ]


def page() -> str:
    """The whole page."""
    apis = kafka_apis()
    unknown = ({*REMARKS} | {*NOT_SERVED}) - {api.name for api in apis}
    missing = sorted(api.name for api in apis if served(api.key) is not None and api.name in NOT_SERVED)
    if unknown or missing:
        raise ValueError(f"not APIs of Kafka: {sorted(unknown)}; served, and listed as not served: {missing}")
    lines = "\n".join(row(api) for api in apis)
    return f"{HEAD}{lines}\n{SINGLE_ANSWERS}" + "\n".join(answers()) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the page; with --check only says whether it is up to date, and exits with 1 if it is not."""
    after = page()
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == after
    if "--check" not in arguments:
        PAGE.write_text(after, encoding="utf-8")
    print(
        "docs/compatibility.md",
        "is up to date" if is_current else "is out of date" if "--check" in arguments else "written",
    )
    return 0 if is_current or "--check" not in arguments else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
