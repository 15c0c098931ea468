"""Sources of the settings of `pykbroker start`, and their order of precedence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.config import broker_properties, described_setting, with_address
from pykbroker.cli.start.options import StartOptions, parse_start_options
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.definitions import ConfigError


def properties(words: list[str], environment: dict[str, str] | None = None) -> dict[str, str]:
    return broker_properties(parse_start_options(words), environment or {})


def test_nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert properties([]) == {
        "group.initial.rebalance.delay.ms": "0",
        "metadata.max.idle.interval.ms": "0",
        "listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": str(tmp_path / "pykbroker-data"),
    }


def test_a_new_group_has_no_delay_unless_a_file_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    """With a server.properties other settings have Kafka's defaults; a given setting wins over the project's."""
    key = "group.initial.rebalance.delay.ms"
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\n")
    assert key not in properties(["--config", str(file)])
    file.write_text(f"{key}=7\n")
    assert properties(["--config", str(file)])[key] == "7"
    assert properties([], {"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "8"})[key] == "8"
    assert properties(["--override", f"{key}=9"])[key] == "9"


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.retention.hours=1\nlog.segment.bytes=1\nlisteners=PLAINTEXT://:1\n")
    given = properties(
        ["--config", str(file), "--override", "log.segment.bytes=3", "--port", "4"],
        {"KAFKA_LOG_RETENTION_HOURS": "2", "KAFKA_LOG_SEGMENT_BYTES": "2"},
    )
    assert given["num.partitions"] == "1"
    assert given["log.retention.hours"] == "2"
    assert given["log.segment.bytes"] == "3"
    assert given["listeners"] == "PLAINTEXT://:4"


def test_a_data_dir_from_the_file_is_kept_and_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("log.dir=here\n")
    given = properties(["--config", "f"])
    assert given["log.dir"] == str(tmp_path / "here")
    assert "log.dirs" not in given
    given = properties(["--config", "f", "--data-dir", "there"])
    assert given["log.dirs"] == str(tmp_path / "there")
    assert "log.dir" not in given


def test_log_directories_of_a_provider(tmp_path: Path) -> None:
    """P-259: the variable is a whole path, and not a name in the working directory."""
    (tmp_path / "f").write_text("config.providers=env\n")
    with (tmp_path / "f").open("a") as file:
        file.write("config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n")
        file.write("log.dirs=${env:PYKBROKER_TEST_DIRECTORY},/b\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYKBROKER_TEST_DIRECTORY", "/a")
        assert properties(["--config", str(tmp_path / "f")])["log.dirs"] == "/a,/b"


@pytest.mark.parametrize("second", ["/data/../data/a", "/data/a/", "a"])
def test_two_spellings_of_a_log_directory_are_refused(second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-442: the same text twice counts once."""
    monkeypatch.setattr("os.getcwd", lambda: "/data")
    with pytest.raises(CliError, match=f"log.dirs=/data/a,{second}: /data/a and {second} are the same directory"):
        properties(["--override", f"log.dirs=/data/a,{second}"])
    assert properties(["--override", "log.dirs=/data/a,/b, /data/a"])["log.dirs"] == "/data/a,/b"


@pytest.mark.parametrize("metadata", ["/data/../data/a", "/data/a/", "a"])
def test_another_spelling_of_a_log_directory_for_the_metadata(metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-442: Kafka finds the directory.id of one in the other, and does not start."""
    monkeypatch.setattr("os.getcwd", lambda: "/data")
    given = ["--override", "log.dirs=/b,/data/a", "--override"]
    error = f"metadata.log.dir={metadata}: /data/a and {metadata} are the same directory"
    with pytest.raises(CliError, match=re.escape(error)):
        properties([*given, f"metadata.log.dir={metadata}"])
    assert properties([*given, "metadata.log.dir=/data/a"])["metadata.log.dir"] == "/data/a"
    assert properties([*given, "metadata.log.dir=c"])["metadata.log.dir"] == "/data/c"
    same = properties(["--override", "log.dirs=a", "--override", "metadata.log.dir=a"])
    assert same["log.dirs"] == same["metadata.log.dir"] == "/data/a"


def test_a_link_to_a_log_directory_for_the_metadata(tmp_path: Path) -> None:
    """P-442."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    given = {"log.dirs": f"{tmp_path}/a", "metadata.log.dir": f"{tmp_path}/link"}
    with pytest.raises(ConfigError, match=r"is one of log\.dirs by another path"):
        BrokerConfig.from_properties(given)
    assert BrokerConfig.from_properties(given | {"metadata.log.dir": f"{tmp_path}/a"}).log.metadata_dir


@pytest.mark.parametrize("text", ["/a,", "/a,,/b"])
def test_an_empty_log_directory_is_not_the_working_directory(text: str) -> None:
    """P-442: it is refused with the other settings."""
    given = properties(["--override", f"log.dirs={text}"])
    assert given["log.dirs"] == text
    with pytest.raises(ConfigError, match="must not be empty"):
        BrokerConfig.from_properties(given)


@pytest.mark.parametrize(
    ("listeners", "host", "port", "expected"),
    [
        ("PLAINTEXT://localhost:9092", None, 0, "PLAINTEXT://localhost:0"),
        ("PLAINTEXT://:9092", "::1", None, "PLAINTEXT://[::1]:9092"),
        ("CONTROLLER://:9093,A://h:1,B://h:2", "x", 7, "CONTROLLER://:9093,A://x:7,B://h:2"),
    ],
)
def test_host_and_port_replace_those_of_the_first_client_listener(
    listeners: str, host: str | None, port: int | None, expected: str
) -> None:
    assert with_address(listeners, host, port, "CONTROLLER") == expected


@pytest.mark.parametrize("listeners", ["CONTROLLER://:1", "nonsense"])
def test_host_and_port_need_a_listener_to_go_to(listeners: str) -> None:
    with pytest.raises(CliError, match="listeners="):
        with_address(listeners, None, 1, "CONTROLLER")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"nowhere: No such file"):
        properties(["--config", str(tmp_path / "nowhere")])
    (tmp_path / "bad").write_text("a=\\u12\n")
    with pytest.raises(CliError, match=r"bad: line 1"):
        properties(["--config", str(tmp_path / "bad")])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(CliError, match=r"binary: not UTF-8"):
        properties(["--config", str(tmp_path / "binary")])


def test_a_setting_of_an_option_has_no_source() -> None:
    """The user has not written the key."""
    assert described_setting("num.partitions", 3, {"num.partitions": "3"}, StartOptions(), {}) == "num.partitions=3"
