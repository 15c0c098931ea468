"""The package as a user installs it: built with build isolation, in fresh environments, from a package index.

A part of its own (`tools/suite_parts.py`), since it needs the network. Without a package index it is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600
KAFKA_PYTHON_2 = "kafka-python<3"

WITH_A_CLIENT = """
import pykbroker

with pykbroker.LocalBroker(topics={"orders": 2}) as broker:
    broker.produce("orders", ["one", "two"], partition=1)
    print([record.value for record in broker.consume("orders", 2)])
"""

WITHOUT_A_CLIENT = """
import importlib.util
import pykbroker

assert importlib.util.find_spec("kafka") is None
with pykbroker.LocalBroker() as broker:
    try:
        broker.consume("orders")
    except RuntimeError as error:
        print(error)
with pykbroker.LocalCluster(nodes=3) as cluster:
    cluster.kill(1)
    cluster.start(1)
    print("restarted")
"""

PLUGIN_TEST = """
import kafka


def test_with_the_plugin(kafka_broker, kafka_topic):
    assert kafka.__version__.startswith("2.")
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    producer.send(kafka_topic, b"one").get(30)
    producer.close()
    assert [record.value for record in kafka_broker.consume(kafka_topic, 1)] == [b"one"]
"""


class Environment:
    """A virtual environment without pip; packages are installed into it by the pip of this one."""

    def __init__(self, folder: Path) -> None:
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        self.folder = folder
        self.python = str(folder / "bin" / "python")

    def install(self, *requirements: str) -> None:
        run([*pip(), "--python", self.python, "install", "--quiet", *requirements])

    def run(self, *words: str, code: int = 0) -> str:
        """Run a program of this environment; returns what it printed, standard error behind standard output."""
        return run([str(self.folder / "bin" / words[0]), *words[1:]], self.folder, code)


def pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def run(command: list[str], folder: Path | None = None, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYKBROKER_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install .` makes of this checkout; skips where no package index answers."""
    probe = tmp_path_factory.mktemp("probe")
    try:
        run([*pip(), "--retries", "0", "download", "--quiet", "--no-deps", "--dest", str(probe), "sniffio"])
    except (AssertionError, subprocess.TimeoutExpired):
        pytest.skip("no package index can be reached from here: nothing can be installed")
    checkout = tmp_path_factory.mktemp("checkout") / "pykbroker"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.so", "*.egg-info", "build", "dist", "reports", "tests")
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=ignored)
    built = tmp_path_factory.mktemp("built")
    run([*pip(), "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", str(built), str(checkout)])
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the package and what it depends on, and nothing else."""
    environment = Environment(tmp_path_factory.mktemp("environments") / "bare")
    environment.install(str(wheel))
    return environment


def has_compiler() -> bool:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def test_the_hot_loop_is_compiled(bare: Environment) -> None:
    """The build's own environment has mypy, and none of the packages that the broker imports."""
    if not has_compiler():
        pytest.skip("there is no C compiler, or Python's headers are missing: the package is installed interpreted")
    version, state = bare.run("pykbroker", "--version").splitlines()
    assert version.startswith("pykbroker ")
    assert state == "compiled"


def test_brokers_run_without_a_client_library(bare: Environment) -> None:
    refused, restarted = bare.run("python", "-c", WITHOUT_A_CLIENT).splitlines()
    assert refused.startswith("no Kafka client library is installed: pip install")
    assert restarted == "restarted"


def test_client_commands_say_what_to_install(bare: Environment) -> None:
    assert bare.run("pykbroker", "topic", "list", code=1) == (
        "pykbroker: this command needs a client library, which is not installed: pip install 'pykbroker[cli]'\n"
    )
    assert "Create, list" in bare.run("pykbroker", "--help")


def test_beside_kafka_python_2(wheel: Path, tmp_path: Path) -> None:
    """A test suite pins kafka-python 2; the broker, the pytest plugin and LocalBroker's calls work with it."""
    suite = Environment(tmp_path / "suite")
    suite.install(KAFKA_PYTHON_2, "pytest")
    suite.install(str(wheel), KAFKA_PYTHON_2)
    run([*pip(), "--python", suite.python, "check"])
    assert suite.run("python", "-W", "ignore", "-c", WITH_A_CLIENT) == "[b'one', b'two']\n"
    (suite.folder / "test_plugin.py").write_text(PLUGIN_TEST)
    assert "1 passed" in suite.run("pytest", "-q", "test_plugin.py")
    refused = suite.run("python", "-W", "ignore", "-m", "pykbroker", "topic", "list", code=1)
    assert "this command needs kafka-python 3, and 2." in refused
    assert refused.count("\n") == 1


def test_the_extra_brings_what_client_commands_need(wheel: Path, tmp_path: Path) -> None:
    with_cli = Environment(tmp_path / "with_cli")
    with_cli.install(f"{wheel}[cli]")
    run([*pip(), "--python", with_cli.python, "check"])
    script = (
        "import subprocess, sys, pykbroker\n"
        "with pykbroker.LocalBroker(topics=['orders']) as broker:\n"
        "    command = [sys.executable, '-m', 'pykbroker', 'topic', 'list', '--bootstrap-server']\n"
        "    subprocess.run([*command, broker.bootstrap_servers], check=True)\n"
    )
    assert "orders" in with_cli.run("python", "-c", script)
