"""A controller node in a test: by default on a file system in memory, under trio's jumping clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import Endpoint
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.transport import Transport
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.run_in_thread import RunInThread
from tests.controller.world import FewConfigs, directory_id

WALL_CLOCK_MS = 1_700_000_000_000
DATA = "/data"


def make_node(
    filesystem: FileSystem,
    *,
    data_directory: str = DATA,
    seed: int = 3,
    node_id: int = 1,
    transport: Transport | None = None,
    run_in_thread: RunInThread = trio.to_thread.run_sync,
    **settings: Any,
) -> ControllerNode:
    filesystem.make_directory(data_directory)
    return ControllerNode(
        ControllerSettings(
            node_id, data_directory, VoterSet([ReplicaKey(node_id)]), partition_count_default=3, **settings
        ),
        filesystem=filesystem,
        config_rules=FewConfigs(),
        random=random.Random(seed),
        wall_clock_ms=lambda: WALL_CLOCK_MS + int(trio.current_time() * 1000),
        run_in_thread=run_in_thread,
        transport=transport,
    )


@asynccontextmanager
async def running(
    filesystem: FileSystem,
    *,
    is_clean: bool = False,
    before_run: Callable[[ControllerNode], None] = lambda node: None,
    stops_cleanly: bool = True,
    **settings: Any,
) -> AsyncIterator[ControllerNode]:
    """A node that is open and runs. At the end it is closed, or dropped as by kill -9."""
    node = make_node(filesystem, **settings)
    node.open(is_clean=is_clean)
    before_run(node)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        nursery.cancel_scope.cancel()
    if stops_cleanly:
        node.close()


async def register_broker(
    node: ControllerNode,
    incarnation: int = 1,
    *,
    is_clean_restart: bool = False,
    features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
) -> int:
    return await node.submit(
        RegisterBroker(
            broker_id=1,
            incarnation_id=bytes([incarnation]) * 16,
            endpoints=[Endpoint("PLAINTEXT", "localhost", 9092, 0)],
            features=features,
            log_dirs=[directory_id(1)],
            is_fenced=False,
            is_clean_restart=is_clean_restart,
        ),
        timeout_ms=1000,
    )
