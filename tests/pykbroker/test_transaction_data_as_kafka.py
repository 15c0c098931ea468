"""The data of transactions as Apache Kafka 4.3.1 answers about it: a recorded conversation, held with our broker."""

from __future__ import annotations

import json

import pykbroker
from tests.support.transcripts import Client
from tests.transcripts.transaction_data.record import ANSWERS
from tests.transcripts.transaction_data.script import run


def test_every_answer_is_kafkas() -> None:
    """P-45, P-49, P-51 to P-55, P-67, P-68, P-80, P-113, P-133 to P-139, P-141."""
    with pykbroker.LocalBroker() as broker:
        client = Client("127.0.0.1", broker.port)
        ours = run(client)
        client.close()
    assert "Traceback" not in broker.log
    kafka = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    assert [label for label, _ in ours] == [label for label, _ in kafka]
    different = [
        f"{label}\n  Kafka: {theirs}\n  ours:  {answer}"
        for (label, answer), (_, theirs) in zip(ours, kafka, strict=True)
        if json.loads(json.dumps(answer)) != theirs
    ]
    assert not different, f"{len(different)} of {len(ours)} differ:\n" + "\n".join(different)
