"""Runs every program of examples/ as a user would, each in a process of its own, and looks at what it printed.

A part of its own (`tools/suite_parts.py`): Spark fetches its Kafka connector, and starting a JVM takes a while. An
example whose client library is not installed is skipped with a word.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "examples"
TIMEOUT_S = 300

# name: (the module that it needs, the last line that it prints)
PROGRAMS = {
    "failing_node.py": ("confluent_kafka", "500 acknowledged, 500 stored, node 1 was killed on the way"),
    "new_group_protocol.py": ("confluent_kafka", "read: ['chair', 'lamp', 'table']"),
    "with_aiokafka.py": ("aiokafka", "consumed: [0, 1, 2]"),
    "with_confluent_kafka.py": ("confluent_kafka", "committed: ['10 EUR', '20 EUR']"),
    "with_kafka_python.py": ("kafka", "then: ['chair']"),
    "spark_batch.py": ("pyspark", "clicks: {'home': 3, 'shop': 1}"),
}


def run(command: list[str], environment: dict[str, str]) -> str:
    # Some client libraries warn of themselves when they are imported; what is said about our code is an error.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLES,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def spark_settings(tmp_path: Path) -> dict[str, str]:
    """Spark keeps the connector's jars with those of the other tests, as spark_jobs/session.py says."""
    ivy_dir = os.environ.get("PYKBROKER_IVY_DIR") or str(CHECKOUT / ".cache" / "ivy")
    settings = {
        "spark.jars.ivy": ivy_dir,
        "spark.jars.ivySettings": str(CHECKOUT / "spark_jobs" / "ivysettings.xml"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (tmp_path / "spark-defaults.conf").write_text(lines)
    return {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, spark_settings: dict[str, str]) -> None:
    library, expected = PROGRAMS[name]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if library == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    assert run([name], spark_settings).splitlines()[-1] == expected


def test_the_pytest_plugin() -> None:
    assert "3 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"], {})


def test_none_is_forgotten() -> None:
    """A new example is added to PROGRAMS, and to the table of examples/README.md."""
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == {*PROGRAMS, "test_orders.py"}
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(programs) if f"({name})" not in text] == []
