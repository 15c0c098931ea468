"""Host: all that a broker takes from its machine. The simulation (tests/simulation) passes one that is not real.

Nothing else in the server reads a clock, opens a file or a socket, starts a thread or takes chance from elsewhere;
durations are trio's, whose clock a simulation replaces too. A whole cluster can so run in one thread, in time of its
own, and repeat itself to the byte.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from pykbroker.controller.node_client import OpenStream
from pykbroker.logstore.filesystem import FileSystem, OsFileSystem
from pykbroker.network.listening import Listening
from pykbroker.wall_clock import SystemWallClock, WallClock

if TYPE_CHECKING:
    from pykbroker.controller.node import NodeObserver


class Host(NamedTuple):
    """See the module's text.

    Attributes:
        filesystem: where the data directory is.
        clock: the time of day.
        random: for ids, placement and the spread of timeouts; nothing secret comes from it.
        open_stream: connects to another node; raises OSError.
        bind: reserves a listener's address; raises `listener.BindError`.
        run_in_thread: runs blocking work without holding up the other tasks; raises what the work raises.
        quorum_observer: is told what this node does in the metadata quorum; for simulations.
    """

    filesystem: FileSystem
    clock: WallClock
    random: random.Random
    open_stream: OpenStream
    bind: Callable[[str, int], Sequence[Listening]]
    run_in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    quorum_observer: NodeObserver | None = None

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
