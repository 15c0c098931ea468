"""LocalBroker and `pykbroker start` as real processes, for what fakes cannot show."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pykbroker
from pykbroker.cli import main
from pykbroker.testing.local_broker import LocalBroker, LocalBrokerError, _environment
from pykbroker.testing.local_cluster import LocalCluster

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with pykbroker.LocalBroker(
        topics={"orders": 3}, config={"num.partitions": 2, "log.cleaner.enable": True}
    ) as started:
        yield started


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rpartition(") ")[2].startswith("Z"):
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still lives")


def wait_until_removed(folder: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while os.path.exists(folder):
        assert time.monotonic() < deadline, f"{folder} is still there"
        time.sleep(0.01)


def test_it_answers_where_it_says(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert (host, int(port)) == ("localhost", broker.port)
    assert broker.is_running
    assert broker.returncode is None
    assert str(broker.pid) in repr(broker)
    assert "is ready" in broker.log
    cli(capsys, "ready", "-b", broker.bootstrap_servers)


def test_topics_and_settings_are_there(broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert '"partitions": 3' in cli(capsys, "topic", "list", "--json", "-b", broker.bootstrap_servers)
    cli(capsys, "topic", "create", "by-default", "-b", broker.bootstrap_servers)
    listed = cli(capsys, "topic", "list", "--json", "-b", broker.bootstrap_servers)
    assert '"partitions": 2' in listed


def rebalance_delay(address: str) -> tuple[str, int]:
    """Value and source of the setting on node 1, as a stock client gets them."""
    admin_module = pytest.importorskip("confluent_kafka.admin")
    resource = admin_module.ConfigResource(admin_module.ResourceType.BROKER, "1")
    admin = admin_module.AdminClient({"bootstrap.servers": address})
    entry = admin.describe_configs([resource])[resource].result(DEADLINE_S)["group.initial.rebalance.delay.ms"]
    return entry.value, entry.source


def test_a_new_group_has_its_partitions_at_once() -> None:
    """Kafka's default of 3 s is for members that start one after another; its source is a static setting (4)."""
    key = "group.initial.rebalance.delay.ms"
    with LocalBroker() as plain, LocalBroker(config={key: 70}) as other:
        assert rebalance_delay(plain.bootstrap_servers) == ("0", 4)
        assert rebalance_delay(other.bootstrap_servers) == ("70", 4)
    with LocalCluster(1) as plain_cluster, LocalCluster(1, config={key: 80}) as other_cluster:
        assert rebalance_delay(plain_cluster.bootstrap_servers) == ("0", 4)
        assert rebalance_delay(other_cluster.bootstrap_servers) == ("80", 4)


def test_kill_and_restart_keep_address_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalBroker(topics=["kept:2:retention.ms=77"]) as broker:
        address, folder, first_pid = broker.bootstrap_servers, broker.data_dir, broker.pid
        broker.kill()
        assert not broker.is_running
        assert broker.returncode == -signal.SIGKILL
        broker.restart()
        assert (broker.bootstrap_servers, broker.data_dir) == (address, folder)
        assert broker.pid != first_pid
        assert "retention.ms=77" in cli(capsys, "topic", "describe", "kept", "-b", address)
        assert broker.stop() == 0
        assert broker.stop() == 0, "stopping twice is no mistake"
    assert not os.path.exists(folder)


def test_a_data_dir_of_the_user_stays(tmp_path: Path) -> None:
    with LocalBroker(data_dir=tmp_path / "data") as broker:
        assert broker.data_dir == str(tmp_path / "data")
    assert (tmp_path / "data" / "meta.properties").exists()


def test_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalBroker(keep=True) as broker:
        pass
    assert os.path.exists(os.path.join(broker.data_dir, "meta.properties"))
    assert "is ready" in broker.log


def test_a_start_that_fails_shows_the_log() -> None:
    broker = LocalBroker(config={"num.partitions": "many"})
    with pytest.raises(LocalBrokerError, match=r"exit code 2(.|\n)*num\.partitions=many"):
        broker.start()
    broker.close()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = LocalBroker(port=taken.getsockname()[1])
        with pytest.raises(LocalBrokerError, match="the port is in use"):
            broker.start()
        broker.close()


def test_a_data_dir_that_is_in_use(broker: LocalBroker) -> None:
    second = LocalBroker(data_dir=broker.data_dir)
    with pytest.raises(LocalBrokerError, match="choose another directory with --data-dir"):
        second.start()
    second.close()


def test_calls_out_of_order() -> None:
    broker = LocalBroker()
    with pytest.raises(LocalBrokerError, match="not started"):
        _ = broker.bootstrap_servers
    assert (broker.pid, broker.returncode, broker.is_running, broker.log) == (None, None, False, "")
    broker.kill()
    with broker, pytest.raises(LocalBrokerError, match="running already"):
        broker.start()


def test_the_settings_of_this_process_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "nonsense")
    with LocalBroker() as broker:
        assert broker.is_running


def test_the_broker_ends_when_its_parent_is_killed() -> None:
    script = (
        "import pykbroker, time\n"
        "broker = pykbroker.LocalBroker().start()\n"
        "print(broker.pid, broker._resources.directory, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        parent.kill()
    wait_until_gone(int(pid))
    wait_until_removed(folder)


def test_a_broker_that_is_forgotten_goes_with_the_interpreter() -> None:
    script = (
        "import pykbroker\n"
        "broker = pykbroker.LocalBroker().start()\n"
        "print(broker.pid, broker._resources.directory, flush=True)\n"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    pid, folder = output.split()
    wait_until_gone(int(pid))
    assert not os.path.exists(folder)


def test_a_checkout_that_is_not_installed_is_importable_in_the_process() -> None:
    """The path of the package follows its module when that moves; an installed package would hide a mistake."""
    first = _environment()["PYTHONPATH"].split(os.pathsep)[0]
    assert os.path.samefile(os.path.join(first, "pykbroker"), os.path.dirname(pykbroker.__file__))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_without_any_option_in_the_foreground(tmp_path: Path, number: signal.Signals) -> None:
    # The port alone is named: other tests may run at the same time.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment["PYTHONPATH"] = os.path.dirname(os.path.dirname(os.path.abspath(pykbroker.__file__)))
    with subprocess.Popen(
        [sys.executable, "-m", "pykbroker", "start", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert "is ready" in lines[0]
        assert str(tmp_path / "pykbroker-data") in lines[2]
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0
