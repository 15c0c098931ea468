"""Places of temporary directories: in memory if there is room."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pykbroker.testing import local_storage
from pykbroker.testing.local_broker import LocalBroker
from pykbroker.testing.local_storage import StorageChoiceError, temporary_directory

MEGABYTE = 1 << 20


class Machine:
    """The places that the module looks at, with directories of this test instead of the real ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory, self.disk = folder / "memory", folder / "disk"
        self.memory.mkdir()
        self.disk.mkdir()
        self.mounts = folder / "mounts"
        self.free_bytes = 300 * MEGABYTE
        self.mount("tmpfs")
        monkeypatch.setattr("tempfile.tempdir", str(self.disk))
        monkeypatch.setattr(local_storage, "MEMORY_DIRECTORY", str(self.memory))
        monkeypatch.setattr(local_storage, "MOUNTS", str(self.mounts))
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def mount(self, kind: str) -> None:
        self.mounts.write_text(f"/dev/vda / ext4 rw 0 0\nshm {self.memory} {kind} rw 0 0\n")

    def _statvfs(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free_bytes // 4096, f_frsize=4096)

    def place(self, storage: str, *, keep: bool = False) -> str:
        return Path(temporary_directory("p-", storage, keep=keep)).parent.name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_memory_with_room(machine: Machine) -> None:
    assert machine.place("auto") == "memory"
    assert machine.place("memory") == "memory"
    assert machine.place("disk") == "disk"
    assert machine.place("auto", keep=True) == "disk", "who keeps a folder wants to find it after a restart"
    assert machine.place(str(machine.mounts.parent)) == machine.mounts.parent.name


def test_memory_without_room(machine: Machine) -> None:
    """As in a container, whose /dev/shm has 64 MB."""
    machine.free_bytes = 64 * MEGABYTE
    assert machine.place("auto") == "disk"
    with pytest.raises(StorageChoiceError, match='has 64 MiB free, less than 256; use "auto" or "disk"'):
        machine.place("memory")


def test_no_memory(machine: Machine) -> None:
    machine.mount("ext4")
    assert machine.place("auto") == "disk"
    machine.mounts.unlink()
    assert machine.place("auto") == "disk"
    with pytest.raises(StorageChoiceError, match="is no file system in memory"):
        machine.place("memory")


def test_no_such_folder(machine: Machine) -> None:
    with pytest.raises(
        StorageChoiceError, match=r"storage='ram': there is no such directory; give \"auto\", \"memory\""
    ):
        machine.place("ram")


def test_a_broker_with_data_of_the_user_has_its_log_on_disk(machine: Machine, tmp_path: Path) -> None:
    broker = LocalBroker(data_dir=tmp_path / "data")
    assert Path(broker._directory()).parent.name == "disk"
    broker.close()
    assert list(machine.disk.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_a_busy_broker_takes_little_of_it() -> None:
    """In memory, space that is allocated ahead of busy logs is really taken: 60 partitions and a group take few MB."""
    with LocalBroker(topics={"many": 60}) as broker:
        for partition in range(60):
            broker.produce("many", "x", partition=partition)
        folder = Path(broker.data_dir)
        allocated = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    assert allocated < 16 * MEGABYTE
