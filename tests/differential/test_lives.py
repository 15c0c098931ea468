"""Random lives of groups on pykbroker and on Apache Kafka: the same answers and records, through restarts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interop_tests.brokers import BrokerProcess
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from tests.differential.group_worlds import Brokers, both_brokers
from tests.differential.internal_topics import InternalTopics, differences_of_records
from tests.differential.plain import Names, differences
from tests.differential.runner import Difference
from tests.differential.scenarios.lives import KINDS, SETTINGS, Life, Step, drawn
from tests.differential.world import World

pytestmark = pytest.mark.java

SEED = 1
LENGTH = 60
WITHOUT_CLASSIC = "consumer without classic members"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers, whose internal topics exist."""
    with both_brokers(tmp_path_factory.mktemp("brokers"), SETTINGS) as brokers:
        for process in brokers.values():
            lived(process, "share", "d00000-", [("create", ("~t0", 1)), ("join", ("~g", "a", ("~t0",)))])
        yield brokers


@pytest.fixture(scope="module")
def logs(started: Brokers) -> dict[str, InternalTopics]:
    """The internal topics of both brokers."""
    return {name: InternalTopics(process.data_dir) for name, process in started.items() if process.data_dir is not None}


def lived(process: BrokerProcess, kind: str, tilde: str, steps: list[Step]) -> World:
    """A world after one life; names begin with `tilde`."""
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
    return world


@pytest.mark.parametrize("kind", [*KINDS, WITHOUT_CLASSIC])
def test_lives_are_kafkas(started: Brokers, logs: dict[str, InternalTopics], kind: str) -> None:
    """Of each kind of group; every answer that differs is named, and every record that one broker alone has."""
    has_drawn_ids = kind == "consumer"
    tilde = f"d{10_000 + len(kind)}-"
    kind = kind.partition(" ")[0]
    steps = drawn(SEED, kind, LENGTH)
    if not has_drawn_ids:
        steps = [step for step in steps if not step[0].startswith("classic_")]
    for topics in logs.values():
        topics.appended(Names(("", 0)))  # those of earlier lives
    with ThreadPoolExecutor() as pool:
        worlds = dict(zip(logs, pool.map(lambda name: lived(started[name], kind, tilde, steps), logs), strict=True))
    kafka, ours = worlds["kafka"].answers, worlds["pykbroker"].answers
    assert len(kafka) == len(ours) >= LENGTH
    found = [
        Difference(number, label, *difference)
        for number, ((label, theirs), (_, mine)) in enumerate(zip(kafka, ours, strict=True))
        for difference in differences(theirs, mine)
    ]
    assert not found, "\n".join(map(str, found))
    if has_drawn_ids:
        return  # who gets which partitions depends on the ids of classic members
    records = {name: topics.appended(worlds[name].names) for name, topics in logs.items()}
    assert sum(records["kafka"][f"{OFFSETS_TOPIC}-0"].values()) > LENGTH // 3
    different = differences_of_records(records["kafka"], records["pykbroker"])
    assert not different, "\n".join(different)
