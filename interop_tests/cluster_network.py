"""Links between nodes that can be cut: in network namespaces where those are allowed, else in a TCP proxy.

A cut link is a pulled cable: what is sent gets nowhere without a word, and each direction can be cut alone. Nodes are
numbers from 1, and CLIENTS is this machine, where the tests and their clients are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from interop_tests.cluster_proxy import CLIENTS, LOOPBACK
from interop_tests.ports import free_ports

PORT, CONTROLLER_PORT = 9092, 9093
CHECKOUT = Path(__file__).resolve().parent.parent

_NOBODY = "02:00:00:00:00:ff"


class Address(NamedTuple):
    """Host and port that a node binds, and the port at which clients and other nodes reach it."""

    host: str
    port: int
    public_port: int


class Network:
    """Nodes 1 to `count` and the links between them; a context manager."""

    def __init__(self, count: int) -> None:
        self.ids = range(1, count + 1)

    @staticmethod
    def obstacle() -> str:
        """Reason that this machine cannot have such a network; "" when it can."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def addresses(self, node_id: int) -> tuple[Address, Address]:
        """For the node's clients, and for its controller; always the same for one node."""
        raise NotImplementedError

    def wrapper(self, node_id: int) -> tuple[str, ...]:
        """The beginning of a command line that runs a command as this node."""
        return ()

    def started(self, node_id: int, pid: int) -> None:
        """The node's process has this id now."""

    def lose(self, links: Iterable[tuple[int, int]]) -> None:
        """Whatever the first of a pair sends to the second is lost."""
        raise NotImplementedError

    def mend(self) -> None:
        """All links are whole again."""
        raise NotImplementedError

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Whatever `one` sends to `other` is lost, and the other way round unless `one_way`."""
        self.lose([(one, other)] if one_way else [(one, other), (other, one)])

    def isolate(self, node_id: int, *, from_clients: bool = True) -> None:
        """Cuts all links of a node."""
        for other in self.ids:
            if other != node_id:
                self.cut(node_id, other)
        if from_clients:
            self.lose([(node_id, CLIENTS)])


class NamespaceNetwork(Network):
    """A network namespace for each node, all on one bridge of this machine. Needs root and `ip` (iproute2) on Linux.

    A link is cut by a wrong hardware address for the other end. Leave it in order, else the namespaces stay behind.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._name = f"pk{os.getpid():x}{os.urandom(1).hex()}"
        self._prefix = f"10.{201 + os.getpid() % 50}.{os.urandom(1)[0]}"

    @staticmethod
    def obstacle() -> str:
        if shutil.which("ip") is None:
            return "`ip` (iproute2) was not found"
        name = f"pk{os.getpid():x}try"
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"network namespaces are not allowed here: {done.stderr.strip()}"
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        return ""

    def __enter__(self) -> Self:
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self._host(CLIENTS)}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for node_id in self.ids:
            space, link = self._space(node_id), f"{self._name}.{node_id}"
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", link, "master", self._name, "up")
            _ip("-n", space, "addr", "add", f"{self._host(node_id)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node_id in self.ids:
            subprocess.run(["ip", "netns", "del", self._space(node_id)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def addresses(self, node_id: int) -> tuple[Address, Address]:
        host = self._host(node_id)
        return Address(host, PORT, PORT), Address(host, CONTROLLER_PORT, CONTROLLER_PORT)

    def wrapper(self, node_id: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._space(node_id))

    def lose(self, links: Iterable[tuple[int, int]]) -> None:
        for sender, receiver in links:
            where = ("neigh", "replace", self._host(receiver), "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
            _ip("-n", self._space(sender), *where)

    def mend(self) -> None:
        for node_id in self.ids:
            _ip("-n", self._space(node_id), "neigh", "flush", "nud", "permanent", "dev", "eth0")

    def _host(self, node_id: int) -> str:
        return f"{self._prefix}.{node_id}"

    def _space(self, node_id: int) -> str:
        return f"{self._name}-{node_id}"


class ProxyNetwork(Network):
    """One process through which all connections to nodes go (`cluster_proxy.py`). Needs Linux, and no rights.

    What it cannot do, compared with namespaces:

    * Only data and the ends of connections are held up, not TCP's own packets. So with one direction cut the other has
      no end, where a sender would soon wait for acknowledgements; what is held up goes on at once when the link is
      mended, not at TCP's next attempt; and no connection is given up but by its ends.
    * A new connection over a cut link is taken by the proxy, and then says nothing: who connects waits for an answer
      and not for the connection.
    * The port of a node that does not run takes connections and resets them, where a machine would refuse them.
    * It tells nodes by their processes: what a node's children connect to counts as the work of clients.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._process: subprocess.Popen[str] | None = None
        self._addresses: dict[int, tuple[Address, Address]] = {}

    @staticmethod
    def obstacle() -> str:
        own = Path("/proc/self/fd")
        return "" if own.is_dir() and Path("/proc/net/tcp").exists() else "there is no /proc with Linux's tables"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "interop_tests.cluster_proxy"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT, text=True, bufsize=1
        )
        for node_id in self.ids:
            own, controllers = (
                Address(LOOPBACK, port, int(self._tell("listen", node_id, port))) for port in free_ports(2)
            )
            self._addresses[node_id] = own, controllers
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()

    def addresses(self, node_id: int) -> tuple[Address, Address]:
        return self._addresses[node_id]

    def started(self, node_id: int, pid: int) -> None:
        self._tell("process", node_id, pid)

    def lose(self, links: Iterable[tuple[int, int]]) -> None:
        for sender, receiver in links:
            self._tell("cut", sender, receiver)

    def mend(self) -> None:
        self._tell("mend")

    def _tell(self, word: str, *values: int) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({word: values}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the proxy has ended with code {self._process.wait()}")
        return answer


NETWORKS = {"namespaces": NamespaceNetwork, "proxy": ProxyNetwork}
"""In the order in which they are preferred."""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
