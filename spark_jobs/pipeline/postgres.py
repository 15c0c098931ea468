"""PostgreSQL servers of a run: real ones from the programs of this machine, on free ports, each with its own data."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from processes import ManagedProcess, ProcessFailedError
from session import say

from pipeline.model import MissingPartError

START_TIMEOUT_S = 60.0
# Folders in which distributions put the programs of each version.
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_wal_senders": "4",
    "max_replication_slots": "4",
}
RETRY_FOR_S, RETRY_PAUSE_S = 90.0, 0.5
ADVICE = "install it (on Debian and Ubuntu: apt install postgresql; a cluster of its own is not needed)"
T = TypeVar("T")


def program(name: str) -> str:
    """Path of a program of PostgreSQL. Raises MissingPartError if there is none."""
    found = [path for place in PLACES for path in Path("/").glob(f"{place[1:]}/{name}")]
    if found:
        return str(max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))]))
    on_path = shutil.which(name)
    if on_path is None:
        raise MissingPartError(f"PostgreSQL's program {name} was not found: {ADVICE}")
    return on_path


def unprivileged_user() -> str | None:
    """A user that PostgreSQL runs as, because it refuses root; None where we are not root.

    Raises MissingPartError if there is none that will do.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise MissingPartError("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody")


class PostgresServer:
    """One server. Its superuser is `postgres`, and it trusts whoever connects on this machine's loopback address."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._data = folder / f"postgres-{name}"
        self._user = unprivileged_user()
        self._port = 0
        self._process: ManagedProcess | None = None

    @property
    def address(self) -> str:
        """Connection string, as libpq takes it."""
        return f"host=127.0.0.1 port={self._port} dbname=postgres user=postgres connect_timeout=10"

    def create(self) -> None:
        """Make the data directory. Raises ProcessFailedError with what initdb said if it cannot."""
        self._data.mkdir()
        if self._user is not None:
            shutil.chown(self._data, self._user)
            # That user has to get through to it.
            self._folder.chmod(0o711)
        command = [program("initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(self._as_user(command), capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            raise ProcessFailedError(f"initdb failed: {done.stderr.strip()[-500:]}")
        self._port = free_port()

    def start(self) -> None:
        """Start it; returns when it answers. Raises ProcessFailedError if it does not within a minute."""
        command = [program("postgres"), "-D", str(self._data), "-p", str(self._port)]
        for key, value in SETTINGS.items():
            command += ["-c", f"{key}={value}"]
        deadline = time.monotonic() + START_TIMEOUT_S
        log = self._folder / f"postgres-{self.name}.log"
        while True:
            if self._process is None or self._process.exit_code() is not None:
                # After kill -9 it refuses to start until the memory of the killed one is given back.
                self._process = ManagedProcess(f"PostgreSQL {self.name}", self._as_user(command), log)
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise self._process.failure(f"did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.1)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error):
            psycopg.connect(self.address).close()
            return True
        return False

    def is_dead(self) -> bool:
        """True if it was started and has ended."""
        return self._process is not None and self._process.exit_code() is not None

    def kill(self) -> None:
        """kill -9 to the server and all its processes, each of which is a session of its own."""
        if self._process is None:
            return
        children = children_of(self._process.pid)
        self._process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _as_user(self, command: Sequence[str]) -> list[str]:
        if self._user is None:
            return list(command)
        return ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", *command]


class PostgresServers:
    """Several servers by name, as `pipeline.model.Databases`."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._servers = [PostgresServer(name, folder) for name in names]
        self.addresses: dict[str, str] = {}

    def start(self) -> None:
        """Make and start all."""
        for server in self._servers:
            server.create()
            server.start()
            self.addresses[server.name] = server.address

    def kill(self, choice: int) -> str:
        """kill -9 to the server that the number chooses."""
        server = self._servers[choice % len(self._servers)]
        server.kill()
        return f"database {server.name}"

    def revive(self) -> None:
        """Start those that are dead, with their data."""
        for server in self._servers:
            if server.is_dead():
                server.start()

    def close(self) -> None:
        """kill -9 to all: the data is of no more use."""
        for server in self._servers:
            server.kill()


def in_transaction(address: str, run: Callable[[Any], T], retry_for_s: float = RETRY_FOR_S) -> T:
    """Run something in a transaction of a new connection, again for so long while the database is away.

    `run` may be called after a commit whose answer was lost, and must see that it was done. A line says once that the
    database is away. Raises psycopg.Error when it stays away.
    """
    import psycopg

    deadline = time.monotonic() + retry_for_s
    is_said = False
    while True:
        try:
            with psycopg.connect(address) as connection:
                return run(connection)
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise
            if not is_said:
                say(f"the database is away: {str(error).splitlines()[0]}")
            is_said = True
            time.sleep(RETRY_PAUSE_S)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started, as far as the system says so."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
