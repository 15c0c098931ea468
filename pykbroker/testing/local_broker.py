"""LocalBroker: a broker process for a test, a notebook or a script, on a free port with a temporary directory.

The broker runs in a process of its own, exactly as `pykbroker start` runs it: it can be killed with -9, it does not
share this process's GIL, and any client in any thread may use it. Nothing here imports the broker or trio.

As a rule that process is a fork of a prepared one (`prepared_process`), which is ready in 20 ms, and its directory
is in memory (`local_storage`).
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Self

from pykbroker.node.process_memory import environment_for_brokers
from pykbroker.processes.broker_process import CAN_FORK, BrokerProcess, ProcessError
from pykbroker.processes.interpreter_process import InterpreterProcess
from pykbroker.processes.prepared_process import prepared_process
from pykbroker.testing.local_client import LocalBrokerError, LocalClient, as_properties
from pykbroker.testing.local_storage import temporary_directory

__all__ = ["LocalBroker", "LocalBrokerError"]

_LOG_TAIL_LINES = 30


class LocalBroker(LocalClient):
    """A broker process: `with LocalBroker() as broker: use(broker.bootstrap_servers)`.

    It listens on localhost, and a new consumer group has its partitions at once: `group.initial.rebalance.delay.ms` is
    0 unless `config` says otherwise. When this process ends, however it ends, the broker does too, and its temporary
    directory is removed. `KAFKA_*` variables of this process are not passed on.

    `create_topic`, `produce`, `consume` and `wait_for_group` use the Kafka client library that is installed.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        config: Mapping[str, str | float] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        keep: bool = False,
        port: int = 0,
        start_timeout_s: float = 30.0,
        stop_timeout_s: float = 10.0,
        cluster_id: str | None = None,
        storage: str | os.PathLike[str] = "auto",
        prepared: bool = True,
        tls: bool = False,
    ) -> None:
        """Describes a broker; `start()` or `with` starts it.

        Args:
            topics: topics that exist when the broker is ready: a mapping of name to partition count, or texts
                as `--topic` takes them (`"orders"`, `"orders:3"`, `"orders:3:cleanup.policy=compact"`).
            config: broker settings by Kafka's names, as in server.properties.
            data_dir: where the data is kept; it is never removed. By default a temporary directory, which is removed
                with the broker.
            keep: leave the temporary directory (data and log) behind.
            port: 0 takes a free port; `restart()` keeps the port of the first start.
            start_timeout_s: how long `start()` waits until the broker answers.
            stop_timeout_s: how long `stop()` waits for the orderly end before it kills the broker.
            cluster_id: cluster id of a new data directory, 22 characters; a random one by default.
            storage: where the temporary directory is. "auto": in memory (`/dev/shm`) if 256 MiB are free there and
                `keep` is not set, else on disk; "memory"; "disk"; or the path of a directory to make it in. When memory
                runs out there, producers get KAFKA_STORAGE_ERROR, as with any full disk.
            prepared: fork the broker from a process that has imported its modules, so that it starts in 20 ms (Linux
                only); False starts an interpreter of its own, `python -m pykbroker start`.
            tls: the listener has TLS, with certificates that are made for this broker: `start --tls`. Clients need
                `kafka_python_settings`, `confluent_settings`, `java_settings` or `tls_ca_file`. It needs the package
                cryptography (`pykbroker[tls]`), and `config` cannot have `listeners`.

        Raises:
            StorageChoiceError: (at the start) `storage` is no directory, or "memory" where that is not available.
        """
        self._cluster_id = cluster_id
        self._tls = tls
        self._tls_of_cluster: str | None = None
        if isinstance(topics, Mapping):
            self._topics = [f"{name}:{partitions}" for name, partitions in topics.items()]
        else:
            self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._config = as_properties(config)
        self._data_dir = None if data_dir is None else os.path.abspath(data_dir)
        # With `data_dir` the directory has only the broker's output, for which no start or request waits.
        self._storage = "disk" if data_dir is not None and storage == "auto" else storage
        self._keep = keep
        self._prepared = prepared and CAN_FORK
        self._is_temporary = data_dir is None and not keep
        self._directories_at_end: tuple[str, ...] = ()
        self._port = port
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._address: str | None = None
        # Shared with the finalizer, which must not hold the broker itself.
        self._resources = _Resources()
        self._finalizer = weakref.finalize(self, _Resources.release, self._resources, keep)

    def __repr__(self) -> str:
        state = f"at {self._address}, pid {self.pid}" if self.is_running else "not running"
        return f"<LocalBroker {state}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    # Settings for clients

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as every Kafka client takes it; stays the same across `restart()`."""
        if self._address is None:
            raise LocalBrokerError("the broker was not started: use `with LocalBroker() as broker:` or call start()")
        return self._address

    @property
    def port(self) -> int:
        """The port that the broker listens on."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    @property
    def _tls_directory(self) -> str | None:
        return self.data_dir if self._tls else self._tls_of_cluster

    # State and output

    @property
    def pid(self) -> int | None:
        """The process id of the last broker process; None before the first start."""
        process = self._resources.process
        return None if process is None else process.pid

    @property
    def is_running(self) -> bool:
        """True if the broker process runs."""
        process = self._resources.process
        return process is not None and process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit code of the last process: None while it runs, 0 after an orderly end, negative after a signal."""
        process = self._resources.process
        return None if process is None else process.poll()

    @property
    def data_dir(self) -> str:
        """The directory with the broker's data."""
        return self._data_dir or os.path.join(self._directory(), "data")

    @property
    def log(self) -> str:
        """Output of the broker, over all its starts."""
        try:
            with open(self._log_path(), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    # Start and stop

    def start(self) -> Self:
        """Starts the process and waits until it answers; returns the broker itself.

        Raises:
            LocalBrokerError: it is running already, it ended, or it was not ready in time.
        """
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Starts the process and does not wait until it answers: the first half of `start()`.

        Raises:
            LocalBrokerError: it is running already, or no process could be made.
        """
        if self.is_running:
            raise LocalBrokerError(f"the broker is running already (pid {self.pid})")
        self._resources.kill_process()
        environment = _environment() | ({"CLUSTER_ID": self._cluster_id} if self._cluster_id else {})
        try:
            self._resources.process = self._new_process(environment)
        except ProcessError as error:
            raise LocalBrokerError(f"the broker was not started: {error}") from None

    def _new_process(self, environment: Mapping[str, str]) -> BrokerProcess:
        directory = self._directory()
        if not self._prepared:
            return InterpreterProcess(
                self._arguments(), environment, self._log_path(), os.path.join(directory, "address")
            )
        prepared = prepared_process(environment)
        for temporary in (*self._directories_at_end, *(() if self._keep else (directory,))):
            prepared.remove_at_end(temporary)
        return prepared.start(
            self._arguments(),
            environment,
            self._log_path(),
            is_temporary=self._is_temporary,
            timeout_s=self._start_timeout_s,
        )

    def wait_until_ready(self) -> Self:
        """Waits until the launched process answers: the second half of `start()`.

        Raises:
            LocalBrokerError: it was not launched, it ended, or it was not ready in time.
        """
        process = self._resources.process
        if process is None:
            raise LocalBrokerError("the broker was not started")
        self._address = self._wait_until_ready(process)
        self._port = self.port
        return self

    def pause(self) -> None:
        """Pauses the process (SIGSTOP), as a long garbage collection or a suspended machine would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a paused process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def stop(self) -> int:
        """Ends the process in order (SIGTERM) and returns its exit code; kills it when it takes too long.

        Raises:
            LocalBrokerError: it had to be killed.
        """
        process = self._resources.process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            # A paused process handles SIGTERM only after SIGCONT.
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(self._stop_timeout_s)
            except TimeoutError:
                self.kill()
                raise LocalBrokerError(
                    self._with_log(
                        f"the broker did not end within {self._stop_timeout_s:g} s of SIGTERM and was killed"
                    )
                ) from None
        process.close_stdin()
        return process.wait()

    def begin_to_stop(self) -> None:
        """Sends SIGTERM to the process and does not wait for its end; `stop()` waits."""
        if self.is_running:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    def stop_without_controller(self) -> None:
        """Makes a process that is stopping no longer wait for the controller's permission to shut down."""
        process = self._resources.process
        if process is not None:
            process.close_stdin()

    def kill(self) -> None:
        """Ends the process at once (SIGKILL), as a crash would; the data stays for `restart()`."""
        process = self._resources.process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.close_stdin()

    def restart(self) -> Self:
        """Stops the broker if it runs, and starts it again on the same port with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Ends the broker and removes its temporary directory.

        With `data_dir` or `keep` the broker is stopped in order, as by `stop()`. Otherwise it is killed, as its data is
        removed anyway.
        """
        try:
            if not self._is_temporary:
                self.stop()
        finally:
            self._resources.release(self._keep)

    # Internals

    def _remove_at_end(self, directory: str) -> None:
        """Removes `directory`, which has the data, when this process ends. LocalCluster calls it before the start."""
        self._is_temporary = True
        self._directories_at_end = (directory,)

    def _take_certificates_of(self, directory: str) -> None:
        """Takes the certificates for clients from `directory`, for LocalCluster, whose settings name them."""
        self._tls_of_cluster = directory

    def _signal(self, number: signal.Signals) -> None:
        process = self._resources.process
        if process is None or process.poll() is not None:
            raise LocalBrokerError("the broker is not running")
        process.send_signal(number)

    def _directory(self) -> str:
        if self._resources.directory is None:
            self._resources.directory = temporary_directory("pykbroker-", self._storage, keep=self._keep)
        return self._resources.directory

    def _log_path(self) -> str:
        return os.path.join(self._directory(), "broker.log")

    def _arguments(self) -> list[str]:
        """The arguments after `pykbroker start`."""
        arguments = ["--stop-with-stdin", "--port", str(self._port), "--data-dir", self.data_dir]
        if self._tls:
            arguments.append("--tls")
        for key, value in self._config.items():
            arguments += ["--override", f"{key}={value}"]
        for topic in self._topics:
            arguments += ["--topic", topic]
        return arguments

    def _wait_until_ready(self, process: BrokerProcess) -> str:
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            address = process.address()
            if address:
                return address
            code = process.poll()
            if code is not None:
                process.close_stdin()
                raise LocalBrokerError(self._with_log(f"the broker ended with exit code {code} before it was ready"))
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                raise LocalBrokerError(self._with_log(f"the broker was not ready within {self._start_timeout_s:g} s"))
            process.wait_for_output(left)

    def _with_log(self, text: str) -> str:
        tail = self.log.splitlines()[-_LOG_TAIL_LINES:]
        if not tail:
            return f"{text}; it printed nothing"
        return f"{text}; the end of its log:\n" + "\n".join(f"    {line}" for line in tail)


class _Resources:
    """The process and the directory, apart from the broker so that its finalizer can release them."""

    __slots__ = ("directory", "owner", "process")

    def __init__(self) -> None:
        self.process: BrokerProcess | None = None
        self.directory: str | None = None
        self.owner = os.getpid()

    def kill_process(self) -> None:
        """Kills the process if it runs, and closes its standard input."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self.process is not None:
            self.process.close_stdin()

    def release(self, keep: bool) -> None:
        # A fork of the program that started the broker has a copy of this object, but must not end the broker.
        if self.owner != os.getpid():  # pragma: no cover: in a fork
            return
        self.kill_process()
        if self.directory is not None and not keep:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None


def _environment() -> dict[str, str]:
    """Returns this process's environment without broker settings, and with this very package importable."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KAFKA_") and name != "CLUSTER_ID"
    }
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):
        # A checkout that is not installed. Never for site-packages: PYTHONPATH goes before the standard library.
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment_for_brokers(environment)
