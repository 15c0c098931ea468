"""Random lives of groups on pykbroker and on Apache Kafka: the same answers, through restarts and expiries."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interop_tests.brokers import BrokerProcess
from tests.differential.group_worlds import Brokers, both_brokers
from tests.differential.plain import differences
from tests.differential.runner import Difference
from tests.differential.scenarios.lives import KINDS, SETTINGS, Life, Step, drawn
from tests.differential.world import World

pytestmark = pytest.mark.java

SEED = 1
LENGTH = 60
Answers = list[tuple[str, object]]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers, whose internal topics exist."""
    with both_brokers(tmp_path_factory.mktemp("brokers"), SETTINGS) as brokers:
        for process in brokers.values():
            lived(process, "share", "d00000-", [("create", ("~t0", 1)), ("join", ("~g", "a", ("~t0",)))])
        yield brokers


def lived(process: BrokerProcess, kind: str, tilde: str, steps: list[Step]) -> Answers:
    """The answers of one life; names begin with `tilde`."""
    world = World(process.address)
    world.begin(tilde)

    def restart() -> None:
        process.stop()
        process.start()

    life = Life(world, restart, kind)
    try:
        life.wait_for_coordinators()
        life.run(steps)
        world.collect_waiting(0.3)
    finally:
        world.hang_up()
    return world.answers


@pytest.mark.parametrize("kind", KINDS)
def test_lives_are_kafkas(started: Brokers, kind: str) -> None:
    """Of each kind of group; every answer that differs is named."""
    steps = drawn(SEED, kind, LENGTH)
    tilde = f"d{10_000 + KINDS.index(kind)}-"
    with ThreadPoolExecutor() as pool:
        kafka, ours = pool.map(lambda name: lived(started[name], kind, tilde, steps), ("kafka", "pykbroker"))
    assert len(kafka) == len(ours) > LENGTH
    found = [
        Difference(number, label, *difference)
        for number, ((label, theirs), (_, mine)) in enumerate(zip(kafka, ours, strict=True))
        for difference in differences(theirs, mine)
    ]
    assert not found, "\n".join(map(str, found))
