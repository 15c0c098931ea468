"""Kafka Streams with a Streams group (KIP-1071) and exactly once, while its broker dies by kill -9."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import create_topic, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.language_programs import streams_program
from interop_tests.made_once import or_skip
from interop_tests.streams_application import TIMEOUT_S, StreamsApplication
from interop_tests.word_count import QUICK_GROUPS, Lines, counted, one_by_one, wait_for_output

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("frameworks"),
    pytest.mark.client("Kafka Streams"),
]

PARTITIONS = 4
KILLS = 2


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    broker = start_broker("streams-kill", QUICK_GROUPS)
    yield broker
    broker.kill()


def test_the_broker_is_killed(broker: BrokerProcess, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Every word is counted once, and the store and its changelog agree, though the broker is killed in between."""
    command = or_skip(streams_program)
    bootstrap, name = broker.bootstrap, unique("streams-kill")
    lines = Lines(bootstrap, create_topic(bootstrap, f"{name}-lines", PARTITIONS))
    output = create_topic(bootstrap, f"{name}-output", 2)
    settings = {"application_id": name, "group_protocol": "streams", "processing_guarantee": "exactly_once_v2"}
    lines.send(300)
    topology = ("words", f"{name}-lines", output)
    application = StreamsApplication(command, topology, bootstrap, tmp_path / "first", **settings)
    try:
        wait_for_output(bootstrap, output, application)
        for _ in range(KILLS):
            # The application has most of the lines before it.
            broker.kill()
            broker.start()
            lines.send(300)
        assert counted(bootstrap, output, lines.word_count) == one_by_one(lines.counts)
        wait_until(lambda: application.ask("all counts") == lines.counts, "the store", timeout_s=TIMEOUT_S, pause_s=0.2)
        application.kill()
        # Without the state on the disk of the first one: from the changelog.
        application = StreamsApplication(command, topology, bootstrap, tmp_path / "second", **settings)
        application.wait_until_running()
        wait_until(lambda: application.ask("all counts") == lines.counts, "the store", timeout_s=TIMEOUT_S, pause_s=0.2)
        assert application.restored_count > 0
        assert application.finish() == 0, application.output()
    finally:
        application.kill()
