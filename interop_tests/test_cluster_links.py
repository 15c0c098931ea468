"""The links themselves: what is cut looks like a pulled cable, in network namespaces and in the proxy alike."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from interop_tests.clients import wait_until
from interop_tests.cluster_network import NETWORKS, Network

pytestmark = [pytest.mark.area("suite"), pytest.mark.client("none"), pytest.mark.fault("none")]

NOBODY_COMES_S = 0.3
# A machine that has sent into a cut cable tries again after 1, 3, 7 seconds.
MENDED_S = 20.0

AGENT = """
import os, socket, sys, threading
ends = []
def say(text):
    os.write(1, (text + "\\n").encode())  # `print` of two threads may mix their lines
def take(end):
    try:
        while text := end.recv(1000):
            say("got " + text.decode())
        say("end")
    except OSError:
        say("end")
def use(end):
    ends.append(end)
    threading.Thread(target=take, args=[end], daemon=True).start()
def accept(server):
    while True:
        use(server.accept()[0])
        say("taken")
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
threading.Thread(target=accept, args=[server], daemon=True).start()
say("ready")
for line in sys.stdin:
    word, *rest = line.split()
    if word == "connect":
        try:
            use(socket.create_connection((rest[0], int(rest[1])), 60))
        except OSError as error:
            say("refused")
    else:
        ends[-1].sendall(rest[0].encode())
"""
"""A node that connects and sends as it is told, and tells what it gets; every connection is the newest."""


class Agent:
    """A process in the place of a node; `told` is what it has said."""

    def __init__(self, network: Network, node_id: int) -> None:
        self._network = network
        own = network.addresses(node_id)[0]
        command = [*network.wrapper(node_id), sys.executable, "-c", AGENT, own.host, str(own.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        network.started(node_id, self.process.pid)
        self.told: list[str] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        self.wait_for("ready")

    def connect(self, node_id: int) -> None:
        """To another node; `wait_for` tells when it is done."""
        other = self._network.addresses(node_id)[0]
        self._tell(f"connect {other.host} {other.public_port}")

    def send(self, text: str) -> None:
        """Along the newest connection."""
        self._tell(f"send {text}")

    def wait_for(self, text: str, timeout_s: float = MENDED_S) -> None:
        """Until it has said this."""
        wait_until(lambda: text in self.told, f"{text!r}, not only {self.told}", timeout_s=timeout_s)

    def close(self) -> None:
        """kill -9."""
        self.process.kill()
        self._thread.join()
        self.process.communicate()

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(line.strip())


@pytest.fixture(params=[*NETWORKS])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    kind = NETWORKS[request.param]
    if obstacle := kind.obstacle():
        pytest.skip(obstacle)
    with kind(3) as network:
        yield network


@pytest.fixture
def agents(network: Network) -> Iterator[dict[int, Agent]]:
    """Nodes 1, 2 and 3, of which 1 is connected to 2, and 3 to 1."""
    agents = {node_id: Agent(network, node_id) for node_id in (1, 2, 3)}
    for one, other in ((1, 2), (3, 1)):
        agents[one].connect(other)
        agents[other].wait_for("taken")
    yield agents
    for agent in agents.values():
        agent.close()


def test_link_cut_one_way(network: Network, agents: dict[int, Agent]) -> None:
    """A link cut in one direction holds up that direction alone; mended, it delivers the bytes that it held up."""
    agents[2].send("before")
    agents[1].wait_for("got before")
    network.cut(2, 1, one_way=True)
    agents[2].send("held")
    agents[3].send("elsewhere")
    agents[1].wait_for("got elsewhere")
    time.sleep(NOBODY_COMES_S)
    assert "got held" not in agents[1].told
    network.mend()
    agents[1].wait_for("got held")
    assert not any("end" in agent.told for agent in agents.values())


def test_other_direction_of_a_link_cut_one_way(network: Network, agents: dict[int, Agent]) -> None:
    """A node to which nothing gets is still heard."""
    network.cut(1, 3, one_way=True)
    agents[3].send("heard")
    agents[1].wait_for("got heard")
    agents[1].send("held")
    time.sleep(NOBODY_COMES_S)
    assert "got held" not in agents[3].told
    network.mend()
    agents[3].wait_for("got held")


@pytest.mark.parametrize("one_way", [False, True])
def test_new_connection_over_a_cut_link(one_way: bool, network: Network, agents: dict[int, Agent]) -> None:
    """It hangs, whichever direction is cut, and is there when the link is mended."""
    network.cut(2, 3, one_way=one_way)
    agents[3].connect(2)
    time.sleep(NOBODY_COMES_S)
    assert agents[2].told.count("taken") == 1
    assert "refused" not in agents[3].told
    network.mend()
    wait_until(lambda: agents[2].told.count("taken") == 2, "the connection", timeout_s=MENDED_S)
    agents[3].send("there")
    agents[2].wait_for("got there")


def test_death_behind_a_cut_link(network: Network, agents: dict[int, Agent]) -> None:
    """A node that dies alone is not noticed before the link is mended."""
    network.isolate(2)
    agents[2].process.kill()
    agents[2].process.wait()
    time.sleep(NOBODY_COMES_S)
    assert "end" not in agents[1].told
    network.mend()
    agents[1].send("anybody")
    agents[1].wait_for("end")


def test_isolated_node(network: Network, agents: dict[int, Agent]) -> None:
    """Neither nodes nor this machine get anything of an isolated node; with its clients left to it, they do."""
    own = network.addresses(1)[0]

    def hears(timeout_s: float) -> bool:
        taken = agents[1].told.count("taken")
        try:
            with socket.create_connection((own.host, own.public_port), timeout_s) as end:
                end.settimeout(timeout_s)
                wait_until(lambda: agents[1].told.count("taken") > taken, timeout_s=timeout_s)
                agents[1].send("hello")
                return bool(end.recv(1))
        except (OSError, AssertionError):
            return False

    network.isolate(1)
    assert not hears(NOBODY_COMES_S)
    network.mend()
    network.isolate(1, from_clients=False)
    assert hears(MENDED_S)
    agents[3].send("held")
    time.sleep(NOBODY_COMES_S)
    assert "got held" not in agents[1].told
