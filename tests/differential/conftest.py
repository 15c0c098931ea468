"""One start of both brokers for all differential tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.brokers import pair
from tests.differential.runner import Pair
from tests.support.kafka_jars import kafka_libs


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("brokers"), kafka_libs()) as brokers:
        yield brokers
