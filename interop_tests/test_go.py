"""Four clients in Go: franz-go, sarama, segmentio/kafka-go, and watermill on top of sarama."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.language_client import LanguageClient, Record
from interop_tests.language_programs import go_program
from interop_tests.language_scenarios import (
    Admin,
    Copies,
    Groups,
    Idempotence,
    Logins,
    Records,
    Restarts,
    Transactions,
    numbered,
)
from interop_tests.made_once import or_skip

pytestmark = pytest.mark.area("records")


@pytest.fixture(scope="module")
def command() -> Callable[[str], list[str]]:
    """The program, built when it is not there yet."""
    or_skip(go_program, "")
    return go_program


@pytest.mark.client("franz-go")
class TestFranz(Records, Groups, Admin, Idempotence, Transactions, Copies, Restarts, Logins):
    """twmb/franz-go: kgo, and kadm for what administrators do."""

    program = "franz-go"
    offset_when_all_are_older = 0


@pytest.mark.client("sarama")
class TestSarama(Records, Groups, Admin, Idempotence, Transactions, Copies, Restarts, Logins):
    """IBM/sarama."""

    program = "sarama"


@pytest.mark.client("kafka-go")
class TestKafkaGo(Records, Groups, Admin, Restarts, Logins):
    """segmentio/kafka-go, which has no idempotent producer."""

    program = "kafka-go"
    knows_empty = False


@pytest.mark.client("watermill")
class TestWatermill(Groups, Restarts):
    """ThreeDotsLabs/watermill-kafka: publishers and subscribers."""

    program = "watermill"

    @pytest.mark.parametrize("codec", ["none", "snappy"])
    def test_published_and_subscribed(
        self, codec: str, client: LanguageClient, name: str, unique: Callable[[str], str]
    ) -> None:
        """A published message, with its metadata, comes to a subscriber that begins at the first message."""
        client.run("create_topic", topic=name, partitions=2)
        sent = [
            Record(0, b"key", b"payload", (("color", b"red"), ("size", b"9"))),
            Record(0, b"other", bytes(range(256))),
        ]
        sent += numbered(100)
        lines = [*(record.as_line() for record in sent), None]
        assert len(client.run("produce", lines, topic=name, codec=codec)) == len(sent)
        with client.running("member", topic=name, group=unique("group"), partitions=2) as subscriber:
            subscriber.wait_for_lines(len(sent))
        found = {record.value: record for record in subscriber.records}
        assert set(found) == {record.value for record in sent}
        assert found[b"payload"].headers == (("color", b"red"), ("key", b"key"), ("size", b"9"))
        assert found[b"payload"].key == b"key"
