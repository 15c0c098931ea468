"""One start of both brokers for all differential tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.brokers import ApacheKafkaProcess, PykbrokerProcess
from tests.differential.brokers import brokers, pair_of
from tests.differential.group_worlds import Brokers, Worlds, both_brokers, both_worlds
from tests.differential.runner import Pair
from tests.support.kafka_jars import kafka_libs


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApacheKafkaProcess, PykbrokerProcess]]:
    with brokers(tmp_path_factory.mktemp("brokers"), kafka_libs()) as started:
        yield started


@pytest.fixture(scope="session")
def both(processes: tuple[ApacheKafkaProcess, PykbrokerProcess]) -> Iterator[Pair]:
    with pair_of(*processes) as pair:
        yield pair


@pytest.fixture(scope="module", name="brokers")
def group_brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers with the SETTINGS of a module."""
    with both_brokers(tmp_path_factory.mktemp("brokers"), request.module.SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def worlds(brokers: Brokers) -> Iterator[Worlds]:
    """A prepared world on each of a module's brokers."""
    with both_worlds(brokers) as made:
        yield made
