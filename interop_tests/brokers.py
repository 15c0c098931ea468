"""Brokers to test against, a process each: pykbroker, Apache Kafka from its jars, or one that runs already."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from interop_tests.java_tools import JAVA_FLAGS, JavaTools
from interop_tests.kafka_jars import JAVA
from interop_tests.ports import free_ports

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
# The Python that has pykbroker and its packages; by default the one that runs the tests.
PYTHON = os.environ.get("PYKBROKER_PYTHON", sys.executable)
CHECKOUT = Path(__file__).resolve().parent.parent
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class Broker:
    """Address of the broker under test, and the traces of it that can be read from outside.

    Attributes:
        bootstrap: host:port.
        data_dir: the folder with its log directories; None for a broker on another machine.
        log_path: the file that holds what it printed; None likewise.
    """

    def __init__(self, bootstrap: str, data_dir: Path | None = None, log_path: Path | None = None) -> None:
        self.bootstrap = bootstrap
        self.data_dir = data_dir
        self.log_path = log_path

    @property
    def address(self) -> tuple[str, int]:
        """(host, port), as socket.create_connection takes them."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def log_text(self) -> str:
        """Output of the broker so far; "" for a broker on another machine."""
        return "" if self.log_path is None else self.log_path.read_text(errors="replace")


class BrokerProcess(Broker):
    """A broker that we start, stop, kill and start again; data and port stay the same over all of it.

    With `users` (names to passwords) its clients must log in, by SASL_PLAINTEXT with the mechanism PLAIN; `protocol`
    is another security protocol for clients, whose settings are in `overrides`.
    """

    def __init__(
        self,
        folder: Path,
        log_path: Path,
        overrides: Mapping[str, str],
        users: Mapping[str, str] | None = None,
        protocol: str | None = None,
    ) -> None:
        super().__init__("", folder / "data", log_path)
        self.protocol = protocol or ("SASL_PLAINTEXT" if users else "PLAINTEXT")
        self.folder = folder
        self.overrides = dict(overrides)
        if users:
            entries = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            key = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            self.overrides[key] = f"org.apache.kafka.common.security.plain.PlainLoginModule required {entries};"
            self.overrides.setdefault("sasl.enabled.mechanisms", "PLAIN")
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Starts the process and returns when it answers. Raises RuntimeError with the end of its log."""
        raise NotImplementedError

    def stop(self) -> int:
        """Ends it in order (SIGTERM); returns the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the broker did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM") from None
        finally:
            self.process = None

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def rss_bytes(self) -> int:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def cpu_seconds(self) -> float:
        """User and system time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _spawn(self, command: list[str], cwd: Path, **variables: str) -> subprocess.Popen[bytes]:
        assert self.log_path is not None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        environment |= variables
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, env=environment
            )

    def _fail(self, what: str) -> RuntimeError:
        self.kill()
        return RuntimeError(f"{what}; the end of {self.log_path}:\n" + self.log_text()[-3000:])


class PykbrokerProcess(BrokerProcess):
    """`pykbroker start` by its command line, which may begin with a `wrapper` command and has further `options`."""

    def __init__(
        self,
        folder: Path,
        log_path: Path,
        overrides: Mapping[str, str],
        wrapper: tuple[str, ...] = (),
        data_dir: Path | None = None,
        users: Mapping[str, str] | None = None,
        protocol: str | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(folder, log_path, overrides, users, protocol)
        self.wrapper = wrapper
        self.options = options
        if self.protocol != "PLAINTEXT":
            self.overrides["listeners"] = f"{self.protocol}://127.0.0.1:0"
        if self.protocol.endswith("SSL"):
            # Kafka's own map has no controller's listener where another one has TLS.
            protocols = f"{self.protocol}:{self.protocol},PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            self.overrides["listener.security.protocol.map"] = protocols
        self.data_dir = data_dir or self.data_dir

    def start(self) -> None:
        port_file = self.folder / "address"
        port_file.unlink(missing_ok=True)
        port = self.bootstrap.rpartition(":")[2] or "0"
        command = [*self.wrapper, PYTHON, "-m", "pykbroker", "start", "--port", port]
        command += ["--port-file", str(port_file), *self.options]
        if "log.dirs" not in self.overrides:
            command += ["--data-dir", str(self.data_dir)]
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        self.process = self._spawn(command, cwd=CHECKOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None:
                raise self._fail(f"pykbroker ended with code {self.process.returncode} at its start")
            if time.monotonic() > deadline:
                raise self._fail(f"pykbroker was not ready within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.01)
        port = port_file.read_text().strip().rpartition(":")[2]
        self.bootstrap = f"127.0.0.1:{port}"


class ApacheKafkaProcess(BrokerProcess):
    """Apache Kafka, broker and controller in one process, from its published jars.

    `format_options` are further options of its format step, such as ``--feature NAME=LEVEL``.
    """

    def __init__(
        self,
        folder: Path,
        log_path: Path,
        overrides: Mapping[str, str],
        tools: JavaTools,
        format_options: tuple[str, ...] = (),
        users: Mapping[str, str] | None = None,
        protocol: str | None = None,
    ) -> None:
        super().__init__(folder, log_path, overrides, users, protocol)
        self.tools = tools
        self.format_options = format_options

    def start(self) -> None:
        properties = self.folder / "server.properties"
        if not self.bootstrap:
            port, internal_port, controller_port = free_ports(3)
            self.bootstrap = f"127.0.0.1:{port}"
            node_id = self.overrides.get("node.id", "1")
            settings = {
                "process.roles": "broker,controller",
                "node.id": node_id,
                "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
                "listeners": (
                    f"{self.protocol}://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port},"
                    f"CONTROLLER://127.0.0.1:{controller_port}"
                ),
                "advertised.listeners": f"{self.protocol}://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port}",
                "inter.broker.listener.name": "INTERNAL",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": (
                    f"{self.protocol}:{self.protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
                "log.dirs": str(self.data_dir),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **self.overrides,
            }
            properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            where = ("-t", CLUSTER_ID, "-c", str(properties))
            self.tools.check("kafka.tools.StorageTool", "format", *where, *self.format_options, connected=False)
        command = [
            JAVA,
            "-Xmx1G",
            *JAVA_FLAGS[1:],
            *self.tools.flags,
            "-cp",
            self.tools.classpath,
            "kafka.Kafka",
            str(properties),
        ]
        self.process = self._spawn(command, cwd=self.folder)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.address):
            if self.process.poll() is not None:
                raise self._fail(f"Apache Kafka ended with code {self.process.returncode} at its start")
            if time.monotonic() > deadline:
                raise self._fail(f"Apache Kafka was not ready within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.1)


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
