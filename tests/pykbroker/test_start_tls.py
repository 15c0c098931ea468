"""`pykbroker start --tls`: one node and several, with stock clients and our own commands over TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.pykbroker.test_start_nodes import Started

pytestmark = pytest.mark.usefixtures("collect_client_sockets")


def pykbroker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pykbroker", *words], capture_output=True, text=True, check=False)


def one_by_one(settings: dict[str, str], topic: str) -> list[bytes]:
    """Values that come back of three sent with acks=all."""
    producer = KafkaProducer(**settings, acks="all")
    values = [b"a", bytes(400_000), b"c"]
    for value in values:
        producer.send(topic, value).get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    found = [next(consumer).value for _ in values]
    consumer.close()
    # Of three partitions, in any order.
    assert sorted(found) == sorted(values)
    return found


@pytest.mark.parametrize("nodes", [None, 3])
def test_a_cluster_with_tls(tmp_path: Path, nodes: int | None) -> None:
    """Topics of the command line, the printed text, and each of the files for clients."""
    started = Started(tmp_path, nodes, "--tls", "--topic", "orders:3")
    try:
        bootstrap = started.wait_until_ready()
        data = tmp_path / "data"
        started.wait_for(lambda: "settings for Python" in started.log, "the text for clients")
        assert f"clients trust {data}/tls-ca.pem" in started.log
        settings = json.loads((data / "tls-client-python.json").read_text())
        assert settings["bootstrap_servers"] == bootstrap
        assert len(one_by_one(settings, "orders")) == 3
        for name in ("tls-client-java.properties", "tls-client-librdkafka.properties"):
            done = pykbroker("topic", "list", "-b", bootstrap, "--command-config", str(data / name), "--json")
            assert done.returncode == 0, done.stderr
            assert "orders" in done.stdout
        # Without the authority, and without TLS.
        assert pykbroker("topic", "list", "-b", bootstrap, "--request-timeout", "2").returncode == 1
        if nodes:
            # Between the nodes and on the controllers' ports there is TLS, too.
            text = (data / "node-1.properties").read_text()
            assert "inter.broker.listener.name=SSL" in text
            assert "CONTROLLER:SSL" in text
            assert "PLAINTEXT" not in text
    finally:
        started.end()
    assert "Traceback" not in started.log
    assert "PRIVATE KEY" not in started.log


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--override", "listeners=PLAINTEXT://localhost:0"), "--tls sets listeners itself"),
        (("--override", "ssl.keystore.location=x"), "--tls sets ssl.keystore.location itself"),
    ],
)
def test_settings_that_are_in_the_way(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    done = pykbroker("start", "--tls", "--data-dir", str(tmp_path / "data"), *words)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_key_store_that_is_not_there(tmp_path: Path) -> None:
    settings = [
        "listeners=SSL://localhost:0",
        "listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={tmp_path}/none.pem",
    ]
    words = [word for setting in settings for word in ("--override", setting)]
    done = pykbroker("start", "--port", "0", "--data-dir", str(tmp_path / "data"), *words)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No such file or directory (listener SSL)" in done.stderr
