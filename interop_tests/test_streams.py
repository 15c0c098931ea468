"""Kafka Streams, over classic groups and over Streams groups (KIP-1071): stores, joins, exactly once, standbys."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from interop_tests.clients import confluent_consume, create_topic, topic_config, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONFIGS, CONSUMER_GROUPS, STREAMS_GROUPS, STREAMS_RESET, JavaTools
from interop_tests.language_programs import streams_program
from interop_tests.made_once import or_skip
from interop_tests.streams_application import TIMEOUT_S, StreamsApplication
from interop_tests.wire import RECENT_MS, offered_apis
from interop_tests.word_count import QUICK_GROUPS, SESSION_TIMEOUT_MS, Lines, counted, one_by_one, wait_for_output

pytestmark = [pytest.mark.java, pytest.mark.area("frameworks"), pytest.mark.client("Kafka Streams")]

STREAMS_GROUP_HEARTBEAT = 88
PARTITIONS = 4
PATIENT_SESSION_MS = "45000"
"""For applications that process at least once: one that is thrown out of its group counts some records twice."""

Start = Callable[..., StreamsApplication]


@pytest.fixture(scope="module")
def bootstrap(target: str, start_broker: StartBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker whose groups are quick; it ends with the module."""
    if target == "external":
        yield request.getfixturevalue("broker").bootstrap
        return
    broker = start_broker("streams", QUICK_GROUPS)
    yield broker.bootstrap
    broker.kill()


@pytest.fixture(scope="module")
def tools(java_libs: Path, bootstrap: str) -> JavaTools:
    return JavaTools(java_libs, bootstrap)


