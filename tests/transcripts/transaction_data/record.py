"""Records what Apache Kafka answers: `python -m tests.transcripts.transaction_data.record HOST PORT`, a fresh node."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.transcripts import Client
from tests.transcripts.transaction_data.script import run

ANSWERS = Path(__file__).with_name("answers.jsonl")


def main(host: str, port: int) -> None:
    client = Client(host, port)
    lines = [json.dumps([label, answer], separators=(",", ":")) for label, answer in run(client)]
    client.close()
    ANSWERS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
