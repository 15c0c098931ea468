"""`pykbroker start` without a real broker: output, port file, exit codes, signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import trio

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.node_process import SWITCH_INTERVAL_S, raise_expected
from pykbroker.cli.start.options import TopicSpec
from pykbroker.cli.start.run import start
from pykbroker.cli.start.tls import stream_opener, write_client_files
from pykbroker.config.broker_config import ConfigError
from pykbroker.controller.metadata.image import UnsupportedMetadataVersion
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.controller.snapshot_file import parse_snapshot
from pykbroker.logstore.errors import DirectoryLocked
from pykbroker.network.listener import BindError
from tests.pykbroker.cli.conftest import Run


class Address(NamedTuple):
    host: str
    port: int


Broker = Callable[..., Awaitable[None]]


@pytest.fixture
def use_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Broker], None]:
    """Puts a function in the place of `pykbroker.node.broker.run_broker`."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("KAFKA_") or name == "CLUSTER_ID":
            monkeypatch.delenv(name)

    def use(run_broker: Broker) -> None:
        module = ModuleType("pykbroker.node.broker")
        vars(module)["run_broker"] = run_broker
        monkeypatch.setitem(sys.modules, "pykbroker.node.broker", module)

    return use


async def broker_until_stopped(
    config: Any, *, on_ready: Callable[[Any], None], stop: trio.Event, **others: Any
) -> None:
    on_ready(Address("localhost", 4711))
    await stop.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(
    run: Run, use_broker: Callable[[Broker], None], tmp_path: Path, number: signal.Signals
) -> None:
    seen: list[str] = []

    async def broker(config: Any, **others: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await broker_until_stopped(config, **others)

    async def watch() -> None:
        while not (tmp_path / "port").exists():
            await trio.sleep(0.001)
        seen.append((tmp_path / "port").read_text())
        os.kill(os.getpid(), number)

    use_broker(broker)
    code, output, errors = run("start", "--port-file", "port")
    assert (code, errors) == (0, "")
    assert seen == ["localhost:4711"]
    assert "listens on  localhost:4711" in output
    assert f"data in     {tmp_path / 'pykbroker-data'}" in output
    assert "Ctrl-C" in output
    assert not (tmp_path / "port").exists(), "removed at the end, so that nobody waits for a broker that is gone"


def test_the_end_of_standard_input_ends_it(
    run: Run, use_broker: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.close(writing)
        use_broker(broker_until_stopped)
        assert run("start", "--stop-with-stdin")[0] == 0


def test_other_threads_keep_the_interpreter_for_a_short_time(run: Run, use_broker: Callable[[Broker], None]) -> None:
    intervals = [sys.getswitchinterval()]

    async def broker(config: Any, *, on_ready: Callable[[Any], None], **others: Any) -> None:
        intervals.append(sys.getswitchinterval())
        on_ready(Address("localhost", 4711))

    use_broker(broker)
    assert run("start", "--port", "0")[0] == 0
    assert intervals[1] == pytest.approx(SWITCH_INTERVAL_S) != intervals[0]
    assert sys.getswitchinterval() == intervals[0]


def test_settings_reach_the_broker(
    run: Run, use_broker: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []

    async def broker(config: Any, *, on_ready: Callable[[Any], None], **others: Any) -> None:
        configs.append(config)

    use_broker(broker)
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "5")
    others = ("bogus.key=1", "zookeeper.connect=x", "reserved.broker.max.id=1000")
    code, _, errors = run("start", "--port", "0", *(word for other in others for word in ("--override", other)))
    assert code == 0
    assert configs[0].topics.num_partitions == 5
    assert configs[0].network.listeners[0].port == 0
    assert errors.splitlines() == [
        "pykbroker: unknown settings, ignored: bogus.key",
        "pykbroker: settings that Apache Kafka 4 no longer has, ignored: reserved.broker.max.id, zookeeper.connect",
    ]


def test_a_new_directory_begins_at_the_levels_that_were_asked_for(
    run: Run, use_broker: Callable[[Broker], None], tmp_path: Path
) -> None:
    """A directory with levels or data keeps its own."""

    async def broker(config: Any, **others: Any) -> None:
        pass

    use_broker(broker)
    file = tmp_path / "pykbroker-data/bootstrap.checkpoint"
    words = ("--release-version", "4.0", "--feature", "group.version=0")
    assert run("start", *words)[0] == 0
    first = file.read_bytes()
    records = [decode_record(value) for value in parse_snapshot(str(file), first).values]
    assert {record.name: record.feature_level for record in records} == {
        "metadata.version": 25,
        "transaction.version": 2,
    }
    assert run("start", "--release-version", "3.9")[0] == 0
    assert file.read_bytes() == first
    file.rename(tmp_path / "pykbroker-data/meta.properties")
    assert run("start", "--release-version", "3.9")[0] == 0
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--release-version", "5.0"), "Unknown metadata.version '5.0'"),
        (("--feature", "kraft.version=1"), "it is 1 where the voters can change"),
        (("--feature", "metadata.version=31"), "31 (4.4-IV0) is not supported"),
    ],
)
def test_levels_that_no_cluster_can_begin_with(
    run: Run, use_broker: Callable[[Broker], None], words: tuple[str, str], reason: str
) -> None:
    use_broker(broker_until_stopped)
    code, _, errors = run("start", *words)
    assert code == 2
    assert reason in errors


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BindError("cannot listen on localhost:9092: the port is in use"), "the port is in use"),
        (DirectoryLocked("/data", "in use by process 5"), "choose another directory with --data-dir"),
        (PermissionError(13, "Permission denied", "/data"), "/data: Permission denied"),
        (UnsupportedMetadataVersion("metadata.version 31 (4.4-IV0) is not supported"), "runs newer software: metadata"),
    ],
)
def test_failures_that_a_person_can_mend(
    run: Run, use_broker: Callable[[Broker], None], error: Exception, expected: str
) -> None:
    async def broker(config: Any, **others: Any) -> None:
        raise error

    use_broker(broker)
    code, _, errors = run("start")
    assert code == 1
    assert expected in errors
    assert "Traceback" not in errors


