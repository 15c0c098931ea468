"""kafka-python 2.3, unchanged, in a process of its own: producer, consumer, groups and admin client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.kafka_python2_package import (
    VERSION,
    kafka_python2,
    run_scenario,
)
from interop_tests.kafka_python2_scenarios import SCENARIOS
from interop_tests.made_once import or_skip
from interop_tests.report import sentence

pytestmark = pytest.mark.client("kafka-python 2.3")


def _parameters() -> Iterator[Any]:
    for scenario, (area, parameters) in SCENARIOS.items():
        marks = [pytest.mark.area(area), pytest.mark.behaviour(sentence(scenario.__doc__))]
        for parameter in parameters or ("",):
            name = scenario.__name__
            yield pytest.param(name, parameter, id=f"{name}-{parameter}" if parameter else name, marks=marks)


@pytest.fixture(scope="module")
def package() -> Path:
    """The folder that holds the old client."""
    return or_skip(kafka_python2)


@pytest.mark.parametrize(("scenario", "parameter"), list(_parameters()))
def test_scenario(scenario: str, parameter: str, package: Path, bootstrap: str, name: str) -> None:
    """A scenario of kafka_python2_scenarios.py."""
    assert (package / "kafka" / "version.py").read_text().strip() == f"__version__ = '{VERSION}'"
    done = run_scenario(package, scenario, bootstrap, name, *([parameter] if parameter else []))
    assert done.returncode == 0, done.stderr[-3000:]
