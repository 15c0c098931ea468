"""Scripts written by hand for what only comes about in a certain order, on Apache Kafka and on pykbroker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.differential.runner import Pair
from tests.differential.scenarios import data
from tests.differential.scenarios.admin import administration
from tests.differential.scenarios.odd_values import odd_values
from tests.differential.scenarios.telemetry import client_telemetry
from tests.differential.world import World

pytestmark = pytest.mark.java

SCENARIOS: tuple[Callable[[World], None], ...] = (
    data.every_version,
    data.damaged_batches,
    data.fetch_sessions,
    data.orders_of_fetch_sessions,
    data.idempotent_producers,
    data.lives_of_a_topic,
    data.transactions,
    data.deleted_records_of_an_open_transaction,
    client_telemetry,
    odd_values,
    # The last, as it changes settings and features of the cluster.
    administration,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_kafkas(both: Pair, scenario: Callable[[World], None]) -> None:
    """P-34 to P-87, P-127 to P-149, P-153, P-158, P-202, P-671 as far as requests show them."""
    found = both.play(scenario)
    assert not found, "\n".join(map(str, found[:20]))