def test_a_bug_keeps_its_traceback(run: Run, use_broker: Callable[[Broker], None]) -> None:
    async def broker(config: Any, **others: Any) -> None:
        raise AssertionError("broken invariant")

    use_broker(broker)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run("start")


def test_a_bad_setting_says_where_it_came_from(
    run: Run, use_broker: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_broker(broker_until_stopped)
    code, _, errors = run("start", "--override", "num.partitions=many")
    assert code == 2
    assert "num.partitions=many (from --override): " in errors
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "none")
    assert "num.partitions=none (from the environment, KAFKA_NUM_PARTITIONS): " in run("start")[2]


def test_a_refused_mechanism_is_said_in_one_plain_sentence(
    run: Run, use_broker: Callable[[Broker], None], tmp_path: Path
) -> None:
    """The file is named as the source of the settings in it, and of no others."""
    use_broker(broker_until_stopped)
    file = tmp_path / "server.properties"
    file.write_text("listeners=SASL_PLAINTEXT://:9092\nsasl.enabled.mechanisms=OTHER\n")
    errors = run("start", "--config", str(file))[2]
    assert errors.startswith(f"pykbroker: sasl.enabled.mechanisms=OTHER (from {file}): only ")
    cluster = "controller.quorum.voters=1@a:9093,2@b:9093\nlistener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT,"
    cluster += "PLAINTEXT:PLAINTEXT\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
    file.write_text(cluster)
    errors = run("start", "--config", str(file))[2]
    assert errors.startswith(
        "pykbroker: sasl.mechanism.controller.protocol is not set, and its default is GSSAPI: "
        "listener.name.controller.gssapi.sasl.jaas.config needs useKeyTab=true "
    )
    file.write_text("process.roles=broker\nlog.retention.hours=0\n")
    assert run("start", "--config", str(file))[2].startswith("pykbroker: controller.quorum.voters is not set: must ")
    file.write_text("log.retention.hours=0\n")
    assert run("start", "--config", str(file))[2].startswith("pykbroker: log.retention.ms=0: must ")


def test_a_port_file_that_cannot_be_written(run: Run, use_broker: Callable[[Broker], None]) -> None:
    use_broker(broker_until_stopped)
    code, _, errors = run("start", "--port-file", "nowhere/port")
    assert (code, errors) == (1, "pykbroker: --port-file nowhere/port: No such file or directory\n")


def stopping_itself(folder: Path, configs: list[Any]) -> Broker:
    """A broker that is told to stop when its port file is there; its settings are added to `configs`."""

    async def broker(config: Any, **others: Any) -> None:
        configs.append(config)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await broker_until_stopped(config, **others)

    async def watch() -> None:
        while not (folder / "port").exists():
            await trio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    return broker


def test_tls_for_development(run: Run, use_broker: Callable[[Broker], None], tmp_path: Path) -> None:
    """The broker gets certificates of an authority in its directory, and the user files for clients."""
    configs: list[Any] = []
    use_broker(stopping_itself(tmp_path, configs))
    code, output, errors = run("start", "--tls", "--data-dir", "data", "--port-file", "port")
    assert (code, errors) == (0, "")
    assert configs[0].network.security_protocols == {"SSL": "SSL", "CONTROLLER": "SSL"}
    assert f"clients trust {tmp_path}/data/tls-ca.pem" in output
    java = (tmp_path / "data/tls-client-java.properties").read_text()
    assert "bootstrap.servers=localhost:4711" in java
    opener = stream_opener(str(tmp_path / "data"))
    assert callable(opener)


