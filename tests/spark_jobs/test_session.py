"""Coordinates of the Kafka connector and requirements of the Spark session."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import session
from session import MissingRequirementError, connector_coordinates, connector_settings, require_java


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("jar", "coordinates"),
    [
        ("spark-core_2.13-4.0.0.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        ("spark-core_2.12-3.5.3.jar", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.3"),
        ("spark-core_2.13-4.3.0-preview1.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0-preview1"),
    ],
)
def test_coordinates_are_those_of_the_installed_spark(spark_home: Path, jar: str, coordinates: str) -> None:
    (spark_home / "jars" / jar).touch()
    assert connector_coordinates() == coordinates


@pytest.mark.parametrize(
    ("version", "package"),
    [("3.5.3", ""), ("4.0.0", ""), ("4.1.1", "checkpointing."), ("4.10.0-preview1", "checkpointing.")],
)
def test_checkpoints_are_written_by_a_class_of_the_installed_spark(
    spark_home: Path, version: str, package: str
) -> None:
    (spark_home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    name = f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
    assert session.checkpoint_file_manager() == name


def test_settings_name_one_resolver_and_a_folder_of_ours(spark_home: Path, tmp_path: Path) -> None:
    (spark_home / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    settings = connector_settings(tmp_path / "ivy")
    assert settings["spark.jars.ivy"] == str(tmp_path / "ivy")
    assert Path(settings["spark.jars.ivySettings"]).read_text().count("<ibiblio ") == 1


def test_an_incomplete_spark_is_named(spark_home: Path) -> None:
    with pytest.raises(MissingRequirementError, match=str(spark_home)):
        connector_coordinates()


def test_missing_java_says_what_to_install(spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (spark_home / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(spark_home))
    with pytest.raises(MissingRequirementError, match="Java 17"):
        require_java()


@pytest.mark.parametrize(
    ("version", "is_enough"), [("1.8.0_392", False), ("11.0.2", False), ("17.0.15", True), ("21", True)]
)
def test_java_must_be_new_enough(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool
) -> None:
    (spark_home / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    java = spark_home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(spark_home))
    if is_enough:
        require_java()
    else:
        with pytest.raises(MissingRequirementError, match=r"is Java (8|11)"):
            require_java()


class Builder:
    """A builder of sessions that only takes settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def config(self, key: str, value: str) -> Builder:
        self.settings[key] = value
        return self

    def appName(self, name: str) -> Builder:
        return self

    def master(self, name: str) -> Builder:
        return self

    def getOrCreate(self) -> MagicMock:
        made = MagicMock()
        made.sparkContext.getConf().get = self.settings.get
        return made


@pytest.mark.parametrize(("master", "is_local"), [("local[2]", True), ("spark://here:7077", False)])
def test_only_a_local_session_has_settings_for_a_local_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, is_local: bool
) -> None:
    builder = Builder()
    monkeypatch.setattr(pytest.importorskip("pyspark.sql").SparkSession, "builder", builder)
    monkeypatch.setattr(session, "require_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "resolved_jars", lambda *_: ["one.jar"])
    session.build_session("test", master=master, ivy_dir=tmp_path)
    assert (session.CHECKPOINT_FILES in builder.settings) == is_local
    assert ("spark.driver.host" in builder.settings) == is_local
    assert ("spark.jars.packages" in builder.settings) != is_local
    assert (builder.settings.get("spark.jars") == "one.jar") == is_local


def test_a_session_waits_for_one_that_is_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second session finds the jars that the first has fetched, and resolves nothing."""
    builder = Builder()
    monkeypatch.setattr(pytest.importorskip("pyspark.sql").SparkSession, "builder", builder)
    monkeypatch.setattr(session, "require_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    fetched: list[str] = []
    monkeypatch.setattr(session, "resolved_jars", lambda *_: fetched.copy())
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(session, "say", said.put)
    second = threading.Thread(target=session.build_session, args=["test"], kwargs={"ivy_dir": tmp_path})
    with session.locked(tmp_path):
        second.start()
        line = said.get(timeout=60)
        assert not builder.settings.keys() & {"spark.jars", "spark.jars.packages"}
        fetched.append("one.jar")
    second.join()
    assert f"into {tmp_path}; waiting" in line
    assert builder.settings["spark.jars"] == "one.jar"
    assert "spark.jars.packages" not in builder.settings


def test_jars_are_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    jars = [tmp_path / "jars" / name for name in ("connector.jar", "client.jar")]
    for jar in jars:
        jar.touch()
    assert session.resolved_jars(tmp_path, "g:a:1") == []
    session.remember_jars(tmp_path, "g:a:1", ",".join(jar.as_uri() for jar in jars))
    assert session.resolved_jars(tmp_path, "g:a:1") == [str(jar) for jar in jars]
    assert session.resolved_jars(tmp_path, "g:a:2") == []
    jars[1].unlink()
    assert session.resolved_jars(tmp_path, "g:a:1") == []


def test_jars_of_the_session_itself_are_not_taken_for_those_of_maven(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "own.jar").touch()
    session.remember_jars(tmp_path, "g:a:1", (tmp_path / "own.jar").as_uri())
    session.remember_jars(tmp_path, "g:a:2", "")
    assert not list(tmp_path.glob("resolved-*"))
