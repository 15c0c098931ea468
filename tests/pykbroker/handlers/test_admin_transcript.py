"""The admin handlers answer as Apache Kafka 4.3.1 did, field by field (tests/transcripts/record.py).

The requests of the transcript run through the real handlers on an image without log or sockets. What must differ
(addresses, random ids, descriptions) is not compared. Not in the transcript, as there Kafka itself answers with
UNKNOWN_SERVER_ERROR where we name the mistake: an unknown operation in IncrementalAlterConfigs of a topic, and more new
partitions than one request may have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.errors import CloseConnection
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.requests.api_table import APIS, load_handler
from tests.support.admin import answer_beside_tasks, make_context, make_services
from tests.support.transcripts import Exchange, read_transcript, to_json
from tests.transcripts.admin_requests import KAFKA_PROPERTIES

TRANSCRIPT = Path(__file__).parents[2] / "transcripts" / "admin.jsonl"

NOT_COMPARED = {"host", "port", "cluster_id", "topic_id", "documentation", "producer_id", "log_dirs"}
"""Random or a matter of the place. A topic id is compared in being zero."""

SORTED_BY = (
    "name",
    "topic_name",
    "topic",
    "user",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition_id",
    "error_code",
)
"""Kafka's order is that of a hash table in many answers."""


def _key(value: Any) -> tuple[str, ...]:
    if not isinstance(value, dict):
        return (str(value),)
    # What has none of these names is sorted as a whole.
    return (*(str(value.get(name)) for name in SORTED_BY), json.dumps(value, sort_keys=True))


def _comparable(value: Any, name: str = "") -> Any:
    if name == "topic_id":
        return bool(int(value, 16))
    if isinstance(value, dict):
        # Where the data lies is the one broker setting that the recording does not share with the replay.
        if value.get("name") == "log.dirs":
            return {"name": "log.dirs"}
        return {
            key: _comparable(content, key) for key, content in value.items() if key not in NOT_COMPARED - {"topic_id"}
        }
    if isinstance(value, list):
        members = [_comparable(member) for member in value]
        return members if name == "synonyms" else sorted(members, key=_key)
    return value


def _differences(kafka: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        return [
            difference
            for key in dict.fromkeys((*kafka, *ours))
            for difference in _differences(kafka.get(key), ours.get(key), f"{path}.{key}")
        ]
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        return [
            difference
            for number, (left, right) in enumerate(zip(kafka, ours, strict=True))
            for difference in _differences(left, right, f"{path}[{number}]")
        ]
    return [] if kafka == ours else [f"{path}: Kafka {kafka!r}, ours {ours!r}"]


def _is_excused(exchange: Exchange) -> bool:
    """Kafka fetches its first block of producer ids behind an answer that sends the client away; ours waits for it."""
    if exchange.api != "init_producer_id":
        return False
    code: int = getattr(exchange.response, "error_code", 0)
    return code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def _replay(exchanges: list[Exchange]) -> list[tuple[Exchange, Message | None]]:
    services = make_services(KAFKA_PROPERTIES)
    answers: list[tuple[Exchange, Message | None]] = []
    for exchange in exchanges:
        api = APIS[ApiKey[exchange.api.upper()]]
        _, handler = load_handler(api)
        context = make_context(exchange.version, services=services, api_key=api.key)
        try:
            answers.append((exchange, await answer_beside_tasks(handler, context, exchange.request)))
        except CloseConnection:
            answers.append((exchange, None))
    return answers


@pytest.fixture(scope="module")
def answers() -> list[tuple[Exchange, Message | None]]:
    return trio.run(_replay, list(read_transcript(TRANSCRIPT)))


def test_every_answer_is_kafkas(answers: list[tuple[Exchange, Message | None]]) -> None:
    """P-22 to P-33, P-127, P-143 to P-149, P-151 to P-153, P-155 to P-158, P-160."""
    assert len(answers) > 400
    found: list[str] = []
    for exchange, answer in answers:
        kafka = None if exchange.response is None else _comparable(to_json(exchange.response))
        ours = None if answer is None else _comparable(to_json(answer))
        differences = _differences(kafka, ours)
        if differences and not _is_excused(exchange):
            found.append(
                f"{exchange.api} v{exchange.version} {to_json(exchange.request)}\n  " + "\n  ".join(differences)
            )
    assert not found, "\n".join(found)
