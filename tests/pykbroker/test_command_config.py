"""The client commands on a broker that wants a login."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker.testing.local_broker import LocalBroker
from tests.support.command_line import Cli

pytestmark = pytest.mark.usefixtures("collect_client_sockets")

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://localhost:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": f'{MODULE} user_admin="pw" user_alice="secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def login(folder: Path, user: str, password: str) -> str:
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="{user}" password="{password}";\n'
    )
    return str(path)


def test_two_users(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    admin, alice = login(tmp_path, "admin", "pw"), login(tmp_path, "alice", "secret")
    with LocalBroker(config=dict(SETTINGS)) as broker:
        cli = Cli(broker.bootstrap_servers, capsys, monkeypatch)
        monkeypatch.setenv("PYKBROKER_COMMAND_CONFIG", admin)
        cli.new_topic("orders")
        cli.ask("produce", "orders", stdin=b"a\n")
        assert [item["value"] for item in cli.records("orders", "--from-beginning")] == ["a"]
        assert cli.json("topic", "list", "--command-config", alice) == []
        code, _, errors = cli.run("acl", "list", "--command-config", alice)
        assert (code, errors.count("\n")) == (1, 1)
        assert errors.startswith("pykbroker: the broker refused: ")
        cli.ask("acl", "add", "--principal", "User:alice", "--operation", "read", "--topic", "orders")
        assert cli.records("orders", "--from-beginning", "--command-config", alice)[0]["value"] == "a"
        # In a process of its own: the client library leaves sockets open when it cannot connect.
        wrong = login(tmp_path, "alice", "guess")
        command = [sys.executable, "-m", "pykbroker", "topic", "list", "-b", broker.bootstrap_servers]
        command += ["--command-config", wrong, "--request-timeout", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "or it refused the login of --command-config" in done.stderr


def test_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """OAUTHBEARER with an unsecured token, as the login module of Kafka's tools makes it."""
    path = tmp_path / "alice.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";\n'
    )
    settings = {
        **SETTINGS,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "super.users": "User:alice",
    }
    settings["sasl.jaas.config"] = path.read_text().splitlines()[-1].removeprefix("sasl.jaas.config=")
    with LocalBroker(config=settings) as broker:
        cli = Cli(broker.bootstrap_servers, capsys, monkeypatch)
        monkeypatch.setenv("PYKBROKER_COMMAND_CONFIG", str(path))
        cli.new_topic("orders")
        assert [topic["name"] for topic in cli.json("topic", "list")] == ["orders"]