@pytest.fixture(params=["classic", "streams"])
def protocol(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """The group protocol of applications."""
    chosen: str = request.param
    if chosen == "streams" and STREAMS_GROUP_HEARTBEAT not in offered_apis(bootstrap):
        pytest.skip("the broker has no Streams groups (KIP-1071): its ApiVersions has no API 88, StreamsGroupHeartbeat")
    return chosen


@pytest.fixture
def start(target: str, bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """Starts instances, each with a folder of its own unless told otherwise; what still runs ends with the test."""
    command = or_skip(streams_program)
    started: list[StreamsApplication] = []
    # The least that a broker's own settings allow, and ours.
    session_timeout_ms = "6000" if target == "external" else str(SESSION_TIMEOUT_MS)

    def run(*topology: str, folder: str = "", **config: str) -> StreamsApplication:
        place = tmp_path / (folder or f"instance-{len(started)}")
        if config["group_protocol"] == "classic":  # the other one has it from the broker
            config.setdefault("session_timeout_ms", session_timeout_ms)
        started.append(StreamsApplication(command, topology, bootstrap, place, **config))
        return started[-1]

    yield run
    for application in started:
        application.kill()


@pytest.fixture
def lines(bootstrap: str, name: str) -> Lines:
    return Lines(bootstrap, create_topic(bootstrap, f"{name}-lines", PARTITIONS))


@pytest.fixture
def output(bootstrap: str, name: str) -> str:
    return create_topic(bootstrap, f"{name}-output", 2)


def test_word_count(
    bootstrap: str, tools: JavaTools, name: str, protocol: str, start: Start, lines: Lines, output: str
) -> None:
    """Words go through a repartition topic into a store with a changelog, and queries read the store (KIP-67).

    The internal topics have Kafka Streams' settings; the tools of the group list, describe, reset and delete it.
    """
    config = {"application_id": name, "group_protocol": protocol}
    if protocol == "streams":
        setting = ("--add-config", f"streams.session.timeout.ms={PATIENT_SESSION_MS}")
        tools.check(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", name, *setting)
    else:
        config["session_timeout_ms"] = PATIENT_SESSION_MS
    lines.send(500)
    application = start("words", f"{name}-lines", output, **config)
    application.wait_until_running()
    assert counted(bootstrap, output, lines.word_count) == one_by_one(lines.counts)
    wait_until(lambda: application.ask("all counts") == lines.counts, "the store", pause_s=0.2)
    assert application.ask("tasks")["active"] == [f"{sub}_{number}" for sub in (0, 1) for number in range(PARTITIONS)]
    internal = {f"{name}-words-repartition": "delete", f"{name}-counts-changelog": "compact"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic, policy in internal.items():
        assert len(admin.list_topics(topic).topics[topic].partitions) == PARTITIONS
        assert topic_config(bootstrap, topic)["cleanup.policy"] == policy
    if protocol == "streams":
        check_streams_groups(tools, name, application)
    else:
        check_classic_group(tools, name, application)
    wait_until(lambda: not internal.keys() & admin.list_topics().topics.keys(), "the internal topics to be gone")


def check_classic_group(tools: JavaTools, name: str, application: StreamsApplication) -> None:
    """kafka-consumer-groups while the application runs, kafka-streams-application-reset afterwards."""
    wait_until(lambda: all(row["LAG"] == "0" for row in rows(tools, CONSUMER_GROUPS, name)), "no lag", pause_s=0.5)
    described = rows(tools, CONSUMER_GROUPS, name)
    places = {f"{name}-{topic}" for topic in ("lines", "words-repartition")}
    assert Counter(row["TOPIC"] for row in described) == dict.fromkeys(places, PARTITIONS)
    assert application.finish() == 0, application.output()
    tools.check(STREAMS_RESET, "--application-id", name, "--input-topics", f"{name}-lines")
    assert {row["CURRENT-OFFSET"] for row in rows(tools, CONSUMER_GROUPS, name) if "lines" in row["TOPIC"]} == {"0"}


def check_streams_groups(tools: JavaTools, name: str, application: StreamsApplication) -> None:
    """kafka-streams-groups while the application runs, and afterwards, when it may delete the group."""
    assert name in tools.check(STREAMS_GROUPS, "--list").lines
    [state] = rows(tools, STREAMS_GROUPS, name, "--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    [members] = tools.check(STREAMS_GROUPS, "--describe", "--group", name, "--members").lines[1:]
    for subtopology in ("0", "1"):
        assert f"ACTIVE: {subtopology}:[0,1,2,3]" in members or f" {subtopology}:[0,1,2,3]" in members
    wait_until(lambda: all(r["OFFSET-LAG"] == "0" for r in rows(tools, STREAMS_GROUPS, name)), "no lag", pause_s=0.5)
    refused = tools.run(STREAMS_GROUPS, "--delete", "--group", name)
    assert "could not be deleted" in refused.stdout
    assert application.finish() == 0, application.output()

    def is_empty() -> bool:
        return [name, "Empty"] in [line.split()[:2] for line in tools.check(STREAMS_GROUPS, "--list", "--state").lines]

    wait_until(is_empty, "no members", pause_s=0.5)
    deleted = tools.check(STREAMS_GROUPS, "--delete", "--group", name, "--delete-all-internal-topics")
    assert "was successful" in deleted.stdout
    assert name not in tools.check(STREAMS_GROUPS, "--list").lines


def rows(tools: JavaTools, tool: str, group: str, *options: str) -> list[dict[str, str]]:
    """The table that a tool prints of a group."""
    output = tools.check(tool, "--describe", "--group", group, *options)
    head = next(number for number, line in enumerate(output.lines) if line.startswith("GROUP"))
    names = output.lines[head].split()
    return [dict(zip(names, line.split(), strict=False)) for line in output.lines[head + 1 :]]


def test_windowed_join(bootstrap: str, name: str, start: Start) -> None:
    """Records of two topics are joined that are near in time, and counted in windows of their timestamps."""
    chooser = random.Random(name)
    topics = [create_topic(bootstrap, f"{name}-{side}", PARTITIONS) for side in ("left", "right")]
    output = create_topic(bootstrap, f"{name}-output")
    producer = Producer({"bootstrap.servers": bootstrap})
    sent: list[list[tuple[str, int, str]]] = []
    for topic in topics:
        times = sorted(RECENT_MS + chooser.randrange(120_000) for _ in range(150))
        side = [(f"key-{chooser.randrange(10)}", time, f"{topic[-5]}{number}") for number, time in enumerate(times)]
        for key, time, value in side:
            producer.produce(topic, value.encode(), key.encode(), timestamp=time)
        sent.append(side)
    assert producer.flush(30) == 0
    left, right = sent
    expected = Counter(
        (key, f"{one}+{other}")
        for key, time, one in left
        for its_key, its_time, other in right
        if key == its_key and abs(time - its_time) <= 5000
    )
    config = {"application_id": name, "group_protocol": "classic", "session_timeout_ms": PATIENT_SESSION_MS}
    application = start("join", *topics, output, **config)
    application.wait_until_running()
    joined = confluent_consume(bootstrap, [output], expected.total())
    assert Counter(((m.key or b"").decode(), (m.value or b"").decode()) for m in joined) == expected
    windows = Counter(str(time // 10_000 * 10_000) for key, time, _ in left if key == "key-3")
    wait_until(lambda: application.ask("windows windows key-3") == windows, "the windows of a key", pause_s=0.2)


def test_exactly_once_when_killed(
    bootstrap: str, name: str, protocol: str, start: Start, lines: Lines, output: str
) -> None:
    """With exactly_once_v2 every word is counted once although the application dies by kill -9 (KIP-447).

    It is started again twice, first with the state that it left on its disk and then without.
    """
    settings = {"application_id": name, "group_protocol": protocol, "processing_guarantee": "exactly_once_v2"}
    for folder in ("first", "first"):
        lines.send(400)
        application = start("words", f"{name}-lines", output, folder=folder, **settings)
        wait_for_output(bootstrap, output, application)
        application.kill()
    lines.send(100)
    application = start("words", f"{name}-lines", output, folder="second", **settings)
    application.wait_until_running()
    assert counted(bootstrap, output, lines.word_count) == one_by_one(lines.counts)
    wait_until(lambda: application.ask("all counts") == lines.counts, "the store", pause_s=0.2)
    assert application.finish() == 0, application.output()


def test_standby_takes_over(
    bootstrap: str, tools: JavaTools, name: str, protocol: str, start: Start, lines: Lines, output: str
) -> None:
    """Of two instances each has standbys of the other's tasks, and goes on with them when the other is killed.

    The group's metadata say which instance has a key (KIP-535). The one that is started again becomes part of it.
    """
    if protocol == "streams":
        setting = ("--add-config", "streams.num.standby.replicas=1")
        tools.check(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", name, *setting)
    settings = {"application_id": name, "group_protocol": protocol, "processing_guarantee": "exactly_once_v2"}
    if protocol == "classic":
        settings["num_standby_replicas"] = "1"
    lines.send(300)
    topology = ("words", f"{name}-lines", output)
    one, other = (start(*topology, **settings) for _ in range(2))
    both = {one.port, other.port}

    def hosts_of(asked: StreamsApplication) -> set[int]:
        found = asked.ask("where counts word-1") or {"active": -1, "standby": []}
        return {found["active"], *found["standby"]}

    def is_shared() -> bool:
        tasks = [instance.ask("tasks") for instance in (one, other)]
        return all(len(of_one["active"]) == PARTITIONS and of_one["standby"] for of_one in tasks)

    for instance in (one, other):
        instance.wait_until_running()
    wait_until(lambda: is_shared() and hosts_of(one) == both, "tasks and standbys", timeout_s=TIMEOUT_S, pause_s=0.2)
    counted(bootstrap, output, lines.word_count)

    def merged() -> dict[str, int]:
        return (one.ask("all counts") or {}) | (other.ask("all counts") or {})

    wait_until(lambda: merged() == lines.counts, "each word on one of both", pause_s=0.2)
    one.kill()
    lines.send(300)
    wait_until(lambda: other.ask("all counts") == lines.counts, "the rest", timeout_s=TIMEOUT_S, pause_s=0.2)
    again = start(*topology, folder="instance-0", **settings)
    again.wait_until_running()
    both = {again.port, other.port}
    wait_until(lambda: hosts_of(other) == both, "the instance that is back", timeout_s=TIMEOUT_S, pause_s=0.2)
    lines.send(100)
    assert counted(bootstrap, output, lines.word_count) == one_by_one(lines.counts)
