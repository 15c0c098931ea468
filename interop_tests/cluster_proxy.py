"""A TCP proxy before all nodes of a cluster whose links can be cut: `python -m interop_tests.cluster_proxy`, a process.

It is told what to do by lines of JSON on its standard input, and answers each by a line; it ends with that input.

    {"listen": [node, port]}                    forwards a port of its own to 127.0.0.1:port; answers that port's number
    {"process": [node, pid]}                    connections of this process are that node's
    {"cut": [sender, receiver]}                 what `sender` sends no longer reaches `receiver`
    {"mend": []}                                all links are whole

A connection comes from the node whose process owns the other end of it, which /proc tells on Linux; whoever is no node
is CLIENTS. Each direction of a connection can be held up alone: its bytes and its end wait, as they would with a sender
that sends again and again into a cut cable. A new connection needs both directions, and hangs until it has them.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

CLIENTS = 254
"""Whoever connects and is no node."""

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65_536
BACKLOG = 512
_TO_RESET = struct.pack("ii", 1, 0)

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_STATE = 0xFFFFFFFF
_ANY = (0xFFFFFFFF, 0xFFFFFFFF)
_HEADER_BYTES = 16
# Header; family, state, timer, retransmissions; the socket's addresses; expiry, two queues, user.
_INODE_AT = _HEADER_BYTES + 4 + 48 + 16


def owner_of(source_port: int, target_port: int, pids: dict[int, int]) -> int:
    """Node id of the process that owns the connection between two ports of this machine; CLIENTS for any other process.

    Args:
        pids: process ids by node id, of processes that this user may look into.
    """
    inode = _inode_by_diag(source_port, target_port) or _inode_by_table(source_port, target_port)
    link = f"socket:[{inode}]"
    for node_id, pid in pids.items():
        # Processes and files end while one looks.
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(entry.path) == link:
                        return node_id
    return CLIENTS


def _inode_by_diag(source_port: int, target_port: int) -> int:
    """Inode of the connected socket, as the kernel says it of one socket (sock_diag(7)); 0 when it does not."""
    place = struct.pack(">HH", source_port, target_port) + 2 * (socket.inet_aton(LOOPBACK) + bytes(12))
    wanted = (
        struct.pack("=BBxxI", socket.AF_INET, socket.IPPROTO_TCP, _ANY_STATE) + place + struct.pack("=III", 0, *_ANY)
    )
    header = struct.pack("=IHHII", _HEADER_BYTES + len(wanted), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.send(header + wanted)
            answer = kernel.recv(8192)
        _, kind = struct.unpack_from("=IH", answer)
        return int(struct.unpack_from("=I", answer, _INODE_AT)[0]) if kind == _SOCK_DIAG_BY_FAMILY else 0
    except (OSError, struct.error):
        return 0


def _inode_by_table(source_port: int, target_port: int) -> int:
    """The same from the table of all sockets: tens of milliseconds where there are many."""
    local, remote = f":{source_port:04X}", f":{target_port:04X}"
    # Java's sockets are of IPv6, whatever the address.
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(local) and fields[2].endswith(remote):
                    return int(fields[9])
    return 0


class Links:
    """Directions of links that are not cut, by sender and receiver: node ids, and CLIENTS."""

    def __init__(self) -> None:
        self._whole: dict[tuple[int, int], asyncio.Event] = defaultdict(_set_event)

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing of `sender` reaches `receiver`."""
        self._whole[sender, receiver].clear()

    def mend(self) -> None:
        """Everything reaches everybody."""
        for whole in self._whole.values():
            whole.set()

    def is_whole(self, sender: int, receiver: int) -> bool:
        """True unless this direction is cut."""
        return self._whole[sender, receiver].is_set()

    async def wait_until_whole(self, sender: int, receiver: int) -> None:
        """Until this direction is not cut."""
        await self._whole[sender, receiver].wait()

    async def wait_until_connected(self, one: int, other: int) -> None:
        """Until neither direction is cut."""
        while not (self.is_whole(one, other) and self.is_whole(other, one)):
            await self.wait_until_whole(one, other)
            await self.wait_until_whole(other, one)


class Proxy:
    """Forwards connections to nodes, along links."""

    def __init__(self) -> None:
        self.links = Links()
        self.pids: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []

    async def listen(self, node_id: int, target_port: int) -> int:
        """Takes connections to a node; returns the port that was opened for it."""
        own_port = 0

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                source_port = writer.get_extra_info("peername")[1]
                source = owner_of(source_port, own_port, self.pids)
                await self._serve(reader, writer, source, node_id, target_port)
            except OSError:
                _reset(writer)

        server = await asyncio.start_server(connected, LOOPBACK, 0, limit=CHUNK_BYTES, backlog=BACKLOG)
        own_port = int(server.sockets[0].getsockname()[1])
        self._servers.append(server)
        return own_port

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int, target: int, target_port: int
    ) -> None:
        await self.links.wait_until_connected(source, target)
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, target_port, limit=CHUNK_BYTES)
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._pump(reader, far_writer, source, target), self._pump(far_reader, writer, target, source)
        )
        for one in (writer, far_writer):
            one.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: int, receiver: int
    ) -> None:
        """Carries one direction to its end; a connection that breaks off breaks off at the other end too."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self.links.wait_until_whole(sender, receiver)
                writer.write(data)
                await writer.drain()
            await self.links.wait_until_whole(sender, receiver)
            writer.write_eof()
        except OSError:
            await self.links.wait_until_whole(sender, receiver)
            _reset(writer)

    async def obey(self, command: dict[str, list[int]]) -> Any:
        """Does what one line says."""
        ((word, values),) = command.items()
        if word == "listen":
            return await self.listen(*values)
        if word == "process":
            self.pids[values[0]] = values[1]
        elif word == "cut":
            self.links.cut(*values)
        elif word == "mend":
            self.links.mend()
        else:
            raise ValueError(f"unknown command {word!r}")
        return None


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection as a process does that is gone."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _TO_RESET)
    writer.transport.abort()


async def _obey_input() -> None:
    proxy = Proxy()
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        print(json.dumps(await proxy.obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(_obey_input())
