"""Host: the machine as the broker uses it. The simulation (tests/simulation) passes an implementation in memory.

The server reads the wall clock, uses the data directory, opens sockets, starts threads and draws random numbers only
through it. (Other files are read directly: the configuration, key stores, /proc.) Durations are measured by trio's
clock, which the simulation replaces as well. So a whole cluster can run in one thread in simulated time, and a run can
be repeated byte by byte.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.node_client import OpenStream
from pykbroker.logstore.filesystem import FileSystem, OsFileSystem
from pykbroker.named_tuple import NamedTuple
from pykbroker.network.listening_socket import ListeningSocket
from pykbroker.wall_clock import SystemWallClock, WallClock

if TYPE_CHECKING:
    from pykbroker.controller.node import NodeObserver
    from pykbroker.run_in_thread import RunInThread
    from pykbroker.security.tls.node_tls import NodeTls


class Host(NamedTuple):
    """File system, clocks, random numbers, network and threads of a broker.

    Attributes:
        filesystem: file system of the data directory.
        clock: the time of day.
        random: generator for ids, placement and the spread of timeouts; never for secrets.
        open_stream: connects to another node; raises OSError.
        bind: binds a listener's address; raises `listener.BindError`.
        run_in_thread: runs blocking work in a thread while other tasks go on; raises the exceptions of the work.
        tls: certificates of the node, from its files; None for a node without TLS.
        quorum_observer: receives the events of this node in the metadata quorum; for simulations.
        secrets: random bytes for nonces and salts.
    """

    filesystem: FileSystem
    clock: WallClock
    random: random.Random
    open_stream: OpenStream
    bind: Callable[[str, int], Sequence[ListeningSocket]]
    run_in_thread: RunInThread
    quorum_observer: NodeObserver | None = None
    secrets: Callable[[int], bytes] = os.urandom
    tls: NodeTls | None = None

    @classmethod
    def real(cls) -> Host:
        """The machine that this process runs on."""
        from pykbroker.network.listener import bind

        return cls(
            OsFileSystem(),
            SystemWallClock(),
            random.Random(),  # noqa: S311  not for secrets
            trio.open_tcp_stream,
            bind,
            trio.to_thread.run_sync,
        )
