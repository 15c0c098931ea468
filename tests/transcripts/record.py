"""Records what Apache Kafka answers: `python -m tests.transcripts.record HOST:PORT`, against a fresh single broker.

Kafka is started with `KAFKA_PROPERTIES` (the data directory may be another) and formatted with the feature
eligible.leader.replicas.version=0, as that adds a dynamic setting of its own. The requests are in `admin_requests`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pykbroker.requests.api_table import APIS
from tests.support.transcripts import Client, Exchange, to_line
from tests.transcripts.admin_requests import admin_requests

TRANSCRIPT = Path(__file__).with_name("admin.jsonl")

PAUSE_S = 1.0
"""Kafka's broker follows its controller some milliseconds later."""


def main(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    client = Client(host, int(port))
    with TRANSCRIPT.open("w") as file:
        for step in admin_requests():
            if step is None:
                time.sleep(PAUSE_S)
                continue
            version, request = step
            exchange = Exchange(APIS[request.KEY].name, version, request, client.call(request, version))
            print(to_line(exchange), file=file)


if __name__ == "__main__":
    main(sys.argv[1])
