"""Completion in a shell, against any Kafka."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from pykbroker.cli import main
from pykbroker.cli.completion import names
from tests.support.command_line import Cli

PROGRAM = os.path.join(os.path.dirname(sys.executable), "pykbroker")
Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """Ask for the completions of a line's end, as bash gets them: `plain,` and the word, or a kind of file."""
    monkeypatch.setattr(names, "TIMEOUT_S", 30.0)

    def ask(line: str) -> list[str]:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setenv("_PYKBROKER_COMPLETE", "bash_complete")
            patch.setenv("COMP_LINE", line)
            patch.setenv("COMP_POINT", str(len(line)))
            with pytest.raises(SystemExit):
                main([])
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out.split()

    return ask


@pytest.fixture
def topic(cli: Cli, new_name: Callable[[], str]) -> str:
    name = new_name()
    cli.new_topic(name)
    return name


def test_topics(offered: Offered, topic: str, address: str) -> None:
    beginning = topic[:-2]
    for words in (
        "topic describe",
        "topic alter",
        "topic delete",
        "topic trim",
        "produce",
        "consume",
        "transaction producers",
        "config get topic",
        "acl list --topic",
        "group reset-offsets g --topic",
        f"consume -b {address}",
    ):
        assert offered(f"pykbroker {words} {beginning}") == [f"plain,{topic}"], words
    assert f"plain,{topic}" in offered("pykbroker topic describe ")
    # One that stands there already is not offered again.
    assert offered(f"pykbroker topic delete {topic} {beginning}") == []
    assert not any(name.startswith("plain,_") for name in offered("pykbroker consume "))


def test_groups(cli: Cli, offered: Offered, topic: str) -> None:
    cli.ask("group", "reset-offsets", topic, "--topic", topic, "--to-latest", "--execute")
    for words in ("group describe", "group delete", "group reset-offsets", "consume t --group", "config get group"):
        assert offered(f"pykbroker {words} {topic[:-2]}") == [f"plain,{topic}"], words


def test_settings_and_brokers(offered: Offered, topic: str) -> None:
    assert offered(f"pykbroker config get topic {topic} retention.m") == ["plain,retention.ms"]
    assert offered(f"pykbroker config set topic {topic} retention.m") == ["plain,retention.ms="]
    assert offered(f"pykbroker config set topic {topic} --unset retention.m") == ["plain,retention.ms"]
    assert offered("pykbroker topic create new --config retention.m") == ["plain,retention.ms="]
    assert offered("pykbroker config get broker ") == ["plain,1"]
    assert offered("pykbroker config get cluster log.cleaner.thr") == ["plain,log.cleaner.threads"]
    assert offered("pykbroker config get broker-") == ["plain,broker-logger"]


def test_what_needs_no_cluster(offered: Offered) -> None:
    assert offered("pykbroker to") == ["plain,topic"]
    assert offered("pykbroker topic cr") == ["plain,create"]
    assert offered("pykbroker start --data") == ["plain,--data-dir"]
    assert offered("pykbroker start --config ") == ["file,"]
    assert offered("pykbroker start --data-dir ") == ["dir,"]
    assert offered("pykbroker consume t --comp") == []


def test_nobody_there() -> None:
    # In a process of its own: the client library leaves sockets open when it cannot connect.
    line = "pykbroker consume -b 127.0.0.1:1 "
    variables = {"_PYKBROKER_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    command = [sys.executable, "-m", "pykbroker"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(cli: Cli, shell: str) -> None:
    assert f"_PYKBROKER_COMPLETE={shell}_complete" in cli.ask("completion", shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.skipif(not os.path.exists(PROGRAM), reason="needs the command pykbroker, which this environment lacks")
def test_bash_itself(cli: Cli, address: str, topic: str) -> None:
    """Bash takes the address for three words, and replaces what is behind the last colon of a word."""
    script = cli.ask("completion", "bash")
    line = f"pykbroker consume -b {address} {topic[:-2]}"
    asked = f'{script}\nCOMP_LINE=$1; COMP_POINT=${{#1}}; _pykbroker_completion "$2"; printf "%s " "${{COMPREPLY[@]}}"'
    # Completion gives up after a second; a machine under load may need more than one attempt.
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["bash", "-c", asked, "bash", line, PROGRAM], capture_output=True, text=True, check=True)
        if done.stdout.strip() or time.monotonic() > deadline:
            break
    assert (done.stdout.split(), done.stderr) == ([topic], "")
