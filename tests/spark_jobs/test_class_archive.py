"""The archive of Spark's classes belongs to one Java and one Spark, and costs nothing where there can be none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from class_archive import archive_of, java_options, make_archive

SAYS = """#!/bin/sh
{
    echo "Picked up JAVA_TOOL_OPTIONS: $JAVA_TOOL_OPTIONS"
    echo 'openjdk version "VERSION" 2025-04-15'
    echo 'OpenJDK Runtime Environment (build VERSION+6-1)'
    echo "OpenJDK 64-Bit Server VM (build VERSION+6-1, mixed mode, ${JAVA_TOOL_OPTIONS:+emulated-client, }sharing)"
} >&2
"""


def install_java(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(exist_ok=True)
    java.write_text(SAYS.replace("VERSION", version))
    java.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark 4.0.0 and a Java 17 that only has a version."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    install_java(tmp_path, "17.0.15")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def test_another_java_or_spark_has_another_archive(home: Path) -> None:
    first = archive_of(home)
    assert first == archive_of(home)
    os.utime(home / "jars" / "spark-core_2.13-4.0.0.jar", (1, 1))
    second = archive_of(home)
    install_java(home, "21.0.1")
    assert len({first, second, archive_of(home)}) == 3


def test_options_of_the_environment_do_not_matter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive_of(home)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    assert archive_of(home) == first


def test_options_name_an_archive_that_is_there(home: Path) -> None:
    assert java_options(home) == []
    archive = archive_of(home)
    assert archive is not None
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_options(home)
    assert make_archive(home) == archive


def test_a_folder_with_a_space_has_none(home: Path) -> None:
    assert archive_of(home / "my cache") is None
    assert java_options(home / "my cache") == []


def test_an_old_java_has_none(home: Path) -> None:
    (home / "jars" / "spark-core_2.13-4.0.0.jar").rename(home / "jars" / "spark-core_2.12-3.5.3.jar")
    install_java(home, "11.0.2")
    assert archive_of(home) is None


def test_one_that_cannot_be_made_costs_a_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_archive(home) is None
    assert "could not be archived, which costs time only" in capsys.readouterr().err
    assert not list(home.glob("*.jsa")) + list(home.glob("*.part"))
