"""Users with few rights get the answers that Apache Kafka 4.3.1 gave them (tests/transcripts/record_authorization.py).

A broker with SASL/PLAIN and the authorizer is asked what Kafka was asked, in the same order, and every answer is
compared field by field but for what must differ (addresses, random ids, sizes). It runs in a thread of this process, so
that the refusals of all handlers are in the coverage of the unit tests.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.controller.formatting import write_first_levels
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS, ELIGIBLE_LEADER_REPLICAS_VERSION
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.api_table import APIS
from tests.support.transcripts import Client, class_of, from_json, to_json
from tests.support.whole_broker import WholeBroker
from tests.transcripts.authorization_requests import ADMIN, PROPERTIES, RIGHTS

TRANSCRIPT = Path(__file__).parents[1] / "transcripts" / "authorization.jsonl"

NOT_ASKED_BY_USERS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""These come before anybody knows who asks."""

FORWARDED_ALONE = {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
"""A broker only sends these on; what the controller's port wants of who asks is in test_controller_port."""

OPEN_TO_ALL = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""Apache Kafka asks for no permission, and a stock broker lists neither."""

NOT_COMPARED = {"host", "port", "cluster_id", "producer_id", "session_id", "records", "controller_id"}
NOT_COMPARED |= {"log_dir", "total_bytes", "usable_bytes", "partition_size"}
SORTED_BY: tuple[str, ...] = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "resource_type",
    "resource_name",
    "pattern_type",
)
SORTED_BY += ("pattern_type", "principal", "user", "operation", "permission_type", "partition_index", "error_code")


class Question:
    """One line of the transcript."""

    def __init__(self, number: int, line: str) -> None:
        entry = json.loads(line)
        self.number = number
        self.user: str = entry["user"]
        self.api: str = entry["api"]
        self.version: int = entry["version"]
        self.request: dict[str, Any] = entry["request"]
        self.kafka: dict[str, Any] | None = entry["response"]

    @property
    def is_excused(self) -> bool:
        """Kafka fetches its first block of producer ids behind an answer that sends the client away; ours waits."""
        code = None if self.kafka is None else self.kafka.get("error_code")
        return self.api == "init_producer_id" and code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __str__(self) -> str:
        return f"{self.number}: {self.user} {self.api} v{self.version} {json.dumps(self.request)}"


QUESTIONS = [Question(number, line) for number, line in enumerate(TRANSCRIPT.read_text().splitlines(), start=1)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeBroker]:
    """Formatted as Kafka was for the recording."""
    directory = tmp_path_factory.mktemp("authorization") / "data"
    directory.mkdir()
    levels = {**BOOTSTRAP_LEVELS, ELIGIBLE_LEADER_REPLICAS_VERSION: 0}
    write_first_levels(OsFileSystem(), str(directory), levels, now_ms=1)
    users = " ".join(f'user_{user}="{user}"' for user in (ADMIN, *RIGHTS))
    config = {
        **PROPERTIES,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
    }
    defects = Defects()
    logging.getLogger("pykbroker").addHandler(defects)
    try:
        with WholeBroker(directory, config) as running:
            yield running
    finally:
        logging.getLogger("pykbroker").removeHandler(defects)
    assert not defects.found


class Defects(logging.Handler):
    """Keeps the log lines with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


class Replay:
    """Asks what was asked then; topic ids are another broker's, and are translated both ways."""

    def __init__(self, port: int) -> None:
        self._clients = {user: Client("127.0.0.1", port, user) for user in (ADMIN, *RIGHTS)}
        self._ours_by_kafkas: dict[str, str] = {}

    def ask(self, question: Question) -> dict[str, Any] | None:
        text = json.dumps(question.request)
        for kafkas, ours in self._ours_by_kafkas.items():
            text = text.replace(kafkas, ours)
        request = from_json(class_of(question.api, "Request"), json.loads(text))
        response = self._clients[question.user].call(request, question.version)
        if response is None:
            return None
        answer: dict[str, Any] = to_json(response)
        if question.api == "create_topics" and question.user == ADMIN:
            assert question.kafka is not None
            ids = {topic["name"]: topic["topic_id"] for topic in answer["topics"]}
            self._ours_by_kafkas |= {topic["topic_id"]: ids[topic["name"]] for topic in question.kafka["topics"]}
        text = json.dumps(answer)
        for kafkas, ours in self._ours_by_kafkas.items():
            text = text.replace(ours, kafkas)
        translated: dict[str, Any] = json.loads(text)
        return translated

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: (int(content, 16) > 0 if name == "topic_id" else comparable(content))
            for name, content in value.items()
            if name not in NOT_COMPARED
        }
    if isinstance(value, list):
        members = [comparable(member) for member in value]
        return sorted(members, key=_sort_key)
    return value


def _sort_key(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps([[str(value.get(name)) for name in SORTED_BY], value], sort_keys=True)
    return json.dumps(value)


def test_every_answer_is_kafkas(broker: WholeBroker) -> None:
    """P-30, P-155, and what each API says to whoever may not."""
    replay = Replay(broker.address.port)
    found: list[str] = []
    try:
        for question in QUESTIONS:
            ours = replay.ask(question)
            if comparable(question.kafka) != comparable(ours) and not question.is_excused:
                found.append(f"{question}\n  Kafka {json.dumps(question.kafka)}\n  ours  {json.dumps(ours)}")
    finally:
        replay.close()
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


def test_the_transcript_asks_every_api() -> None:
    """An API that is served without a question here may have been forgotten by whoever added it."""
    asked = {ApiKey[question.api.upper()] for question in QUESTIONS if question.user == "nobody"}
    assert set(APIS) - NOT_ASKED_BY_USERS - FORWARDED_ALONE - OPEN_TO_ALL <= asked
