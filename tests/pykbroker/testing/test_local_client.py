"""create_topic, produce, consume and wait_for_group of LocalBroker and LocalCluster, by each client library."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pykbroker.testing import local_client
from pykbroker.testing.local_broker import LocalBroker, LocalBrokerError
from pykbroker.testing.local_client import ClientLibrary, Position, Record, client_library
from pykbroker.testing.local_cluster import LocalCluster

pytest.importorskip("confluent_kafka")

from pykbroker.testing.client_confluent_kafka import ConfluentKafka
from pykbroker.testing.client_kafka_python import KafkaPython


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as started:
        yield started


@pytest.fixture(params=[ConfluentKafka, KafkaPython], ids=["confluent", "kafka-python"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ClientLibrary:
    chosen: ClientLibrary = request.param()
    monkeypatch.setattr(local_client, "client_library", lambda: chosen)
    return chosen


@pytest.fixture
def topic(library: ClientLibrary, request: pytest.FixtureRequest) -> str:
    return f"{request.node.originalname}-{library.name}"


def test_records_come_back_whole(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic, 2, config={"retention.ms": 86400000})
    first = broker.produce(topic, "one", key="k", headers={"h": "x", "g": ""}, partition=1)
    more = broker.produce(topic, [b"two", None], key=b"k", headers=[("h", b"1"), ("h", b"2")], partition=1)
    assert (first, more) == ([Position(1, 0)], [Position(1, 1), Position(1, 2)])
    assert broker.produce(topic, []) == []
    found = broker.consume(topic)
    assert [(record.topic, record.partition, record.offset) for record in found] == [(topic, 1, at) for at in range(3)]
    assert [record.value for record in found] == [b"one", b"two", None]
    assert {record.key for record in found} == {b"k"}
    assert found[0].headers == (("h", b"x"), ("g", b""))
    assert found[1].headers == (("h", b"1"), ("h", b"2"))
    assert found[0].timestamp_ms > 1_600_000_000_000
    assert broker.consume(topic, 2) == found[:2]


def test_a_header_without_value(broker: LocalBroker, library: ClientLibrary, topic: str) -> None:
    if library.name == "kafka-python":
        with pytest.raises(LocalBrokerError, match="headers"):
            broker.produce(topic, "x", headers={"n": None})
        return
    broker.produce(topic, "x", headers={"n": None})
    assert broker.consume(topic)[0].headers == (("n", None),)


def test_an_empty_topic_has_no_records(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic, 3)
    assert broker.consume(topic) == []


def test_what_is_not_there_yet_is_waited_for(broker: LocalBroker, topic: str) -> None:
    """The topic, then the records, which a pipeline under test makes meanwhile."""
    found: list[Record] = []
    reader = threading.Thread(target=lambda: found.extend(broker.consume(topic, 3)))
    reader.start()
    broker.produce(topic, ["a", "b"])
    broker.produce(topic, "c")
    reader.join(60)
    assert [record.value for record in found] == [b"a", b"b", b"c"]


def refused(call: Callable[[float], object], expected: Callable[[float], str]) -> None:
    """Calls with a timeout in seconds, which must end with an error that begins as expected.

    A busy machine may not come so far in the shortest time, so there are longer ones.
    """
    errors = []
    for timeout_s in (0.5, 4.0, 30.0):
        with pytest.raises(LocalBrokerError) as caught:
            call(timeout_s)
        errors.append(str(caught.value))
        if errors[-1].startswith(expected(timeout_s)):
            return
    pytest.fail("\n".join(errors))


def test_records_that_do_not_come_are_counted(broker: LocalBroker, topic: str) -> None:
    broker.produce(topic, "a")
    refused(
        lambda timeout_s: broker.consume(topic, 2, timeout_s=timeout_s),
        lambda timeout_s: f"1 of 2 records of {topic} came within {timeout_s:g} s; the last was Record",
    )


def test_only_new_records(broker: LocalBroker, topic: str) -> None:
    broker.produce(topic, "old")
    with pytest.raises(LocalBrokerError, match=r"^0 of 1 records"):
        broker.consume(topic, 1, from_beginning=False, timeout_s=0.5)


def test_refusals_say_why(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic)
    with pytest.raises(LocalBrokerError, match=rf"topic {topic} was not created: .*already exists"):
        broker.create_topic(topic)
    with pytest.raises(LocalBrokerError, match=r"not created: .*(replication|Replication)"):
        broker.create_topic(f"{topic}-copied", replication_factor=2)
    with pytest.raises(LocalBrokerError, match="there is no topic nowhere"):
        broker.consume("nowhere")
    with pytest.raises(LocalBrokerError, match=rf"record 0 was not written to {topic}|a record was not written"):
        broker.produce(topic, "x", partition=7, timeout_s=2)
    with pytest.raises(ValueError, match="from_beginning=False needs a count"):
        broker.consume(topic, from_beginning=False)
    with pytest.raises(ValueError, match="isolation_level='dirty'"):
        broker.consume(topic, isolation_level="dirty")
    with pytest.raises(ValueError, match="count=0"):
        broker.consume(topic, 0)
    with pytest.raises(TypeError, match="value is bytes, str or None, not dict: serialize it first"):
        broker.produce(topic, [{"a": 1}])  # type: ignore[list-item]


@contextmanager
def member_of(broker: LocalBroker, group: str, topic: str) -> Iterator[None]:
    """A member that polls in a thread of its own."""
    from confluent_kafka import Consumer

    consumer: Any = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        consumer.close()


def test_a_group_is_waited_for(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic, 2)
    group = f"group-of-{topic}"
    refused(
        lambda timeout_s: broker.wait_for_group(group, timeout_s=timeout_s),
        lambda timeout_s: f"group {group} is dead with 0 members after {timeout_s:g} s",
    )
    with member_of(broker, group, topic):
        broker.wait_for_group(group)
        with member_of(broker, group, topic):
            broker.wait_for_group(group, 2)
            refused(
                lambda timeout_s: broker.wait_for_group(group, 3, timeout_s=timeout_s),
                lambda timeout_s: f"group {group} is stable with 2 members after {timeout_s:g} s, and not",
            )


def test_read_committed(broker: LocalBroker, topic: str) -> None:
    from confluent_kafka import Producer

    producer: Any = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for is_kept in (False, True):
        producer.begin_transaction()
        producer.produce(topic, str(is_kept))
        producer.flush(30)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
    assert [record.value for record in broker.consume(topic)] == [b"False", b"True"]
    assert [record.value for record in broker.consume(topic, isolation_level="read_committed")] == [b"True"]


def test_a_cluster_has_the_same_calls(library: ClientLibrary) -> None:
    with LocalCluster(3) as cluster:
        cluster.create_topic("t", 2, 3)
        cluster.produce("t", ["a", "b"], partition=0)
        cluster.kill(1)
        assert [record.value for record in cluster.consume("t", 2)] == [b"a", b"b"]


def run_with_path(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


CHOICE = "from pykbroker.testing.local_client import client_library; print(client_library().name)"


def test_the_library_that_is_loaded_is_taken(tmp_path: Path) -> None:
    assert client_library().name in ("confluent-kafka", "kafka-python")
    assert run_with_path(tmp_path, CHOICE).stdout == "confluent-kafka\n"
    assert run_with_path(tmp_path, f"import kafka; {CHOICE}").stdout == "kafka-python\n"
    strict = f"import warnings; warnings.simplefilter('error'); {CHOICE}"
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError('broken')\n")
    assert run_with_path(tmp_path, strict).stdout == "kafka-python\n"


def test_no_library_is_there(tmp_path: Path) -> None:
    for name in ("confluent_kafka", "kafka"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    errors = run_with_path(tmp_path, CHOICE).stderr
    assert "pip install confluent-kafka, or pip install kafka-python" in errors.splitlines()[-1]


@pytest.mark.parametrize("function", [LocalBroker.__init__, LocalCluster.__init__])
def test_each_parameter_is_documented_where_tools_look(function: Any) -> None:
    documentation = inspect.getdoc(function) or ""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    assert [name for name in names if f"\n    {name}: " not in documentation] == []
