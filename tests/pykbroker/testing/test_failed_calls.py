"""Brokers of tests that do not start or stop in time, and client libraries that fail."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any, Self

import pytest

from pykbroker.testing import local_client, local_cluster, local_storage
from pykbroker.testing.local_broker import LocalBroker
from pykbroker.testing.local_client import LocalBrokerError, _as_bytes
from pykbroker.testing.local_cluster import LocalCluster


class Process:
    """A broker that ignores all requests, and ends only when it is killed."""

    pid = 1

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.status: int | None = None
        self.is_stdin_closed = False

    def address(self) -> str | None:
        return None

    def poll(self) -> int | None:
        return self.status

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.status = -signal.SIGKILL

    def wait(self, timeout_s: float | None = None) -> int:
        if self.status is None:
            raise TimeoutError
        return self.status

    def wait_for_output(self, timeout_s: float) -> None: ...

    def close_stdin(self) -> None:
        self.is_stdin_closed = True

    def close(self) -> None: ...


def broker_of(process: Process) -> LocalBroker:
    broker = LocalBroker(stop_timeout_s=0.0, start_timeout_s=0.0)
    resources: Any = broker._resources
    resources.process = process
    return broker


def test_a_broker_that_does_not_stop_is_killed_and_said_so() -> None:
    process = Process()
    with pytest.raises(LocalBrokerError, match="did not end within 0 s of SIGTERM and was killed"):
        broker_of(process).stop()
    assert process.signals == [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL]


def test_a_broker_that_is_not_ready_in_time_is_killed_and_said_so() -> None:
    process = Process()
    with pytest.raises(LocalBrokerError, match="was not ready within 0 s"):
        broker_of(process).wait_until_ready()
    assert process.signals == [signal.SIGKILL]
    with pytest.raises(LocalBrokerError, match="the broker was not started"):
        LocalBroker().wait_until_ready()


def test_a_broker_that_stops_without_the_controller_has_no_input_any_more() -> None:
    process = Process()
    broker = broker_of(process)
    broker.stop_without_controller()
    assert process.is_stdin_closed
    broker.kill()
    LocalBroker().stop_without_controller()


def test_a_cluster_without_nodes_is_none() -> None:
    with pytest.raises(ValueError, match="nodes=0: a cluster has at least one"):
        LocalCluster(0)


def test_a_cluster_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[LocalCluster] = []

    def fail(cluster: LocalCluster) -> None:
        raise LocalBrokerError("it does not start")

    close = LocalCluster.close

    def note(cluster: LocalCluster) -> None:
        closed.append(cluster)
        close(cluster)

    monkeypatch.setattr(LocalCluster, "start_all", fail)
    monkeypatch.setattr(LocalCluster, "close", note)
    cluster = LocalCluster(1)
    with pytest.raises(LocalBrokerError, match="it does not start"):
        cluster.__enter__()
    assert closed == [cluster]


def test_a_cluster_id_does_not_look_like_an_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`pykbroker format -t -abc` would not be read as a value."""
    drawn = iter((b"\xf8" * 16, b"\x01" * 16))
    monkeypatch.setattr("os.urandom", lambda size: next(drawn))
    assert not local_cluster._cluster_id("/nowhere").startswith("-")
    assert list(drawn) == []


def test_certificates_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ImportError

    monkeypatch.setattr(local_cluster, "prepare", refuse)
    with pytest.raises(LocalBrokerError, match=r"pip install 'pykbroker\[tls\]'"):
        local_cluster._tls_settings({}, "/nowhere")


def test_memory_that_is_not_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_storage, "MEMORY_DIRECTORY", "/memory")
    kind = next(iter(local_storage._MEMORY_FILE_SYSTEMS))
    monkeypatch.setattr(local_storage, "open", lambda *_, **__: Lines(f"none /memory {kind} rw 0 0\n"), raising=False)
    assert local_storage._reason_against_memory() == "/memory is not writable"


class Lines(list[str]):
    """An open file with one line."""

    def __init__(self, line: str) -> None:
        super().__init__([line])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_the_library_that_is_loaded_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_client, "sys", SimpleNamespace(modules={"kafka": None}))
    assert type(local_client.client_library()).__name__ == "KafkaPython"


def test_what_is_bytes_in_another_form_is_taken() -> None:
    assert [_as_bytes(value, "key") for value in (bytearray(b"a"), memoryview(b"b"), "c", b"d", None)] == [
        b"a",
        b"b",
        b"c",
        b"d",
        None,
    ]
    with pytest.raises(TypeError, match="a record's key is bytes, str or None, not int"):
        _as_bytes(5, "key")
