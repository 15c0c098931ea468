"""Links between nodes that can be cut: a network namespace for each node, all on one bridge of this machine.

A link is cut by a wrong hardware address for the other end: what is sent gets lost without a word, as when a cable is
pulled, and each direction can be cut alone. Needs root and `ip` (iproute2) on Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

CLIENTS = 254
"""The machine's own end: where the tests and their clients are."""

_NOBODY = "02:00:00:00:00:ff"


class Network:
    """Namespaces for nodes 1 to `count`; use as a context manager, else they stay behind."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._name = f"pk{os.getpid():x}{os.urandom(1).hex()}"
        self._prefix = f"10.{201 + os.getpid() % 50}.{os.urandom(1)[0]}"

    @staticmethod
    def obstacle() -> str:
        """Why there can be no such network here; "" when there can."""
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
        _ip("addr", "add", f"{self.address(CLIENTS)}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for node_id in range(1, self.count + 1):
            space, link = self._space(node_id), f"{self._name}.{node_id}"
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", link, "master", self._name, "up")
            _ip("-n", space, "addr", "add", f"{self.address(node_id)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node_id in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "del", self._space(node_id)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def address(self, node_id: int) -> str:
        """IPv4 address of a node, or of CLIENTS."""
        return f"{self._prefix}.{node_id}"

    def wrapper(self, node_id: int) -> tuple[str, ...]:
        """The beginning of a command line that runs a command there."""
        return ("ip", "netns", "exec", self._space(node_id))

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Whatever `one` sends to `other` is lost, and the other way round unless `one_way`."""
        self._lose(one, other)
        if not one_way:
            self._lose(other, one)

    def isolate(self, node_id: int, *, from_clients: bool = True) -> None:
        """Cuts all links of a node."""
        for other in range(1, self.count + 1):
            if other != node_id:
                self.cut(node_id, other)
        if from_clients:
            self._lose(node_id, CLIENTS)

    def mend(self) -> None:
        """All links are whole again."""
        for node_id in range(1, self.count + 1):
            _ip("-n", self._space(node_id), "neigh", "flush", "nud", "permanent", "dev", "eth0")

    def _lose(self, sender: int, receiver: int) -> None:
        where = ("neigh", "replace", self.address(receiver), "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
        _ip("-n", self._space(sender), *where)

    def _space(self, node_id: int) -> str:
        return f"{self._name}-{node_id}"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
