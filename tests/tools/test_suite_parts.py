"""`make test` has a sample of each kind, and `make test-all` leaves nothing out and runs nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
from suite_parts import (
    CHECKOUT,
    CLUSTER_TESTS,
    DIRECTORY_MINUTES,
    LEFT_OUT,
    LEFT_OUT_PARTS,
    LONGEST_END_MINUTE,
    SAMPLED_DIRECTORY_SEEDS,
    SAMPLED_KILLS,
    SAMPLED_SEEDS,
    SAMPLED_VOTER_SEEDS,
    SEEDS_END_MINUTE,
    SEEDS_MINUTES,
    TIME_LIMIT,
    VOTER_MINUTES,
    Part,
    left_out,
    parts,
)


class Collected(NamedTuple):
    """A test that pytest would run."""

    name: str
    fault: str | None
    is_sampled: bool


@pytest.fixture(scope="module")
def cluster_tests() -> list[Collected]:
    """All tests that start three nodes."""
    # Without a client library its tests cannot be collected.
    pytest.importorskip("confluent_kafka")
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.tools.collected", *CLUSTER_TESTS]
    done = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("collected [")]
    return [Collected(*json.loads(line.removeprefix("collected "))) for line in lines]


def test_every_test_of_a_cluster_says_which_fault_it_is_about(cluster_tests: list[Collected]) -> None:
    """Mark it with `pytest.mark.fault("what is done to the cluster")`, or `fault("none")`."""
    assert [test.name for test in cluster_tests if test.fault is None] == []


def test_each_kind_of_fault_has_one_sampled_test(cluster_tests: list[Collected]) -> None:
    """Mark the quickest of a kind, and no other, with `pytest.mark.sample`: each takes a part of a minute."""
    sampled: dict[str | None, list[str]] = {test.fault: [] for test in cluster_tests}
    for test in cluster_tests:
        if test.is_sampled:
            sampled[test.fault].append(test.name)
    assert len(sampled) > 5
    assert {fault: names for fault, names in sampled.items() if len(names) != 1} == {}


def files_of(part: Part) -> set[Path]:
    """The test files that a part of pytest looks into."""
    folders = [argument for argument in part.arguments if (CHECKOUT / argument).exists()]
    ignored = [argument.removeprefix("--ignore=") for argument in part.arguments if argument.startswith("--ignore=")]
    globs = [one.removeprefix("--ignore-glob=") for one in part.arguments if one.startswith("--ignore-glob=")]
    found: set[Path] = set()
    for name in folders:
        found |= {CHECKOUT / name} if name.endswith(".py") else set((CHECKOUT / name).rglob("test_*.py"))
    return {
        path
        for path in found
        if not any(path.is_relative_to(CHECKOUT / name) for name in ignored)
        and not any(fnmatch(str(path), pattern) for pattern in globs)
    }


def test_each_file_of_tests_is_in_one_part_of_the_whole() -> None:
    """Of the folders tests and interop_tests, for this Python; those marked `java` are in a part of their own."""
    whole = parts(whole=True)
    looked_into = [
        path
        for name, part in whole.items()
        if part.program == "pytest" and part.python == sys.executable and name != "java"
        for path in files_of(part)
    ]
    everything = {path for folder in ("tests", "interop_tests") for path in (CHECKOUT / folder).rglob("test_*.py")}
    assert sorted(looked_into) == sorted(everything)
    assert whole["java"].arguments == [*TIME_LIMIT, "tests", "-m", "java"]
    assert "not java" in whole["unit"].arguments


def test_a_file_that_is_left_out_exists() -> None:
    """A renamed one would silently come back into `make test`."""
    assert [path for paths in LEFT_OUT.values() for path in paths if not (CHECKOUT / path).is_file()] == []


def test_make_test_is_a_selection_of_make_test_all() -> None:
    """A difference that says less of the same."""
    quick, whole = parts(whole=False), parts(whole=True)
    assert set(whole) - set(quick) == set(LEFT_OUT_PARTS)
    differing = {name: part.arguments for name, part in quick.items() if part.arguments != whole[name].arguments}
    assert differing == {
        "simulate": ["--seeds", SAMPLED_SEEDS, "--mutations"],
        "voters": ["--kind", "voters", "--seeds", SAMPLED_VOTER_SEEDS],
        "directories": ["--kind", "directories", "--seeds", SAMPLED_DIRECTORY_SEEDS],
        "interop": [*whole["interop"].arguments, *left_out("interop"), *SAMPLED_KILLS],
        "java": [*whole["java"].arguments, *left_out("java")],
        "cluster": [*whole["cluster"].arguments, "-m", "sample", *SAMPLED_KILLS],
    }
    assert int(SAMPLED_SEEDS) >= 100


@pytest.mark.parametrize(
    ("name", "begun", "minutes"),
    [
        ("simulate", 0.0, SEEDS_MINUTES),
        ("simulate", SEEDS_END_MINUTE - 10, 10.0),
        ("simulate", SEEDS_END_MINUTE + 5, 0.0),
        ("voters", 0.0, VOTER_MINUTES),
        ("directories", 0.0, DIRECTORY_MINUTES),
        ("directories", SEEDS_END_MINUTE - 1, 1.0),
        ("java", 20.0, LONGEST_END_MINUTE - 20),
        ("cluster", LONGEST_END_MINUTE - 1, 1.0),
    ],
)
def test_a_late_part_has_less_time(name: str, begun: float, minutes: float) -> None:
    part = parts(whole=True)[name]
    assert part.begun_after(begun).arguments == [*part.arguments, "--minutes", f"{minutes:.1f}"]


def test_other_parts_have_no_limit() -> None:
    part = parts(whole=True)["hostile"]
    assert part.begun_after(SEEDS_END_MINUTE) == part
