"""A broker with two log directories: where replicas go, and what kafka-log-dirs and kafka-reassign-partitions say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import confluent_produce, create_topic, kafka_python_consume
from interop_tests.java_tools import LOG_DIRS, REASSIGN, JavaTools
from interop_tests.test_java_admin_tools import json_file, moves_of
from interop_tests.test_java_tools import numbered

pytestmark = [pytest.mark.java, pytest.mark.area("storage"), pytest.mark.client("Java tools"), pytest.mark.own_broker]

PARTITIONS = 6


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two log directories."""
    folder = tmp_path_factory.mktemp("several")
    return folder / "first", folder / "second"


@pytest.fixture(scope="module")
def two_directories(start_broker: Callable[..., BrokerProcess], folders: tuple[Path, Path]) -> BrokerProcess:
    """A broker that has them."""
    return start_broker("two-directories", {"log.dirs": ",".join(map(str, folders))})


def placement(tools: JavaTools, topic: str) -> dict[str, set[int]]:
    """Partitions of a topic by log directory, as kafka-log-dirs prints them."""
    output = tools.check(LOG_DIRS, "--describe", "--topic-list", topic)
    (line,) = [line for line in output.lines if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    (broker,) = found["brokers"]
    assert [directory["error"] for directory in broker["logDirs"]] == [None, None]
    return {
        directory["logDir"]: {int(log["partition"].rpartition("-")[2]) for log in directory["partitions"]}
        for directory in broker["logDirs"]
    }


def test_replicas_are_spread(
    java_libs: Path, two_directories: BrokerProcess, folders: tuple[Path, Path], name: str
) -> None:
    """Each new replica goes to the directory with the fewest; a restart finds them where they are (P-275, P-277)."""
    tools = JavaTools(java_libs, two_directories.bootstrap)
    create_topic(two_directories.bootstrap, name, PARTITIONS)
    spread = placement(tools, name)
    assert set(spread) == set(map(str, folders))
    assert sorted(map(len, spread.values())) == [PARTITIONS // 2, PARTITIONS // 2]
    confluent_produce(two_directories.bootstrap, name, numbered(300))
    two_directories.stop()
    two_directories.start()
    assert placement(tools, name) == spread
    assert len(kafka_python_consume(two_directories.bootstrap, [name])) == 300


def test_a_replica_where_it_should_be(
    java_libs: Path, two_directories: BrokerProcess, name: str, tmp_path: Path
) -> None:
    """kafka-reassign-partitions that names the directories of now is done at once (P-278)."""
    tools = JavaTools(java_libs, two_directories.bootstrap)
    create_topic(two_directories.bootstrap, name, 2)
    places = {number: path for path, numbers in placement(tools, name).items() for number in numbers}
    plan = json_file(tmp_path, moves_of(name, *((number, [1], [path]) for number, path in places.items())))
    printed = tools.check(REASSIGN, "--reassignment-json-file", plan, "--execute").stdout
    for number, path in places.items():
        assert (
            f"Successfully started moving log directory to {path} for replica {name}-{number} with broker 1" in printed
        )
    verified = tools.check(REASSIGN, "--reassignment-json-file", plan, "--verify").stdout
    for number, path in places.items():
        assert f"Reassignment of replica {name}-{number}-1 completed successfully." in verified, (path, verified)
