"""LocalBroker: a broker process for a test, a notebook or a script, on a free port with a temporary folder.

The broker runs in a process of its own, exactly as `pykbroker start` runs it: it can be killed with -9, it does not
share this process's GIL, and any client in any thread may use it. Nothing here imports the broker or trio.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from pykbroker.memory import environment_for_brokers

__all__ = ["LocalBroker", "LocalBrokerError"]

_POLL_S = 0.005
_LOG_TAIL_LINES = 30


class LocalBrokerError(RuntimeError):
    """The broker process did not start or is not in the state that the call needs; the text ends with its log."""


class LocalBroker:
    """A broker process: `with LocalBroker() as broker: use(broker.bootstrap_servers)`.

    Args:
        topics: topics that exist when the broker is ready: a mapping of name to partition count, or texts
            as `--topic` takes them (`"orders"`, `"orders:3"`, `"orders:3:cleanup.policy=compact"`).
        config: broker settings by Kafka's names, as in server.properties.
        data_dir: where the data is kept; it is never removed. By default a temporary folder that goes with the broker.
        keep: leave the temporary folder (data and log) behind.
        port: 0 takes a free port; `restart()` keeps the port of the first start.
        start_timeout_s: how long `start()` waits until the broker answers.
        stop_timeout_s: how long `stop()` waits for the orderly end before it kills.
        cluster_id: what a new data directory is marked with, 22 characters; a random one by default.

    The process ends when this one does, however this one ends. `KAFKA_*` variables of this process are not passed on.
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
    ) -> None:
        self._cluster_id = cluster_id
        if isinstance(topics, Mapping):
            self._topics = [f"{name}:{partitions}" for name, partitions in topics.items()]
        else:
            self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._config = {key: _as_property(value) for key, value in (config or {}).items()}
        self._data_dir = None if data_dir is None else os.path.abspath(data_dir)
        self._keep = keep
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

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # What a client needs

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

    # What a test looks at

    @property
    def pid(self) -> int | None:
        """The process id of the last broker process; None before the first start."""
        process = self._resources.process
        return None if process is None else process.pid

    @property
    def is_running(self) -> bool:
        """Whether the broker process lives."""
        process = self._resources.process
        return process is not None and process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit code of the last process: None while it lives, 0 after an orderly end, negative after a signal."""
        process = self._resources.process
        return None if process is None else process.poll()

    @property
    def data_dir(self) -> str:
        """The folder with the broker's data."""
        return self._data_dir or os.path.join(self._folder(), "data")

    @property
    def log(self) -> str:
        """What the broker has printed, over all its starts."""
        try:
            with open(self._log_path(), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    # Life and death

    def start(self) -> Self:
        """Start the process and wait until it answers; returns the broker itself.

        Raises:
            LocalBrokerError: it is running already, it ended, or it was not ready in time.
        """
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start the process and do not wait for it: the first half of `start()`.

        Raises:
            LocalBrokerError: it is running already.
        """
        if self.is_running:
            raise LocalBrokerError(f"the broker is running already (pid {self.pid})")
        port_file = self._port_file()
        _remove_if_there(port_file)
        with open(self._log_path(), "ab") as log:
            self._resources.process = subprocess.Popen(
                self._command(port_file),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment() | ({"CLUSTER_ID": self._cluster_id} if self._cluster_id else {}),
                # Ctrl-C in a terminal goes to the whole process group: the program decides when its broker ends.
                start_new_session=True,
            )

    def wait_until_ready(self) -> Self:
        """Wait until the launched process answers: the second half of `start()`.

        Raises:
            LocalBrokerError: it was not launched, it ended, or it was not ready in time.
        """
        process = self._resources.process
        if process is None:
            raise LocalBrokerError("the broker was not started")
        self._address = self._wait_until_ready(process, self._port_file())
        self._port = self.port
        return self

    def pause(self) -> None:
        """Let the process stand still (SIGSTOP), as a long garbage collection or a suspended machine would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def stop(self) -> int:
        """End the process in order (SIGTERM) and return its exit code; kills it when it takes too long.

        Raises:
            LocalBrokerError: it had to be killed.
        """
        process = self._resources.process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            # A paused process would hear the first one only when it goes on.
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(self._stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise LocalBrokerError(
                    self._with_log(
                        f"the broker did not end within {self._stop_timeout_s:g} s of SIGTERM and was killed"
                    )
                ) from None
        _close_stdin(process)
        return process.returncode

    def begin_to_stop(self) -> None:
        """Tell the process to end (SIGTERM) and do not wait for it; `stop()` waits."""
        if self.is_running:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    def hurry(self) -> None:
        """Let a process that is stopping no longer wait for the other nodes of its cluster."""
        process = self._resources.process
        if process is not None:
            _close_stdin(process)

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would; the data stays for `restart()`."""
        process = self._resources.process
        if process is not None:
            process.kill()
            process.wait()
            _close_stdin(process)

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it again on the same port with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker and remove its temporary folder (unless `keep`)."""
        try:
            self.stop()
        finally:
            self._resources.release(self._keep)

    # Inside

    def _signal(self, number: signal.Signals) -> None:
        process = self._resources.process
        if process is None or process.poll() is not None:
            raise LocalBrokerError("the broker is not running")
        process.send_signal(number)

    def _port_file(self) -> str:
        return os.path.join(self._folder(), "address")

    def _folder(self) -> str:
        if self._resources.folder is None:
            self._resources.folder = tempfile.mkdtemp(prefix="pykbroker-")
        return self._resources.folder

    def _log_path(self) -> str:
        return os.path.join(self._folder(), "broker.log")

    def _command(self, port_file: str) -> list[str]:
        # -P: a file of the user's in the working directory must not hide a module of the broker's.
        command = [sys.executable, "-P", "-m", "pykbroker", "start", "--stop-with-stdin"]
        command += ["--port", str(self._port), "--port-file", port_file, "--data-dir", self.data_dir]
        for key, value in self._config.items():
            command += ["--override", f"{key}={value}"]
        for topic in self._topics:
            command += ["--topic", topic]
        return command

    def _wait_until_ready(self, process: subprocess.Popen[bytes], port_file: str) -> str:
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            address = _read_if_there(port_file)
            if address:
                return address
            if process.poll() is not None:
                _close_stdin(process)
                raise LocalBrokerError(
                    self._with_log(f"the broker ended with exit code {process.returncode} before it was ready")
                )
            if time.monotonic() > deadline:
                self.kill()
                raise LocalBrokerError(self._with_log(f"the broker was not ready within {self._start_timeout_s:g} s"))
            time.sleep(_POLL_S)

    def _with_log(self, text: str) -> str:
        tail = self.log.splitlines()[-_LOG_TAIL_LINES:]
        if not tail:
            return f"{text}; it printed nothing"
        return f"{text}; the end of its log:\n" + "\n".join(f"    {line}" for line in tail)


class _Resources:
    """The process and the folder, apart from the broker so that its finalizer can release them."""

    __slots__ = ("folder", "process")

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.folder: str | None = None

    def release(self, keep: bool) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process is not None:
            _close_stdin(self.process)
        if self.folder is not None and not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def _as_property(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment() -> dict[str, str]:
    """Return this process's environment without broker settings, and with this very package importable."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("KAFKA_") and name != "CLUSTER_ID"
    }
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):
        # A checkout that is not installed. Never for site-packages: PYTHONPATH goes before the standard library.
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment_for_brokers(environment)


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _read_if_there(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def _remove_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
