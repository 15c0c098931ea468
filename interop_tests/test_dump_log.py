"""kafka-dump-log, from the stock jars, reads every file that the broker writes, while it runs and after its end."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import Message, confluent_produce, create_topic, poll_confluent
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONFIGS, DUMP_LOG, TOPICS, JavaTools

pytestmark = [pytest.mark.java, pytest.mark.own_broker, pytest.mark.area("storage"), pytest.mark.client("Java tools")]

COUNT = 6000
# What the tool prints when it does not like what it reads.
# With several segments given it takes the first offset of each that does not begin at 0 for a gap after -1.
NO_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+\s+-1 is followed by \d+")
COMPLAINT = re.compile(
    r"^(Found|Mismatches|Non-consecutive|Could not|.*isvalid: false|.*Exception|.*[Ii]nvalid)", re.MULTILINE
)


@pytest.fixture(scope="module")
def dumped(start_broker: StartBroker, java_libs: Path) -> BrokerProcess:
    """A broker with several segments, idempotent producers, all codecs, a group and changed metadata."""
    broker = start_broker("dump-log")
    topic = create_topic(broker.bootstrap, "dumped", segment_bytes="1048576", index_interval_bytes="1024")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        messages = [
            Message(b"%d" % number, b"%d " % number + os.urandom(300).hex().encode()) for number in range(COUNT // 5)
        ]
        confluent_produce(broker.bootstrap, topic, messages, codec, **{"enable.idempotence": True, "batch.size": 8000})
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "dumped-group", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    poll_confluent(consumer, COUNT)
    consumer.commit(asynchronous=False)
    consumer.close()
    tools = JavaTools(java_libs, broker.bootstrap)
    tools.check(TOPICS, "--alter", "--topic", topic, "--partitions", "2")
    tools.check(
        CONFIGS,
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--alter",
        "--add-config",
        "retention.bytes=123456789",
    )
    create_topic(broker.bootstrap, "deleted")
    tools.check(TOPICS, "--delete", "--topic", "deleted")
    return broker


@pytest.fixture(scope="module")
def offline(java_libs: Path) -> JavaTools:
    return JavaTools(java_libs)


def dump(tools: JavaTools, files: Sequence[Path], *options: str) -> str:
    """Output of kafka-dump-log for these files. Raises AssertionError if it reports a defect."""
    assert files
    names = ",".join(str(path) for path in files)
    output = tools.check(DUMP_LOG, *options, "--files", names, connected=False)
    complaints = COMPLAINT.findall(NO_COMPLAINT.sub("", output.stdout + output.stderr))
    assert not complaints, (output.stdout + output.stderr)[-1000:]
    return output.stdout


def folder(broker: BrokerProcess, name: str) -> Path:
    assert broker.data_dir is not None
    return broker.data_dir / name


def check_topic(broker: BrokerProcess, tools: JavaTools, *, is_running: bool) -> None:
    files = sorted(folder(broker, "dumped-0").iterdir())
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > 1, "the log has rolled"
    text = dump(tools, logs, "--deep-iteration", "--print-data-log")
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert offsets == list(range(COUNT))
    assert set(re.findall(r"compresscodec: (\w+)", text)) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert "isvalid: true" in text
    assert "producerId: -1" not in text
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    if is_running:
        # The active segment's indexes are allocated ahead, or not written yet: no file for the tool.
        indexes = [path for path in indexes if path.stem != logs[-1].stem]
        assert len(indexes) == 2 * len(logs) - 2
    else:
        assert len(indexes) == 2 * len(logs)
    text = dump(tools, indexes)
    # Real entries and not only the dump's heading: more than one each for the closed segments.
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) > 2
    dump(tools, indexes, "--index-sanity-check")


def test_topic_while_the_broker_runs(dumped: BrokerProcess, offline: JavaTools) -> None:
    """kafka-dump-log reads logs and indexes of a broker that is writing them."""
    check_topic(dumped, offline, is_running=True)


def test_offsets_topic(dumped: BrokerProcess, offline: JavaTools) -> None:
    """The offsets decoder names the group, its members and its offsets."""
    assert dumped.data_dir is not None
    logs = [path for path in dumped.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    text = dump(offline, logs, "--offsets-decoder")
    assert '"group":"dumped-group"' in text
    assert re.search(rf'"topic":"dumped","partition":0.*"offset":{COUNT}', text), text[-2000:]
    assert '"protocolType":"consumer"' in text


def test_metadata_log(dumped: BrokerProcess, offline: JavaTools) -> None:
    """The metadata decoder reads every record: those of the broker, topics, configs and ids."""
    logs = sorted(folder(dumped, "__cluster_metadata-0").glob("*.log"))
    text = dump(offline, logs, "--cluster-metadata-decoder")
    for record_type in (
        "REGISTER_BROKER",
        "TOPIC",
        "PARTITION",
        "CONFIG",
        "FEATURE_LEVEL",
        "PRODUCER_IDS",
        "REMOVE_TOPIC",
    ):
        assert f'"type":"{record_type}_RECORD"' in text, record_type
    assert '"name":"dumped"' in text
    assert '"name":"retention.bytes","value":"123456789"' in text
    assert "Error" not in text
    assert "LeaderChange" in text


def test_after_the_end(dumped: BrokerProcess, offline: JavaTools, target: str) -> None:
    """An orderly end leaves a producer snapshot and indexes that are no longer than what is in them."""
    dumped.stop()
    check_topic(dumped, offline, is_running=False)
    snapshots = sorted(folder(dumped, "dumped-0").glob("*.snapshot"))
    text = dump(offline, snapshots)
    assert re.search(r"producerId: \d+ producerEpoch: 0 ", text), text
    checkpoints = sorted(folder(dumped, "__cluster_metadata-0").glob("*.checkpoint"))
    if checkpoints:
        dump(offline, checkpoints, "--cluster-metadata-decoder")
    for index in folder(dumped, "dumped-0").glob("*.index"):
        assert index.stat().st_size < 1 << 20, "cut to what is used"
