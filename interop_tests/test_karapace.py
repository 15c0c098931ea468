"""Karapace, a schema registry whose only store is a compacted topic: schemas outlive kill -9, serializers find them.

Karapace has no release on PyPI. The tests use the Python that KARAPACE_PYTHON names: one into which Karapace's
repository was installed by pip, with Go at hand, in which its Protobuf part is written. Without one they are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.clients import confluent_consume, create_topic, wait_until
from interop_tests.made_once import or_skip
from interop_tests.ports import free_port
from interop_tests.python_packages import installed
from interop_tests.schema_clients import AVRO, COUNT, purchase
from interop_tests.spark_from_avro import SPARK_JOBS

pytestmark = [pytest.mark.area("frameworks"), pytest.mark.client("Karapace")]

HERE = Path(__file__).parent
CLIENTS = HERE / "schema_clients.py"
FROM_AVRO = HERE / "spark_from_avro.py"
CONFLUENT = "2.16.1"
TIMEOUT_S = 60.0
CONTENT = "application/vnd.schemaregistry.v1+json"


class Registry:
    """A Karapace process on a port that it keeps, with its schemas in one topic."""

    def __init__(self, python: str, bootstrap: str, topic: str, folder: Path) -> None:
        self._folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "BOOTSTRAP_URI": bootstrap,
            "HOST": "127.0.0.1",
            "ADVERTISED_HOSTNAME": "127.0.0.1",
            "PORT": str(port),
            "TOPIC_NAME": topic,
            "GROUP_ID": f"{topic}-registry",
            "KARAPACE_REGISTRY": "true",
            "KARAPACE_REST": "false",
            "LOG_LEVEL": "WARNING",
        }
        self._environment = os.environ | {f"KARAPACE_{name}": value for name, value in settings.items()}
        self._command = [python, "-m", "karapace"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it may write, a few seconds after its group has chosen it."""
        with (self._folder / "karapace.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, cwd=self._folder
            )
        wait_until(self._is_master, self._log, timeout_s=TIMEOUT_S, pause_s=0.2)

    def _is_master(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log(None)
        try:
            return bool(self.ask("/master_available")["master_available"])
        except (OSError, ValueError):
            return False

    def _log(self, _: object) -> str:
        return f"a registry that may write; it said {(self._folder / 'karapace.log').read_text()[-2000:]}"

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, path: str, body: Any = None) -> Any:
        """Answer of the REST interface. Raises HTTPError for an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": CONTENT})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return json.loads(response.read())

    def register(self, subject: str, schema: Any) -> int:
        """The id of a schema. Raises HTTPError if it is refused."""
        found: int = self.ask(f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})["id"]
        return found


@pytest.fixture
def registry(bootstrap: str, name: str, tmp_path: Path) -> Iterator[Registry]:
    """A Karapace of this test's own."""
    python = os.environ.get("KARAPACE_PYTHON")
    if python is None:
        pytest.skip("KARAPACE_PYTHON names no Python with Karapace, which PyPI does not have")
    made = Registry(python, bootstrap, f"{name}-schemas", tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def serializers() -> Path:
    """The folder that holds confluent-kafka with its serializers."""
    return or_skip(installed, "confluent-kafka[avro,json,protobuf,schemaregistry]", CONFLUENT, with_dependencies=True)


def run(program: Path, *arguments: str, packages: Path | None = None) -> str:
    """Output of a program, which has to end well."""
    environment = os.environ | ({"PYTHONPATH": str(packages)} if packages else {})
    command = [sys.executable, str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_serializers_go_on_after_a_kill(
    registry: Registry, serializers: Path, bootstrap: str, name: str, kind: str
) -> None:
    """A schema has the same id after kill -9 of the registry, and all values are read by it."""
    topic = create_topic(bootstrap, f"{name}-purchases")
    run(CLIENTS, "write", bootstrap, registry.url, topic, kind, "0", packages=serializers)
    registry.kill()
    registry.start()
    run(CLIENTS, "write", bootstrap, registry.url, topic, kind, str(COUNT), packages=serializers)
    values = [message.value or b"" for message in confluent_consume(bootstrap, [topic])]
    assert len({value[:5] for value in values}) == 1
    said = run(CLIENTS, "read", bootstrap, registry.url, topic, kind, str(2 * COUNT), packages=serializers)
    assert json.loads(said) == [purchase(number) for number in range(2 * COUNT)]


def test_compatibility_is_decided_by_what_the_topic_has(registry: Registry, name: str) -> None:
    """After kill -9 an incompatible schema is refused, a compatible one is the second version."""
    subject = f"{name}-value"
    first = registry.register(subject, AVRO)
    registry.kill()
    registry.start()
    assert registry.register(subject, AVRO) == first
    with pytest.raises(urllib.error.HTTPError) as refused:
        registry.register(subject, AVRO | {"fields": [{"name": "price", "type": "double"}]})
    assert refused.value.code == 409
    optional = {"name": "price", "type": ["null", "double"], "default": None}
    second = registry.register(subject, AVRO | {"fields": [*AVRO["fields"], optional]})
    assert second != first
    assert registry.ask(f"/subjects/{subject}/versions") == [1, 2]
    assert json.loads(registry.ask(f"/schemas/ids/{first}")["schema"]) == AVRO


@pytest.mark.java
def test_spark_reads_avro_by_the_schema_of_the_registry(
    registry: Registry, serializers: Path, bootstrap: str, name: str
) -> None:
    """`from_avro` with the schema that the id in the values names gives every value."""
    pytest.importorskip("pyspark", reason="PySpark is not installed in this Python")
    if not SPARK_JOBS.is_dir():
        pytest.skip("spark_jobs/session.py, which finds the connectors of this PySpark, is not beside this folder")
    topic = create_topic(bootstrap, f"{name}-purchases")
    run(CLIENTS, "write", bootstrap, registry.url, topic, "avro", "0", packages=serializers)
    value = confluent_consume(bootstrap, [topic])[0].value or b""
    schema = registry.ask(f"/schemas/ids/{int.from_bytes(value[1:5], 'big')}")["schema"]
    said = run(FROM_AVRO, bootstrap, topic, schema).splitlines()[-1]  # Ivy may have told of its settings before
    assert json.loads(said) == [purchase(number) for number in range(COUNT)]
