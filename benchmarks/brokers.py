"""The brokers that are measured, as processes: started, watched through /proc, stopped."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT = Path(__file__).resolve().parent.parent
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
_CPU_CLOCK_OF_PROCESS = 2
"""CPUCLOCK_SCHED of the kernel: the time that the scheduler has given to all threads of a process."""
# ApiVersions version 0, correlation id 1, client id "bench": the first thing that every client asks.
API_VERSIONS_REQUEST = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"bench")


class BrokerFailedError(Exception):
    """A broker did not start or stop; the message has the end of its log."""


def free_port() -> int:
    """A port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars: $PYKBROKER_KAFKA_LIBS, else what the interop tests fetch."""
    named = os.environ.get("PYKBROKER_KAFKA_LIBS")
    if named:
        return Path(named)
    argv = [sys.executable, "-m", "interop_tests.kafka_jars"]
    found = subprocess.run(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        raise BrokerFailedError("Apache Kafka's jars are not there (see above)")
    return Path(found.stdout.strip())


def java_command(heap: str = "512M") -> list[str]:
    """The start of a command line that runs a class of Apache Kafka's jars, with errors only in its log."""
    log_settings = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    return ["java", f"-Xmx{heap}", log_settings, "-cp", f"{kafka_libs()}/*"]


def answers(port: int) -> bool:
    """True if a broker on this port answers ApiVersions now."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(API_VERSIONS_REQUEST)
            reply = connection.recv(10)
            # size, correlation id, error code 0
            return len(reply) >= 10 and struct.unpack(">iih", reply)[1:] == (1, 0)
    except OSError:
        return False


def process_cpu_s(pid: int) -> float:
    """Processor seconds that a process has used since it began, in user and kernel, with threads that ended.

    By the process's own clock (clock_getcpuclockid(3)), which counts nanoseconds; /proc/PID/stat has steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process. PSS counts a page that n processes share as 1/n."""

    rss_mb: float
    pss_mb: float


def environment_of_an_installed_copy() -> dict[str, str]:
    """This environment, but byte code may be kept: pip compiles what it installs, a checkout does it when first run.

    With the variable set, every start after a change of the sources compiles them again: half of the time to the
    first answer where this was noticed.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Broker:
    """A broker process with a temporary data folder on a free port. Use as a context manager."""

    name = ""

    def __init__(self, overrides: Sequence[str] = (), *, tls_port: int | None = None) -> None:
        """With `tls_port` there is a listener with TLS beside the plain one; its certificates are in `overrides`."""
        self._overrides = list(overrides)
        self.tls_port = tls_port
        self._folder = tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-")
        self.folder = Path(self._folder.name)
        self.port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.start_ms = 0.0
        self.start_cpu_ms = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Prepare the data directory once, before the first start. Nothing by default."""

    def command(self) -> list[str]:
        """Its command line."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it answers; `start_ms` is the time from fork to answer, `start_cpu_ms` its own."""
        with (self.folder / "log").open("ab") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                self.command(),
                cwd=CHECKOUT,
                env=environment_of_an_installed_copy(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while not answers(self.port):
            if self._process.poll() is not None or time.perf_counter() - began > START_TIMEOUT_S:
                raise BrokerFailedError(f"{self.name} did not start:\n{self.log_tail()}")
            time.sleep(0.001)
        self.start_ms = (time.perf_counter() - began) * 1000
        self.start_cpu_ms = process_cpu_s(self.pid) * 1000

    def log_tail(self) -> str:
        """The last lines that it printed."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """SIGTERM and wait; kill -9 if that takes too long."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor seconds that the process has used since it began."""
        return process_cpu_s(self.pid)

    def memory(self) -> Memory:
        """Resident memory now."""
        sizes = {}
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            sizes[name] = int(value.split()[0]) / 1024
        return Memory(sizes["Rss"], sizes["Pss"])

    def idle_cpu_percent(self, seconds: float) -> float:
        """Share of one core that it uses while nothing is asked, watched for so long."""
        before = self.cpu_s()
        time.sleep(seconds)
        return 100 * (self.cpu_s() - before) / seconds


class Pykbroker(Broker):
    """Ours, by its command line."""

    name = "pykbroker"

    def command(self) -> list[str]:
        """`python -m pykbroker start`."""
        settings = list(self._overrides)
        if self.tls_port is not None:
            settings.append(f"listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{self.tls_port}")
            settings.append("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT")
        overrides = [text for item in settings for text in ("--override", item)]
        places = ["--host", "127.0.0.1", "--port", str(self.port), "--data-dir", str(self.folder / "data")]
        return [sys.executable, "-m", "pykbroker", "start", *places, *overrides]


class ApacheKafka(Broker):
    """Apache Kafka in KRaft mode, broker and controller in one process, 1 GB heap as by default."""

    name = "kafka"

    def prepare(self) -> None:
        """Write its settings and format its folder."""
        controller_port = free_port()
        more = "" if self.tls_port is None else f",SSL://127.0.0.1:{self.tls_port}"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}{more},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}{more}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            f"log.dirs={self.folder / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            *self._overrides,
        ]
        (self.folder / "server.properties").write_text("\n".join(lines) + "\n")
        storage_tool = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(self.folder / "server.properties"),
        ]
        done = subprocess.run([*java_command(), *storage_tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BrokerFailedError(f"kafka's format failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        """`java kafka.Kafka`."""
        return [*java_command("1G"), "kafka.Kafka", str(self.folder / "server.properties")]


KINDS: dict[str, type[Broker]] = {"pykbroker": Pykbroker, "kafka": ApacheKafka}


def median(values: Sequence[float]) -> float:
    """Middle value; nan of none."""
    return statistics.median(values) if values else float("nan")
