"""A data directory with any one file damaged in any way, under a whole broker.

It starts and serves, saying what it cut where records are missing; or it does not start, and says in one line which
file is wrong. Never a traceback, never a task that ends the broker later, never a change of other topics' records.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.node_process import raise_expected
from pykbroker.logstore import filesystem as filesystem_module
from pykbroker.logstore.checkpoint_file import write_offsets
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from tests.support.data_path import batch
from tests.support.whole_broker import WholeBroker

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "700"}
RECORD_SIZE = 400_000
WITNESS_RECORDS = 5


def until(call: Callable[[], int]) -> None:
    """Asks until the answer is no error: coordinators load and topics are made meanwhile."""
    deadline = time.monotonic() + 20
    while (code := call()) != 0:
        assert time.monotonic() < deadline, ErrorCode(code)
        time.sleep(0.01)


def abort_a_transaction(broker: WholeBroker, topic: str) -> None:
    until(lambda: broker.find_coordinator("tx", 1))
    until(lambda: broker.init_producer_id("tx").error_code)
    producer = broker.init_producer_id("tx")
    place = ("tx", producer.producer_id, producer.producer_epoch)
    until(lambda: broker.add_partition_to_transaction(*place, topic, 0))
    data = batch(
        1, producer_id=place[1], producer_epoch=place[2], base_sequence=0, is_transactional=True, timestamp=now_ms()
    )
    assert broker.produce(topic, data, transactional_id="tx") == 0
    assert broker.end_transaction(*place, committed=False) == 0
    until(lambda: int(broker.fetch(topic, 0, 0, isolation_level=1).aborted_transactions == []))


def now_ms() -> int:
    return int(time.time() * 1000)


def write_everything(broker: WholeBroker) -> None:
    """Every kind of file that a data directory can have."""
    for number in range(12):
        assert broker.create_topic(f"made-{number}", retention_ms="86400000") == 0
    for number in range(12):
        assert broker.delete_topic(f"made-{number}") == 0
    assert broker.create_topic("witness") == 0
    assert broker.create_topic("data", 2, segment_bytes="1048576") == 0
    for _ in range(WITNESS_RECORDS):
        assert broker.produce("witness", batch(1, timestamp=now_ms())) == 0
    for number in range(4):
        options = {"producer_id": 4711, "producer_epoch": 0, "base_sequence": number, "timestamp": now_ms()}
        assert broker.produce("data", batch(1, size=RECORD_SIZE, **options)) == 0
    assert broker.produce("data", batch(1, timestamp=now_ms()), 1) == 0
    assert broker.delete_records("data", 0, 1) == 0
    abort_a_transaction(broker, "data")
    until(lambda: broker.find_coordinator("group", 0))
    until(lambda: broker.commit("group", "data", 0, 2))
    assert broker.delete_topic("made-0") != 0


def copy_while_it_runs(source: Path, target: Path) -> None:
    """Copy a running broker's directory, as a kill would leave it; start again if a file disappears meanwhile."""
    deadline = time.monotonic() + 20
    while True:
        try:
            shutil.copytree(source, target)
        except (shutil.Error, FileNotFoundError):
            assert time.monotonic() < deadline
            shutil.rmtree(target, ignore_errors=True)
        else:
            return


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same data, after a clean stop and after a kill."""
    root = tmp_path_factory.mktemp("whole")
    stopped, killed = root / "stopped", root / "killed"
    with WholeBroker(stopped, SNAPSHOTS) as broker:
        write_everything(broker)
        copy_while_it_runs(stopped, killed)
    write_offsets(OsFileSystem(), f"{stopped}/cleaner-offset-checkpoint", {("data", 0): 0})
    return {"stopped": stopped, "killed": killed}


def files_of(folder: Path) -> list[str]:
    """All files, the partitions of deleted topics left out but one."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    deleted = [name for name in names if "-delete/" in name]
    return [name for name in names if name not in deleted] + deleted[:1]


@pytest.mark.parametrize("how", ["missing", "empty", "zeros"])
def test_a_log_without_the_id_of_its_topic_keeps_its_records(tmp_path: Path, how: str) -> None:
    """P-486."""
    with WholeBroker(tmp_path) as broker:
        assert broker.create_topic("t") == 0
        assert broker.produce("t", batch(3, timestamp=now_ms())) == 0
    path = tmp_path / "t-0" / "partition.metadata"
    content = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(b"" if how == "empty" else bytes(len(content)))
    with WholeBroker(tmp_path) as broker:
        assert broker.fetch("t", 0, 0).high_watermark == 3
    assert path.read_bytes() == content


