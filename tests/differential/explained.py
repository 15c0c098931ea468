"""The differences that stay, each with its reason. Nothing else may differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.differential.wire import SILENCE, SOMETIMES_SILENT


class Explained(NamedTuple):
    """A difference that is meant.

    `api` and `path` (without indexes; "" is the answer itself) are regular expressions for the whole text; `applies` is
    asked about Kafka's and our value. With `is_all` whatever else differs in the same answer is a part of it.
    """

    api: str
    path: str
    applies: Callable[[Any, Any], bool]
    reason: str
    is_all: bool = False


UNKNOWN_SERVER_ERROR, INVALID_REQUEST, INVALID_CONFIG, INVALID_RECORD = -1, 42, 40, 87
INVALID_REQUIRED_ACKS = 21
INVALID_TOPIC_EXCEPTION, UNSUPPORTED_COMPRESSION_TYPE = 17, 76
FETCH_SESSION_ID_NOT_FOUND, UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR = 70, 100, 106
DUPLICATE_ENTITY = "Ignoring duplicate entity"
ALL_FAILED = "The update failed for all features"
NEGATIVE_PARTITION = "Initialize share group parameters has invalid partitionId"
GENERIC_TEXT = "This most likely occurs because of a request being malformed by the client library"
"""The beginning of Kafka's text for INVALID_REQUEST."""


def _starts(text: Any, start: str | tuple[str, ...]) -> bool:
    return isinstance(text, str) and text.startswith(start)


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        ".*",
        ".*error_message",
        lambda kafka, ours: _starts(kafka, GENERIC_TEXT) and bool(ours),
        "Kafka sends the general text of the error code, ours says what is wrong",
    ),
    Explained(
        ".*",
        ".*error_message",
        lambda kafka, ours: (
            _starts(kafka, "Request Request(")
            and _starts(ours, "Request ")
            and kafka.endswith(ours[ours.index(" needs ") :])
        ),
        "a refusal: Kafka prints its object of the request, ours names the API",
    ),
    Explained(
        "|".join(SOMETIMES_SILENT),
        "",
        lambda kafka, ours: kafka == SILENCE and isinstance(ours, dict),
        "Kafka's handler fails and the client never gets an answer",
        is_all=True,
    ),
    Explained(
        "fetch",
        ".error_code",
        lambda kafka, ours: kafka == UNKNOWN_SERVER_ERROR and ours in (0, FETCH_SESSION_TOPIC_ID_ERROR),
        "Kafka fails with a NullPointerException on several topics of which it does not know the ids",
        is_all=True,
    ),
    Explained(
        "fetch",
        ".error_code",
        lambda kafka, ours: (kafka, ours) == (UNKNOWN_SERVER_ERROR, FETCH_SESSION_ID_NOT_FOUND),
        "the largest session id is beyond the end of Kafka's table of session caches",
        is_all=True,
    ),
    Explained(
        "fetch",
        ".responses.partitions.error_code",
        lambda kafka, ours: (kafka, ours) == (UNKNOWN_SERVER_ERROR, 0),
        "a negative number of bytes to read: Kafka fails with an exception where there is something to read",
        is_all=True,
    ),
    Explained(
        "describe_topic_partitions",
        ".topics.error_code",
        lambda kafka, ours: (kafka, ours) == (UNKNOWN_SERVER_ERROR, INVALID_TOPIC_EXCEPTION),
        "Kafka fails with an exception on an empty topic name",
        is_all=True,
    ),
    Explained(
        "describe_topic_partitions",
        ".topics",
        lambda kafka, ours: (
            {topic["error_code"] for topic in kafka} == {UNKNOWN_SERVER_ERROR}
            and {topic["name"]: topic["error_code"] for topic in ours}.get("") == INVALID_TOPIC_EXCEPTION
        ),
        "Kafka fails with an exception on an empty topic name, and names a topic as often as the request",
    ),
    Explained(
        "describe_quorum",
        ".nodes.listeners",
        lambda kafka, ours: not ours,
        "one node's controller has no listener here",
    ),
    Explained(
        "share_fetch|share_acknowledge",
        ".error_code",
        lambda kafka, ours: (kafka, ours) == (UNKNOWN_SERVER_ERROR, 0),
        "Kafka fails with an exception: on an id of no topic if it has an authorizer, on a partition that comes twice",
        is_all=True,
    ),
    Explained(
        "incremental_alter_configs",
        ".responses.error_code",
        lambda kafka, ours: kafka == UNKNOWN_SERVER_ERROR and ours in (INVALID_REQUEST, INVALID_CONFIG),
        "Kafka fails with a NullPointerException on an unknown operation, ours names it",
        is_all=True,
    ),
    Explained(
        "produce",
        ".*error_code",
        lambda kafka, ours: (
            kafka == UNKNOWN_SERVER_ERROR
            and ours in (INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, INVALID_REQUIRED_ACKS)
        ),
        "a record that cannot be read: Kafka's parser fails with an exception that has no error code",
    ),
    Explained(
        "produce",
        ".*error_message",
        lambda kafka, ours: isinstance(kafka, str) and ours is None,
        "the text of a Java exception that concerns the request as a whole",
    ),
    Explained(
        "alter_client_quotas",
        ".entries.error_message",
        lambda kafka, ours: _starts(kafka, DUPLICATE_ENTITY) and sorted(kafka) == sorted(ours),
        "the parts of an entity in the order of a hash table",
    ),
    Explained(
        "alter_share_group_offsets",
        ".error_message",
        lambda kafka, ours: _starts(kafka, NEGATIVE_PARTITION) and _starts(ours, NEGATIVE_PARTITION),
        "of several topics with a negative partition Kafka names the first of a hash table by topic id",
    ),
    Explained(
        "update_features",
        "(.results)?.error_message",
        lambda kafka, ours: _starts(kafka, ALL_FAILED) and _starts(ours, ALL_FAILED),
        "of several features that are refused Kafka names the first of a hash table",
    ),
)


def explanation_of(request: str, path: str, kafka: Any, ours: Any) -> Explained | None:
    """Explanation of a difference that is intended, or None. `request` is the step as text."""
    api = request.partition(": ")[2].split()[0]
    for entry in EXPLAINED:
        if (
            re.fullmatch(entry.api, api)
            and re.fullmatch(entry.path, re.sub(r"\[\d+\]| \(of .*", "", path))
            and entry.applies(kafka, ours)
        ):
            return entry
    return None
