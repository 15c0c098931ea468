"""Records what Kafka answers to users with few rights: `python -m tests.transcripts.record_authorization HOST:PORT`.

Against a fresh single broker with `PROPERTIES`, replication factor 1 for internal topics, an internal PLAINTEXT
listener, and a SASL_PLAINTEXT one at HOST:PORT where each user's password is its name; formatted with the feature
eligible.leader.replicas.version=0. The requests are in `authorization_steps`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.create_topics import CreateTopicsResponse
from pykbroker.requests.api_table import camel_case
from tests.support.transcripts import Client, Exchange, api_of, to_line
from tests.transcripts.authorization_requests import ADMIN, RIGHTS, authorization_steps

TRANSCRIPT = Path(__file__).with_name("authorization.jsonl")

PAUSE_S = 2.0
"""Kafka's broker follows its controller some milliseconds later, and coordinators load."""


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    clients = {user: Client(host, int(port), user) for user in (ADMIN, *RIGHTS)}
    ids: dict[str, bytes] = {}
    with TRANSCRIPT.open("w") as file:
        for step in authorization_steps(ids):
            if step is None:
                time.sleep(PAUSE_S)
                continue
            answer: Message | None = clients[step.user].call(step.request, step.version)
            if step.user == ADMIN and isinstance(answer, CreateTopicsResponse):
                ids |= {topic.name: topic.topic_id for topic in answer.topics}
            line = to_line(Exchange(api_of(step.request), step.version, step.request, answer))
            entry = {"user": step.user, **json.loads(line)}
            text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            # Kafka's text has its whole request object in it, addresses and buffers included.
            print(
                re.sub(r"Request Request\([^\"]*\) needs", f"Request {camel_case(entry['api'])} needs", text), file=file
            )
    for client in clients.values():
        client.close()


if __name__ == "__main__":
    main(sys.argv[1])
