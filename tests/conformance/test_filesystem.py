"""One suite for the real file system and the one in memory that tests use."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore import append_mapping
from pykbroker.logstore import filesystem as filesystem_module
from pykbroker.logstore.errors import DirectoryLocked, StorageError, StorageFull
from pykbroker.logstore.filesystem import DirectoryEntry, FileSystem, OsFileSystem
from tests.simulation.disk import Disk
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.portable import without_calls_of_linux


@pytest.fixture(params=["real", "portable", "fake", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FileSystem, str]:
    """A file system and a directory in it."""
    if request.param == "portable":
        without_calls_of_linux(monkeypatch)
    filesystem: Any
    match request.param:
        case "fake":
            filesystem = FakeFileSystem()
        case "simulated":
            filesystem = Disk("conformance", lambda: 0).mount(lambda seconds: None, lambda: None)
        case _:
            filesystem = OsFileSystem()
    folder = str(tmp_path / "place")
    filesystem.make_directory(folder)
    return filesystem, folder


def test_appends_are_read_back(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    path = f"{folder}/a"
    descriptor = filesystem.open(path, create=True)
    filesystem.append(descriptor, (b"abc", memoryview(b"defg")), 7, 0, path)
    filesystem.append(descriptor, (bytearray(b"hi"),), 2, 7, path)
    assert filesystem.read(descriptor, 100, 0) == b"abcdefghi"
    assert filesystem.read(descriptor, 3, 5) == b"fgh"
    assert filesystem.read(descriptor, 3, 9) == b""
    assert filesystem.file_size(path) == 9
    filesystem.sync(descriptor)
    filesystem.close(descriptor)


def test_many_parts_are_one_append(place: tuple[FileSystem, str]) -> None:
    """The system's own limit for one call is 1024."""
    filesystem, folder = place
    path = f"{folder}/a"
    descriptor = filesystem.open(path, create=True)
    for count in (999, 1000, 1001, 1025, 5000):
        parts = [b"%04d" % n for n in range(count)]
        position = filesystem.file_size(path)
        filesystem.append(descriptor, parts, 4 * count, position, path)
        assert filesystem.read(descriptor, 4 * count, position) == b"".join(parts)
    filesystem.close(descriptor)


