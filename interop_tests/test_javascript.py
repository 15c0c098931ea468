"""Two clients in JavaScript: kafkajs and @platformatic/kafka.

Confluent's, @confluentinc/kafka-javascript, is not among them: its npm package has no binary. The install script
fetches one from where Confluent publishes releases, or compiles librdkafka, which takes minutes and libraries of the
system. Below it is librdkafka, through which test_confluent.py and test_kcat.py look at the broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from interop_tests.clients import CODECS
from interop_tests.language_programs import javascript_program
from interop_tests.language_scenarios import (
    Admin,
    Copies,
    Groups,
    Idempotence,
    Logins,
    Records,
    Restarts,
    Transactions,
)
from interop_tests.made_once import or_skip

pytestmark = pytest.mark.area("records")


@pytest.fixture(scope="module")
def command() -> Callable[[str], list[str]]:
    """The command of a client, its packages installed when they are not there yet."""
    return lambda client: or_skip(javascript_program, client)


@pytest.fixture(scope="module")
def node_codecs(command: Callable[[str], list[str]]) -> list[str]:
    """Codecs that this Node.js has; zstd came with 22.15."""
    node = command("kafkajs")[0]
    asked = [node, "-p", "typeof require('node:zlib').zstdCompressSync"]
    has_zstd = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "function"
    return [codec for codec in CODECS if codec != "zstd" or has_zstd]


class OnNode:
    """Scenarios of the clients whose codec zstd is that of Node.js."""

    @pytest.fixture
    def codecs(self, node_codecs: list[str]) -> list[str]:
        """Codecs that this Node.js has."""
        return node_codecs


@pytest.mark.client("kafkajs")
class TestKafkajs(OnNode, Records, Groups, Admin, Idempotence, Transactions, Copies, Restarts, Logins):
    """kafkajs, with a codec package each for snappy and LZ4."""

    program = "kafkajs"
    offset_when_all_are_older = 0
    waits_for_coordinator = False


@pytest.mark.client("Platformatic")
class TestPlatformatic(OnNode, Records, Groups, Admin, Idempotence, Transactions, Restarts, Logins):
    """@platformatic/kafka, in the last version for Node.js 20.

    Its committed reader gives aborted records too, and it cannot begin again with the transactional id of an earlier
    process (PRODUCER_FENCED): against Apache Kafka alike, so neither is asked of it.
    """

    program = "platformatic"
    reads_committed = False