@pytest.mark.parametrize("key", ["listeners", "ssl.keystore.location"])
def test_tls_settings_that_are_in_the_way(run: Run, use_broker: Callable[[Broker], None], key: str) -> None:
    use_broker(broker_until_stopped)
    code, _, errors = run("start", "--tls", "--override", f"{key}=x")
    assert (code, f"--tls sets {key} itself" in errors) == (2, True)


def test_tls_without_the_package(
    run: Run, use_broker: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(directory: str, hosts: list[str]) -> None:
        raise ImportError("cryptography")

    use_broker(broker_until_stopped)
    monkeypatch.setattr("pykbroker.cli.start.tls.prepare", prepare)
    code, _, errors = run("start", "--tls")
    assert (code, errors) == (1, "pykbroker: --tls needs the package cryptography: pip install 'pykbroker[tls]'\n")


def test_tls_in_a_directory_that_cannot_be_written(
    run: Run, use_broker: Callable[[Broker], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_broker(broker_until_stopped)
    (tmp_path / "file").write_text("")
    code, _, errors = run("start", "--tls", "--data-dir", "file/data")
    assert code == 1
    assert errors.startswith(f"pykbroker: --tls: the certificates in {tmp_path}/file/data cannot be made: ")

    def write(directory: str, bootstrap_servers: str) -> dict[str, str]:
        raise PermissionError(13, "Permission denied", "tls-client-java.properties")

    monkeypatch.setattr("pykbroker.security.tls.development.write_client_files", write)
    with pytest.raises(CliError, match=r"tls-client-java\.properties: Permission denied"):
        write_client_files(str(tmp_path), "localhost:9092")


def test_settings_from_a_provider_that_fails(run: Run, use_broker: Callable[[Broker], None]) -> None:
    use_broker(broker_until_stopped)
    words = ["--override", "config.providers=env", "--override", "config.providers.env.class=com.example.Unknown"]
    code, _, errors = run("start", *words)
    assert code == 1
    assert errors.startswith("pykbroker: ")
    assert "com.example.Unknown" in errors


def test_settings_without_effect_are_named(run: Run, use_broker: Callable[[Broker], None], tmp_path: Path) -> None:
    use_broker(stopping_itself(tmp_path, []))
    code, _, errors = run("start", "--override", "num.network.threads=5", "--port-file", "port")
    assert code == 0
    assert errors == "pykbroker: settings without effect on this broker: num.network.threads\n"


def test_topics_are_created_before_the_address_is_told(
    use_broker: Callable[[Broker], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prepared process passes the address to the program that waits; the broker is then ready with its topics."""
    events: list[str] = []

    async def create(host: str, port: int, topics: list[TopicSpec], opener: object, *, brokers_within_s: float) -> None:
        await trio.lowlevel.checkpoint()
        assert (opener, brokers_within_s) == (None, 0)
        events.append(f"{topics[0].name} at {host}:{port}")

    monkeypatch.setattr("pykbroker.cli.start.initial_topics.create_initial_topics", create)
    use_broker(stopping_itself(tmp_path, []))
    assert start(["--topic", "orders:3", "--port-file", "port"], events.append) == 0
    assert events == ["orders at localhost:4711", "localhost:4711"]


def test_a_second_signal_removes_the_port_file(
    run: Run, use_broker: Callable[[Broker], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends at once after that."""
    use_broker(broker_until_stopped)
    left: list[bool] = []

    def stop_twice(config: Any, cluster_id: Any, announce: Any, on_stop: Any, **others: Any) -> int:
        (tmp_path / "port").write_text("localhost:4711")
        for is_again in (False, True):
            on_stop(is_again)
            left.append((tmp_path / "port").exists())
        return 0

    monkeypatch.setattr("pykbroker.cli.start.run.run_until_stopped", stop_twice)
    code, output, errors = run("start", "--port-file", str(tmp_path / "port"))
    assert (code, left) == (0, [True, False])
    assert output == "stopping; once more stops at once\n"
    assert errors.endswith("pykbroker: stopped at once\n")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ExceptionGroup("", [CliError("what a part has explained")]), "what a part has explained"),
        (ConfigError("log.dirs", "", "must not be empty"), "log.dirs: must not be empty"),
    ],
)
def test_failures_that_are_explained(failure: Exception, text: str) -> None:
    with pytest.raises(CliError) as raised:
        raise_expected(failure)
    assert str(raised.value) == text