def flip(position: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        if content:
            content[int(position * (len(content) - 1))] ^= 0x10
            path.write_bytes(content)

    return damage


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(max(path.stat().st_size, 20)))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(max(path.stat().st_size, 20)))


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\xff" * 37)


def folder_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "empty": empty,
    "random": random_bytes,
    "zeros": zeros,
    "longer": longer,
    "first bit": flip(0.0),
    "middle bit": flip(0.5),
    "last bit": flip(1.0),
    "missing": lambda path: path.unlink(missing_ok=True),
    "folder": folder_instead,
}


@pytest.fixture
def no_faults_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that was logged has a traceback."""
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def outcome(folder: Path, *, may_lose_witness: bool) -> str:
    """Starts, uses and stops a broker; what it said when it did not start or stop."""
    broker = WholeBroker(folder, SNAPSHOTS)
    try:
        broker.start()
        try:
            use(broker, may_lose_witness=may_lose_witness)
        finally:
            broker.stop()
    except BaseException as error:
        try:
            raise_expected(error)
        except CliError as told:
            return told.text
        raise
    return ""


def use(broker: WholeBroker, *, may_lose_witness: bool) -> None:
    topics = broker.topics()
    for topic, partitions in topics.items():
        for partition in range(partitions):
            read(broker, topic, partition)
    if "witness" in topics:
        found = read(broker, "witness", 0)
        assert found[:WITNESS_RECORDS] == list(range(WITNESS_RECORDS)) or may_lose_witness
        assert broker.produce("witness", batch(1, timestamp=now_ms())) == 0 or may_lose_witness
    else:
        assert may_lose_witness
    if "data" in topics:
        broker.produce("data", batch(1, timestamp=now_ms()))
    broker.find_coordinator("group", 0)
    broker.commit("group", "witness", 0, 2)
    broker.init_producer_id("tx")
    assert broker.create_topic("after") == 0
    assert broker.delete_topic("after") == 0


def read(broker: WholeBroker, topic: str, partition: int) -> list[int]:
    """Offsets of all records, as far as they can be read."""
    offsets: list[int] = []
    offset = max(0, int(broker.fetch(topic, partition, 0).log_start_offset))
    for _ in range(100):
        found: Any = broker.fetch(topic, partition, offset)
        if found.error_code or not found.records:
            break
        for one in iter_batches(bytes(found.records)):
            if one.verify_crc():
                offsets += range(one.base_offset, one.next_offset)
            offset = one.next_offset
    return offsets


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power will be lost here: nothing waits for the disk."""
    monkeypatch.setattr(filesystem_module, "_sync_data", lambda descriptor: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def check_text(text: str, folder: Path, name: str) -> None:
    """One line that names the file, or the folder that it belongs to."""
    place = name.rpartition("/")[0] or name
    assert f"{folder}/{place}" in text, text
    assert "\n" not in text.strip(), text


@pytest.mark.usefixtures("no_faults_of_ours", "no_waiting")
@pytest.mark.parametrize("state", ["stopped", "killed"])
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_any_one_file(directories: dict[str, Path], state: str, damage: str, tmp_path: Path) -> None:
    """P-171."""
    original = directories[state]
    said: dict[str, str] = {}
    for name in files_of(original):
        folder = tmp_path / "data"
        shutil.copytree(original, folder)
        DAMAGES[damage](folder / name)
        may_lose = name.startswith(("witness-0/", "__cluster_metadata-0/")) or name in ("meta.properties", ".lock")
        try:
            said[name] = outcome(folder, may_lose_witness=may_lose)
            if said[name]:
                check_text(said[name], folder, name)
        except BaseException as error:
            error.add_note(f"with {name}: {damage}")
            raise
        shutil.rmtree(folder)
    # Much of what is in a data directory can be made anew or done without.
    assert sum(1 for text in said.values() if not text) > len(said) // 3


@pytest.mark.usefixtures("no_faults_of_ours", "no_waiting")
@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_any_one_file_that_may_not_be_read(
    directories: dict[str, Path], state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it belonged to somebody else; tests may run as a user that may read everything."""
    opened = os.open
    for name in files_of(directories[state]):
        folder = tmp_path / "data"
        shutil.copytree(directories[state], folder)
        forbidden = f"{folder}/{name}"

        def refuse(path: str, *arguments: Any, forbidden: str = forbidden) -> int:
            if path == forbidden:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return opened(path, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            try:
                told = outcome(folder, may_lose_witness=True)
                if told:
                    check_text(told, folder, name)
            except BaseException as error:
                error.add_note(f"with {name}")
                raise
        # Nothing was lost by the attempt.
        assert outcome(folder, may_lose_witness=False) == "", name
        shutil.rmtree(folder)


@pytest.mark.usefixtures("no_faults_of_ours", "no_waiting")
@pytest.mark.parametrize("damage", ["cut", "empty", "missing"])
@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_metadata_that_became_shorter(tmp_path: Path, state: str, damage: str) -> None:
    """Its records are on the disk before anybody is told of them: nothing of them may be missing later.

    Without this a broker would begin a new cluster in the folder of the old one, and set its partitions aside.
    """
    stopped, folder = tmp_path / "stopped", tmp_path / "killed"
    with WholeBroker(stopped) as broker:
        assert broker.create_topic("witness") == 0
        for _ in range(WITNESS_RECORDS):
            assert broker.produce("witness", batch(1, timestamp=now_ms())) == 0
        copy_while_it_runs(stopped, folder)
    folder = folder if state == "killed" else stopped
    (log,) = folder.glob("__cluster_metadata-0/*.log")
    content = log.read_bytes()
    DAMAGES[damage](log)
    if state == "killed" and damage == "cut":
        # Half a batch at the end may be the write that the kill interrupted.
        return
    for _ in range(2):
        told = outcome(folder, may_lose_witness=False)
        check_text(told, folder, "__cluster_metadata-0/log")
        assert "missing" in told
    log.write_bytes(content)
    assert outcome(folder, may_lose_witness=False) == ""


def test_no_metadata_beside_partitions(directories: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(directories["stopped"], folder)
    shutil.rmtree(folder / "__cluster_metadata-0")
    check_text(outcome(folder, may_lose_witness=False), folder, "__cluster_metadata-0/log")
    shutil.rmtree(folder / "__cluster_metadata-0")
    shutil.copytree(directories["stopped"] / "__cluster_metadata-0", folder / "__cluster_metadata-0")
    assert outcome(folder, may_lose_witness=False) == ""


def test_files_and_folders_of_others_are_left_alone(directories: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(directories["killed"], folder)
    for name in ("no-topic-7", "data-0/backup", "remote-log-index-cache"):
        (folder / name).mkdir()
        (folder / name / "note").write_text("mine")
    for name in ("notes.txt", "data-0/notes.txt", "data-0/00000000000000000009.log.bak", "bootstrap.checkpoint"):
        (folder / name).write_text("mine")
    assert outcome(folder, may_lose_witness=False) == ""
    found = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == b"mine"]
    assert len(found) == 7


@pytest.mark.parametrize("name", ["lost+found", "x-y-z"])
def test_a_folder_of_others_beside_the_logs_is_named(directories: dict[str, Path], tmp_path: Path, name: str) -> None:
    """P-480."""
    folder = tmp_path / "data"
    shutil.copytree(directories["killed"], folder)
    (folder / name).mkdir()
    check_text(outcome(folder, may_lose_witness=False), folder, name)
    assert (folder / name).is_dir()


def records_of(log: Path) -> bytes:
    """A log without what was allocated ahead of its records."""
    content, end = log.read_bytes(), 0
    while length := int.from_bytes(content[end + 8 : end + 12], "big"):
        end += 12 + length
    return content[:end]


def with_record(value: bytes) -> Callable[[Path], None]:
    """Another record at the end of the metadata log."""

    def write(folder: Path) -> None:
        logs = sorted(folder.glob("__cluster_metadata-0/*.log"))
        # The newest segment has no record yet when a checkpoint has just been written.
        log, content = logs[-1], records_of(logs[-1])
        last = list(iter_batches(b"".join(map(records_of, logs))))[-1]
        data = build_batch(
            [Record(0, now_ms(), None, value)], base_offset=last.next_offset, leader_epoch=last.partition_leader_epoch
        )
        log.write_bytes(content + data)

    return write


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return write


# Frame version 1, then type and version as varints: a type that nobody knows; a known one in a version of the future;
# a feature level (FeatureLevelRecord: name, level, no tags) that does not exist yet.
UNKNOWN_TYPE = b"\x01\xe7\x07\x00\x00"
UNKNOWN_VERSION = b"\x01\x02\x63\x00"
UNKNOWN_LEVEL = b"\x01\x0c\x00" + b"\x11metadata.version" + b"\x03\xe7" + b"\x00"


@pytest.mark.usefixtures("no_faults_of_ours", "no_waiting")
@pytest.mark.parametrize(
    ("place", "write"),
    [
        ("meta.properties", replace("meta.properties", "version=1", "version=2")),
        ("__cluster_metadata-0", replace("__cluster_metadata-0/quorum-state", '"data_version":0', '"data_version":2')),
        ("__cluster_metadata-0", with_record(UNKNOWN_TYPE)),
        ("__cluster_metadata-0", with_record(UNKNOWN_VERSION)),
        ("__cluster_metadata-0", with_record(UNKNOWN_LEVEL)),
        ("data-0/partition.metadata", replace("data-0/partition.metadata", "version: 0", "version: 1")),
    ],
    ids=["identity", "quorum state", "record type", "record version", "feature level", "partition metadata"],
)
def test_written_by_a_newer_version(
    directories: dict[str, Path], tmp_path: Path, place: str, write: Callable[[Path], None]
) -> None:
    """Nothing is served on a guess; what it was is said in one line, and the files stay as they are."""
    folder = tmp_path / "data"
    shutil.copytree(directories["killed"], folder)
    write(folder)
    told = outcome(folder, may_lose_witness=True)
    check_text(told, folder, place)
    assert re.search("newer|where '0' was expected", told), told
    assert outcome(folder, may_lose_witness=True) == told


@pytest.mark.usefixtures("no_faults_of_ours", "no_waiting")
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "data-0/leader-epoch-checkpoint"])
def test_checkpoints_of_a_newer_version_are_done_without(
    directories: dict[str, Path], tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They can be written again; the log says that they are ignored or rebuilt."""
    folder = tmp_path / "data"
    shutil.copytree(directories["stopped"], folder)
    replace(name, "0\n", "1\n")(folder)
    assert outcome(folder, may_lose_witness=False) == ""
    assert f"{folder}/{name}: version '1' where '0' was expected" in caplog.text
    assert re.search("is ignored|is rebuilt", caplog.text)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_what_is_cut_is_said(
    directories: dict[str, Path], tmp_path: Path, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(directories[state], folder)
    path = folder / "witness-0" / "00000000000000000000.log"
    path.write_bytes(records_of(path)[:-3])
    assert outcome(folder, may_lose_witness=True) == ""
    assert f"{path}: " in caplog.text
    assert "were not whole records and were cut off" in caplog.text


@pytest.mark.usefixtures("no_waiting")
def test_records_that_are_missing_after_a_clean_stop_are_said(
    directories: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty log is a whole log; only the checkpoint of the stop knows more. Readers are not sent behind its end."""
    folder = tmp_path / "data"
    shutil.copytree(directories["stopped"], folder)
    (folder / "witness-0" / "00000000000000000000.log").write_bytes(b"")
    with WholeBroker(folder, SNAPSHOTS) as broker:
        broker.fetch("witness", 0, 0)
        assert broker.fetch("witness", 0, 0).high_watermark == 0
        topics = [ListOffsetsTopic(name="witness", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        latest = broker.client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions[0]
        assert (latest.error_code, latest.offset) == (0, 0), "P-86: not OFFSET_NOT_AVAILABLE"
    assert f"{folder}/witness-0: the records from offset 0 to {WITNESS_RECORDS - 1} are missing" in caplog.text


def start_process(data_dir: Path, *wrapper: str) -> subprocess.CompletedProcess[str]:
    """`pykbroker start` until it ends by itself."""
    command = [*wrapper, sys.executable, "-m", "pykbroker", "start", "--port", "0", "--data-dir", str(data_dir)]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_directory_in_use(directories: dict[str, Path], tmp_path: Path) -> None:
    """As a process: exit code 1 and one message; who uses the directory is not disturbed."""
    folder = tmp_path / "data"
    shutil.copytree(directories["killed"], folder)
    with WholeBroker(folder, SNAPSHOTS) as broker:
        done = start_process(folder)
        assert broker.produce("witness", batch(1, timestamp=now_ms())) == 0
    assert done.returncode == 1
    assert f"{folder}/.lock: " in done.stderr
    assert "choose another directory with --data-dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_directory_as_a_process(directories: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(directories["killed"], folder)
    (folder / "meta.properties").write_bytes(b"\0" * 10)
    done = start_process(folder)
    assert done.returncode == 1
    assert done.stderr.startswith(f"pykbroker: {folder}/meta.properties: no version: it is damaged")
    assert done.stderr.count("\n") == 1


def test_a_read_only_directory(directories: dict[str, Path], tmp_path: Path) -> None:
    """A read-only mount, in a namespace of its own: root may write where the mode says that nobody may."""
    folder = tmp_path / "data"
    shutil.copytree(directories["stopped"], folder)
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    wrapper = ["unshare", "-rm", "sh", "-c", script, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*wrapper, "true"], check=False).returncode != 0:
        pytest.skip("no read-only mount can be made in a namespace here")
    done = start_process(folder, *wrapper)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"pykbroker: {folder}/")
    assert "Read-only file system" in done.stderr
    assert outcome(folder, may_lose_witness=False) == ""
