"""A broker whose disk is full: it refuses what it cannot store, serves what it has, and goes on when space returns.

Apache Kafka takes a log directory that fails offline until a restart, and ends when it was the last one: these tests
are of what pykbroker promises beyond that, and are skipped there.

The disk is a file system in memory, mounted where only the broker sees it, in a user namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.brokers import CHECKOUT, BrokerProcess
from interop_tests.clients import Message, confluent_produce, create_topic, kafka_python_consume, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.disk_writers import check_load, is_probe, refusal
from interop_tests.kill_load import ConfluentProducing, Consuming, wait_for_progress

pytestmark = [pytest.mark.own_broker, pytest.mark.area("faults"), pytest.mark.client("confluent-kafka")]

DISK_MB = 24
KAFKA_STORAGE_ERROR = 56
NEEDED = ("unshare", "nsenter", "mount")


class SmallDisk:
    """A volume of some megabytes over a folder, seen by its own namespace: `wrapper` starts a process in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o "size=$1" none "$0" && echo mounted && exec sleep 100000'
        self._keeper = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, str(folder), f"{DISK_MB}m"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        if self._keeper.stdout.readline() != "mounted\n":
            reason = self._keeper.stderr.read().strip()
            self.close()
            pytest.skip(f"no file system can be mounted in a namespace here: {reason}")
        self.folder = Path(f"/proc/{self._keeper.pid}/root{folder}")
        into = ["--preserve-credentials", "-U", "-m", "-t", str(self._keeper.pid), f"--wd={CHECKOUT}"]
        self.wrapper = ("nsenter", *into)

    def fill(self) -> None:
        """Leaves no byte free."""
        with (self.folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Gives the space back."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing of it is left when its last process has ended."""
        self._keeper.kill()
        self._keeper.communicate()


@pytest.fixture
def disk(target: str, tmp_path: Path) -> Iterator[SmallDisk]:
    """A volume that can be filled."""
    if target != "pykbroker":
        pytest.skip("Apache Kafka takes a full log directory offline and ends: pykbroker goes on, by design")
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or not Path("/proc/self/root").exists():
        pytest.skip(f"{', '.join(missing) or '/proc'} is not there (util-linux on Linux)")
    small = SmallDisk(tmp_path / "disk")
    yield small
    small.close()


@pytest.fixture
def on_disk(disk: SmallDisk, start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    """A broker whose data is on that volume."""
    return start_broker("full-disk", data_dir=tmp_path / "disk" / "data", wrapper=disk.wrapper)


def test_full_disk(disk: SmallDisk, on_disk: BrokerProcess, unique: Callable[[str], str]) -> None:
    """Produce gets KAFKA_STORAGE_ERROR, consumers go on, and when space returns so does produce, without a restart."""
    bootstrap = on_disk.bootstrap
    topic = create_topic(bootstrap, unique("full"), 2, segment_bytes="1048576")
    other = create_topic(bootstrap, unique("other"))
    messages = [Message(None, b"%d" % number) for number in range(500)]
    confluent_produce(bootstrap, topic, messages)
    confluent_produce(bootstrap, other, messages)
    producing = ConfluentProducing(bootstrap, create_topic(bootstrap, unique("load"), 2), 2)
    consuming = Consuming(bootstrap, producing.topic, 2, unique("full-group"))
    producing.start()
    consuming.start()
    wait_for_progress([producing, consuming])
    pid = on_disk.pid

    disk.fill()
    wait_until(lambda: refusal(bootstrap, topic) == KAFKA_STORAGE_ERROR, "a refusal")
    # What was allocated ahead of the load is soon used up as well.
    wait_until(lambda: refusal(bootstrap, producing.topic) == KAFKA_STORAGE_ERROR, "the producer's refusal")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = create_until_refused(admin)
    for _ in range(3):
        assert Counter(values_in(bootstrap, topic)) == Counter(message.value for message in messages)
        assert values_in(bootstrap, other) == [message.value for message in messages]
    known = {name for name in admin.list_topics(timeout=30).topics if name.startswith("no-space")}
    assert known == set(created)
    assert on_disk.process is not None
    assert on_disk.process.poll() is None

    disk.free()
    wait_until(lambda: refusal(bootstrap, topic) == 0, "an acknowledgement")
    wait_for_progress([producing, consuming])
    admin.create_topics([NewTopic("space", 1, 1)])["space"].result(30)
    for name in ["space", *created]:
        confluent_produce(bootstrap, name, messages[:10])
    producing.finish()
    consuming.check()
    consuming.finish()
    assert on_disk.pid == pid

    for end in (on_disk.kill, on_disk.stop):
        end()
        on_disk.start()
        check_load(on_disk.bootstrap, producing)
        consuming.check()
        assert len(kafka_python_consume(on_disk.bootstrap, ["space"])) == 10
    text = on_disk.log_text()
    assert "no space left" in text
    assert "Traceback" not in text


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    """The values of all records of a topic but the probes."""
    stored = [message.value or b"" for message in kafka_python_consume(bootstrap, [topic])]
    return [value for value in stored if not is_probe(value)]


def create_until_refused(admin: AdminClient) -> list[str]:
    """Topics that were created on the full disk: the metadata log may have had some bytes left in its last block."""
    created: list[str] = []
    while (code := creation_refused(admin, f"no-space-{len(created)}")) is None:
        created.append(f"no-space-{len(created)}")
        assert len(created) < 500
    assert code == confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
    return created


def creation_refused(admin: AdminClient, name: str) -> object:
    """Error code of a refused CreateTopics; None when the topic was created."""
    try:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    except confluent_kafka.KafkaException as refused:
        return refused.args[0].code()
    return None


def test_start_on_a_full_disk(disk: SmallDisk, on_disk: BrokerProcess, unique: Callable[[str], str]) -> None:
    """After a kill on a full disk: a start that serves, or one line that says why not; with space all is there."""
    topic = create_topic(on_disk.bootstrap, unique("full-start"), segment_bytes="1048576")
    messages = [Message(None, b"%d" % number) for number in range(300)]
    confluent_produce(on_disk.bootstrap, topic, messages)
    disk.fill()
    wait_until(lambda: refusal(on_disk.bootstrap, topic) == KAFKA_STORAGE_ERROR, "a refusal")
    on_disk.kill()
    with pytest.raises(RuntimeError) as failed:
        on_disk.start()
    last_line = str(failed.value).strip().splitlines()[-1]
    assert last_line.startswith("pykbroker: ")
    assert "no space left" in last_line
    assert os.fspath(on_disk.data_dir or "") in last_line
    assert "Traceback" not in on_disk.log_text()
    disk.free()
    on_disk.start()
    assert values_in(on_disk.bootstrap, topic) == [message.value for message in messages]
    on_disk.stop()