def test_mapped_appends_are_read_back_and_trimmed(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    path = f"{folder}/a"
    descriptor = filesystem.open(path, create=True)
    data = b""
    for number in range(200):
        parts = (b"%06d" % number, memoryview(bytes([65 + number % 26]) * (number * 7)))
        filesystem.append_mapped(descriptor, parts, 6 + number * 7, len(data), path)
        data += b"".join(parts)
        assert filesystem.read(descriptor, len(data), 0) == data
        assert not any(filesystem.read(descriptor, 1 << 20, len(data)))
        if number % 50 == 20:
            filesystem.trim(descriptor)
            assert filesystem.file_size(path) == len(data)
    while filesystem.trim_idle():
        pass
    assert filesystem.file_size(path) == len(data)
    filesystem.append_mapped(descriptor, (b"more",), 4, len(data), path)
    filesystem.truncate(descriptor, 10)
    assert filesystem.file_size(path) == 10
    filesystem.append_mapped(descriptor, (b"end",), 3, 10, path)
    filesystem.close(descriptor)
    assert filesystem.read_file(path) == data[:10] + b"end"


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_appends_where_nothing_can_be_allocated_ahead(
    place: tuple[FileSystem, str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file system that refuses: a store into space that may not exist would end the process."""

    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(code, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    test_mapped_appends_are_read_back_and_trimmed(place)


def test_a_failed_close_leaves_nothing_behind(place: tuple[FileSystem, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is gone, and its number may be another file's."""
    filesystem, folder = place
    if not isinstance(filesystem, OsFileSystem):
        return
    path = f"{folder}/a"
    descriptor = filesystem.open(path, create=True)
    filesystem.append_mapped(descriptor, (b"abc",), 3, 0, path)
    with monkeypatch.context() as patch:
        closed = os.close

        def close(number: int) -> None:
            closed(number)
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(os, "close", close)
        with pytest.raises(StorageError, match="a: Input/output error"):
            filesystem.close(descriptor)
    again = filesystem.open(path)
    assert again == descriptor
    filesystem.append_mapped(again, (b"def",), 3, 3, path)
    filesystem.close(again)
    assert filesystem.read_file(path) == b"abcdef"


def test_truncation_and_view(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    path = f"{folder}/a"
    descriptor = filesystem.open(path, create=True)
    filesystem.append(descriptor, (b"0123456789",), 10, 0, path)
    filesystem.truncate(descriptor, 6)
    with filesystem.view(descriptor, 6) as view:
        assert bytes(view) == b"012345"
        assert view.readonly
    with filesystem.view(descriptor, 0) as view:
        assert bytes(view) == b""
    filesystem.append(descriptor, (b"x",), 1, 6, path)
    assert filesystem.read(descriptor, 100, 0) == b"012345x"
    filesystem.close(descriptor)


def test_a_missing_file_is_an_error_with_its_path(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    with pytest.raises(StorageError, match="none"):
        filesystem.open(f"{folder}/none")
    with pytest.raises(StorageError):
        filesystem.open(f"{folder}/no/folder", create=True)
    with pytest.raises(StorageError):
        filesystem.file_size(f"{folder}/none")
    with pytest.raises(StorageError):
        filesystem.list(f"{folder}/none")
    with pytest.raises(StorageError):
        filesystem.rename(f"{folder}/none", f"{folder}/other")
    assert filesystem.read_file(f"{folder}/none") is None
    filesystem.remove(f"{folder}/none")
    filesystem.sync_file(f"{folder}/none")
    filesystem.remove_tree(f"{folder}/none")


def test_an_open_file_outlives_its_name(place: tuple[FileSystem, str]) -> None:
    """Leases on deleted segments build on this."""
    filesystem, folder = place
    descriptor = filesystem.open(f"{folder}/a", create=True)
    filesystem.append(descriptor, (b"abc",), 3, 0, f"{folder}/a")
    filesystem.rename(f"{folder}/a", f"{folder}/b")
    assert filesystem.read(descriptor, 3, 0) == b"abc"
    filesystem.remove(f"{folder}/b")
    assert filesystem.read(descriptor, 3, 0) == b"abc"
    filesystem.close(descriptor)
    assert not filesystem.exists(f"{folder}/b")


def test_whole_files_are_replaced_in_one_step(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    filesystem.write_file(f"{folder}/a", b"old")
    filesystem.write_file(f"{folder}/a", b"new", durable=False)
    assert filesystem.read_file(f"{folder}/a") == b"new"
    filesystem.write_file(f"{folder}/empty", b"")
    assert filesystem.read_file(f"{folder}/empty") == b""
    assert sorted(filesystem.list(folder)) == [DirectoryEntry("a", False), DirectoryEntry("empty", False)]


def test_directories(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    filesystem.make_directory(f"{folder}/x/y")
    filesystem.make_directory(f"{folder}/x/y")
    filesystem.write_file(f"{folder}/x/y/f", b"1")
    assert filesystem.list(folder) == [DirectoryEntry("x", True)]
    filesystem.rename(f"{folder}/x", f"{folder}/z")
    assert filesystem.read_file(f"{folder}/z/y/f") == b"1"
    filesystem.sync_directory(f"{folder}/z")
    filesystem.remove_tree(f"{folder}/z")
    assert not filesystem.exists(f"{folder}/z")
    assert filesystem.list(folder) == []


def test_a_lock_is_exclusive_and_comes_back(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    path = f"{folder}/.lock"
    handle = filesystem.lock(path)
    if isinstance(filesystem, OsFileSystem):
        # POSIX locks belong to a process: only another one sees them.
        code = (
            "import sys; from pykbroker.logstore.filesystem import OsFileSystem\n"
            "from pykbroker.logstore.errors import DirectoryLocked\n"
            "try: OsFileSystem().lock(sys.argv[1])\n"
            "except DirectoryLocked: sys.exit(7)"
        )
        assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 7
    else:
        with pytest.raises(DirectoryLocked):
            filesystem.lock(path)
    filesystem.unlock(handle)
    filesystem.unlock(filesystem.lock(path))


def test_a_volume_is_synced_by_the_handle_of_a_lock(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    handle = filesystem.lock(f"{folder}/.lock")
    filesystem.write_file(f"{folder}/a", b"abc", durable=False)
    assert isinstance(filesystem.sync_volume(handle), bool)
    assert filesystem.read_file(f"{folder}/a") == b"abc"
    filesystem.unlock(handle)


def test_space_is_known(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    total, usable = filesystem.space(folder)
    assert total >= usable > 0


def test_macos_syncs_to_the_medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fsync leaves the bytes in the drive's cache, as the manual page says; Java's force does the same."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(filesystem_module, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append((descriptor, command)))
    monkeypatch.setattr(filesystem_module, "_sync_data", filesystem_module._choose_sync())
    filesystem = OsFileSystem()
    descriptor = filesystem.open(str(tmp_path / "a"), create=True)
    filesystem.sync(descriptor)
    filesystem.close(descriptor)
    assert asked == [(descriptor, 51)]


def test_a_file_is_created_in_one_call(place: tuple[FileSystem, str]) -> None:
    filesystem, folder = place
    for content in (b"new", b""):
        path = f"{folder}/created-{len(content)}"
        filesystem.create_file(path, content)
        assert filesystem.read_file(path) == content
        filesystem.write_file(path, b"newer")
        assert filesystem.read_file(path) == b"newer"
    with pytest.raises(StorageError):
        filesystem.create_file(f"{folder}/missing/a", b"x")
    assert not filesystem.exists(f"{folder}/missing/a")


def test_a_refused_call_on_an_open_file_names_the_file(tmp_path: Path) -> None:
    """The system refuses these for a descriptor that is gone."""
    filesystem = OsFileSystem()
    path = f"{tmp_path}/a"
    descriptor = filesystem.open(path, create=True)
    os.close(descriptor)
    for call in (
        lambda: filesystem.read(descriptor, 1, 0),
        lambda: filesystem.truncate(descriptor, 0),
        lambda: filesystem.view(descriptor, 1),
        lambda: filesystem.sync(descriptor),
    ):
        with pytest.raises(StorageError, match="Bad file descriptor") as raised:
            call()
        assert raised.value.path == path


def test_what_the_system_refuses_is_an_error_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = OsFileSystem()
    none, folder = f"{tmp_path}/none", f"{tmp_path}/folder"
    filesystem.make_directory(folder)

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "rmdir", refuse)
    calls: list[tuple[Callable[[str], object], str]] = [
        (filesystem.modified_ms, none),
        (filesystem.space, none),
        (filesystem.sync_directory, none),
        # A directory is in the place of the file.
        (filesystem.remove, folder),
        (filesystem.remove_tree, folder),
    ]
    for call, path in calls:
        with pytest.raises(StorageError) as raised:
            call(path)
        assert raised.value.path == path


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
def test_a_full_disk_is_told_from_other_failures() -> None:
    filesystem = OsFileSystem()
    descriptor = filesystem.open("/dev/full")
    try:
        with pytest.raises(StorageFull, match="no space left"):
            filesystem.append(descriptor, (b"x",), 1, 0, "/dev/full")
    finally:
        filesystem.close(descriptor)


def test_a_mapped_append_that_finds_no_space_leaves_the_data_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not append_mapping.IS_AVAILABLE:
        pytest.skip("the system cannot allocate space ahead")
    filesystem = OsFileSystem()
    path = f"{tmp_path}/a"
    descriptor = filesystem.open(path, create=True)
    part = b"x" * (append_mapping.BUSY_SIZE // 2)
    size = 0
    for _ in range(4):
        filesystem.append_mapped(descriptor, (part,), len(part), size, path)
        size += len(part)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    large = b"y" * (4 * append_mapping.STEP_MAX)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StorageFull):
            filesystem.append_mapped(descriptor, (large,), len(large), size, path)
    assert filesystem.file_size(path) == size, "the space ahead was given back"
    filesystem.append_mapped(descriptor, (large,), len(large), size, path)
    assert filesystem.read(descriptor, size + len(large), 0) == part * 4 + large
    filesystem.close(descriptor)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (errno.EAGAIN, DirectoryLocked, "is a broker already running here"),
        (errno.EACCES, DirectoryLocked, "is a broker already running here"),
        (errno.ENOLCK, StorageError, "No locks available"),
    ],
)
def test_a_lock_that_is_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StorageError], text: str
) -> None:
    """Another process has it, or the file system (NFS without its lock service) has no locks."""

    def refuse(descriptor: int, operation: int) -> None:
        opened.append(descriptor)
        raise OSError(code, os.strerror(code))

    opened: list[int] = []
    filesystem = OsFileSystem()
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(StorageError, match=text) as raised:
        filesystem.lock(f"{tmp_path}/.lock")
    assert type(raised.value) is kind
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_mapping_that_cannot_be_trimmed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again at the next trim: the zeros behind the data must not stay."""
    if not append_mapping.IS_AVAILABLE:
        pytest.skip("the system cannot allocate space ahead")
    filesystem = OsFileSystem()
    path = f"{tmp_path}/a"
    descriptor = filesystem.open(path, create=True)
    part = b"x" * 5000
    size = 0
    while filesystem.file_size(path) <= size:
        filesystem.append_mapped(descriptor, (part,), len(part), size, path)
        size += len(part)

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(StorageError, match="Input/output error") as raised:
            filesystem.trim(descriptor)
    assert raised.value.path == path
    assert filesystem.file_size(path) > size
    filesystem.trim(descriptor)
    assert filesystem.file_size(path) == size
    filesystem.close(descriptor)
