"""The broker process under test, and what can be seen of it from outside."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from interop_tests.ports import free_port
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.security.scram import ITERATIONS_MIN
from pykbroker.security.tls import development
from tests.fuzz.world import PARTITIONS, TOPIC_CONFIGS, TOPICS, World
from tests.support.wire_client import WireClient

CHECKOUT = Path(__file__).resolve().parents[2]
INSTRUMENT = CHECKOUT / "tests/fuzz/instrument"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "max.incremental.fetch.session.cache.slots": "20",
    "offsets.topic.num.partitions": "4",
    "socket.listen.backlog.size": "1000",
    "transaction.state.log.num.partitions": "4",
}
INTERNAL_TOPICS = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
"""Topics that the broker makes for itself, and the settings of their numbers of partitions."""
PARTITIONS_LARGE = 100
BAD_SIGNS = ("Traceback", "internal error", "does not fit", "never retrieved", "MemoryError")


class Target:
    """A pykbroker of its own, on a free port and in a temporary folder."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        descriptors_max: int | None = None,
        *,
        tls: bool = False,
        sasl: Mapping[str, str] | None = None,
    ) -> None:
        """With `tls` it has a listener with TLS beside the plain one, at `tls_address`; with `sasl`, settings of
        mechanisms, one of SASL_PLAINTEXT, at `sasl_address`."""
        self.folder = Path(tempfile.mkdtemp(prefix="pykbroker-fuzz-"))
        self.log_path = self.folder / "broker.log"
        self.memory_path = self.folder / "memory"
        self._log_position = 0
        port_file = self.folder / "port"
        command = [sys.executable, "-P", "-m", "pykbroker", "start", "--stop-with-stdin", "--port", "0"]
        command += ["--port-file", str(port_file), "--data-dir", str(self.folder / "data")]
        self.tls_address = ("127.0.0.1", free_port() if tls else 0)
        self.sasl_address = ("127.0.0.1", 0 if sasl is None else free_port())
        further = {**(self._listeners() if tls or sasl is not None else {}), **(self._tls_settings() if tls else {})}
        for key, value in {**SETTINGS, **further, **(sasl or {}), **(settings or {})}.items():
            command += ["--override", f"{key}={value}"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{INSTRUMENT}",
                    "PYKBROKER_MEMORY_FILE": str(self.memory_path),
                },
            )
        if descriptors_max is not None:
            # Before the broker reads it: that is after its imports.
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))
        deadline = time.monotonic() + 30
        while not port_file.exists() or not port_file.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start:\n{self.log_path.read_text()}")
            time.sleep(0.02)
        self.address = ("127.0.0.1", int(port_file.read_text().rpartition(":")[2]))

    def _listeners(self) -> dict[str, str]:
        others = (("SSL", self.tls_address), ("SASL_PLAINTEXT", self.sasl_address))
        addresses = [f"{name}://{host}:{port}" for name, (host, port) in others if port]
        names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
        return {
            "listeners": ",".join(("PLAINTEXT://localhost:0", *addresses)),
            "listener.security.protocol.map": ",".join((*(f"{name}:{name}" for name in names), "CONTROLLER:PLAINTEXT")),
        }

    def _tls_settings(self) -> dict[str, str]:
        development.prepare(str(self.folder), ["localhost", "127.0.0.1"])
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / development.BROKER_FILE),
        }

    def tls_context(self) -> ssl.SSLContext:
        """Context of a client of the listener with TLS."""
        return ssl.create_default_context(cafile=str(self.folder / development.CA_FILE))

    # What is seen of it

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory of its own: file pages that are mapped do not count."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no RssAnon")

    def used_bytes(self) -> int:
        """Memory of its objects, without the free blocks among them that `rss_bytes` contains."""
        self.memory_path.unlink(missing_ok=True)
        os.kill(self.process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 120
        while not self.memory_path.exists():
            if not self.is_alive or time.monotonic() > deadline:
                raise RuntimeError(f"the broker does not tell its memory in use, by {INSTRUMENT}")
            time.sleep(0.02)
        return int(self.memory_path.read_text())

    def descriptor_count(self) -> int:
        """Open files and sockets."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def new_log_lines(self) -> list[str]:
        """Lines that the broker has printed since the last call."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_position)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1]
        self._log_position += len(text)
        return text.decode(errors="replace").splitlines()

    # What is done with it

    def prepare(self, world: World) -> None:
        """Makes the topics that frames are about, those that are not there, and learns their ids."""
        wire = WireClient(self.address, "__fuzz-keeper")
        try:
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=PARTITIONS,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in TOPIC_CONFIGS.get(name, {}).items()],
                )
                for name in TOPICS
            ]
            created = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
            for topic in created.topics:
                if topic.error_code == ErrorCode.NONE:
                    world.topic_ids[topic.name] = topic.topic_id
        finally:
            wire.close()

    def make_users(self, users: Mapping[str, str]) -> None:
        """Gives users SCRAM credentials of each mechanism."""
        wire = WireClient(self.address, "__fuzz-keeper")
        try:
            for number, name in ((1, "sha256"), (2, "sha512")):
                changes = []
                for user, password in users.items():
                    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt", ITERATIONS_MIN)
                    changes.append(
                        ScramCredentialUpsertion(
                            name=user, mechanism=number, iterations=ITERATIONS_MIN, salt=b"salt", salted_password=salted
                        )
                    )
                answer = wire.call(AlterUserScramCredentialsRequest(upsertions=changes), 0)
                assert not any(result.error_code for result in answer.results), answer
        finally:
            wire.close()

    def delete_large(self) -> None:
        """Deletes topics of many partitions, before everything is about them."""
        wire = WireClient(self.address, "__fuzz-keeper")
        try:
            topics = wire.call(MetadataRequest(topics=None), 8).topics
            names = [t.name for t in topics if len(t.partitions) > PARTITIONS_LARGE or t.name.startswith("many-")]
            if names:
                wire.call(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), 5)
        finally:
            wire.close()

    def clean_up(self) -> bool:
        """Deletes all topics but the broker's own, and all groups; False if there was no topic to delete.

        An internal topic that frames have given further partitions is deleted, too. Call it again later: requests of
        closed connections may still be at work and make topics.
        """
        wire = WireClient(self.address, "__fuzz-keeper")
        own = {name: int(SETTINGS[setting]) for name, setting in INTERNAL_TOPICS.items()}
        try:
            topics = wire.call(MetadataRequest(topics=None), 8).topics
            names = [topic.name for topic in topics if own.get(topic.name) != len(topic.partitions)]
            for name in names:
                wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            groups = [group.group_id for group in wire.call(ListGroupsRequest(), 3).groups]
            wire.call(DeleteGroupsRequest(groups_names=groups), 2)
        finally:
            wire.close()
        return bool(names)

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answer_time_s(self, timeout_s: float) -> float:
        """Seconds until the first answer to a new client; infinite after the timeout.

        The broker's processor time is taken instead where it is less: the machine may be busy with other work. For that
        reason a broker that got little processor time is asked again, with ten times the timeout.
        """
        answered_s, used_s = self._answer_time_s(timeout_s)
        if answered_s == float("inf") and used_s < timeout_s / 4:
            answered_s, used_s = self._answer_time_s(10 * timeout_s)
        return answered_s if answered_s == float("inf") else min(answered_s, used_s)

    def _answer_time_s(self, timeout_s: float) -> tuple[float, float]:
        """Seconds until the answer to a new client, and the broker's processor time during them, in seconds."""
        began, cpu_before = time.monotonic(), self.cpu_s()
        try:
            with self.new_client(timeout_s) as client:
                if not client.recv(4096):
                    return float("inf"), self.cpu_s() - cpu_before
        except OSError:
            return float("inf"), self.cpu_s() - cpu_before
        return time.monotonic() - began, self.cpu_s() - cpu_before

    def is_serving(self) -> bool:
        """True if a new client gets an answer; a broker that gets little processor time has minutes for it."""
        return self.answer_time_s(20) < float("inf")

    def new_client(self, timeout_s: float) -> socket.socket:
        """A new connection that has asked for the API versions. Raises OSError."""
        client = socket.create_connection(self.address, timeout=timeout_s)
        try:
            client.sendall(bytes.fromhex("0000001200120000000000010008") + b"liveness")
        except OSError:
            client.close()
            raise
        return client

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops the process by SIGSTOP until the end of the block: what is sent meanwhile waits in its sockets."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            # It does not stop before the signal has reached all of its threads.
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Ends it in order; the exit code."""
        if self.is_alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            assert self.process.stdin is not None
            self.process.stdin.close()

    def remove(self) -> None:
        """Removes its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
