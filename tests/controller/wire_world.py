"""Nodes of a quorum that speak KRaft's bytes to one another over connections in memory."""

from __future__ import annotations

import importlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.node_client import NodeAddress, OpenStream
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.peers import Peers
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.handlers.add_raft_voter import handle_add_raft_voter
from pykbroker.handlers.remove_raft_voter import handle_remove_raft_voter
from pykbroker.handlers.update_raft_voter import handle_update_raft_voter
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.fields import response_class
from pykbroker.protocol.framing import FrameReader
from pykbroker.protocol.headers import read_request_header, response_header
from pykbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from pykbroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from tests.controller.nodes import DATA, WALL_CLOCK_MS
from tests.controller.world import FewConfigs
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.in_place import run_in_place

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
SNAPSHOT_PIECE_BYTES = 1000
SERVED = {
    ApiKey.FETCH: (4, 17, 12),
    ApiKey.API_VERSIONS: (0, 4, 3),
    ApiKey.VOTE: (0, 2, 0),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1, 1),
    ApiKey.FETCH_SNAPSHOT: (0, 1, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0, 0),
}
"""Lowest, highest and first flexible version of what a controller's port has here."""


VOTER_HANDLERS: dict[int, Any] = {
    ApiKey.ADD_RAFT_VOTER: handle_add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: handle_remove_raft_voter,
    ApiKey.UPDATE_RAFT_VOTER: handle_update_raft_voter,
}


class World:
    """Nodes by id, each on a disk of its own; connections to and from those in `cut_off` fail."""

    def __init__(self, nursery: trio.Nursery, voters: tuple[int, ...], **settings: Any) -> None:
        self.nursery = nursery
        self.settings = settings
        self.voters = voters
        self.disks = {node_id: FakeFileSystem() for node_id in voters}
        self.nodes: dict[int, ControllerNode] = {}
        self.peers: dict[int, Peers] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.cut_off: set[int] = set()
        self.moved: dict[int, int] = {}
        self.snapshot_pieces: list[int] = []
        self.snapshot_piece_s = 0.0
        self.streams: list[tuple[int, int, trio.abc.Stream]] = []

    async def start(self, node_id: int, **settings: Any) -> ControllerNode:
        """A voter, or an observer if the id is not one of the voters'."""

        disk = self.disks.setdefault(node_id, FakeFileSystem())
        disk.make_directory(DATA)
        addresses = {voter: NodeAddress("memory", voter) for voter in self.voters}
        links = PeerLinks(
            node_id,
            CLUSTER,
            addresses,
            self.opener(node_id),
            software_version="1",
            endpoints=settings.get("endpoints", ()),
            snapshot_piece_bytes=SNAPSHOT_PIECE_BYTES,
        )
        node = ControllerNode(
            ControllerSettings(node_id, DATA, VoterSet(map(ReplicaKey, self.voters)), **{**self.settings, **settings}),
            filesystem=disk,
            config_rules=FewConfigs(),
            random=random.Random(node_id),
            wall_clock_ms=lambda: WALL_CLOCK_MS + int(trio.current_time() * 1000),
            transport=links,
            run_in_thread=run_in_place,
        )
        peers = Peers(node, links)
        node.open()
        self.nodes[node_id], self.peers[node_id] = node, peers
        self.scopes[node_id] = await self.nursery.start(self.run, node, peers)
        return node

    def opener(self, node_id: int) -> OpenStream:
        """Function by which a node connects: a port is the id of a node, unless `moved` maps it to another."""

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            there = self.moved.get(port, port)
            if there not in self.peers or {node_id, there} & self.cut_off:
                raise ConnectionRefusedError(f"node {there} is not there")
            ours, theirs = trio.testing.memory_stream_pair()
            self.streams += [(node_id, there, ours), (node_id, there, theirs)]
            self.nursery.start_soon(self.serve, there, theirs)
            return ours

        return open_stream

    async def run(self, node: ControllerNode, peers: Peers, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peers.run)
                nursery.start_soon(node.run)

    async def serve(self, node_id: int, stream: trio.abc.Stream) -> None:
        """A controller's port: one request after the other."""
        frames = FrameReader(1 << 20)
        flexible_from = {int(key): flexible for key, (_, _, flexible) in SERVED.items()}
        try:
            while True:
                while (frame := frames.next_frame()) is None:
                    room = frames.buffer()
                    received = await stream.receive_some(len(room))
                    room[: len(received)] = received
                    frames.received(len(received))
                    if not received:
                        return
                header = read_request_header(frame, flexible_from)
                api = ApiKey(header.api_key)
                module = importlib.import_module(f"pykbroker.protocol.messages.{api.name.lower()}")
                name = "".join(word.capitalize() for word in api.name.split("_")) + "Request"
                request, _ = decode_from(getattr(module, name), header.api_version, frame, header.body_position)
                if node_id not in self.peers:
                    return
                response: Any
                if isinstance(request, ApiVersionsRequest):
                    keys = [
                        ApiVersion(api_key=key, min_version=low, max_version=high)
                        for key, (low, high, _) in SERVED.items()
                    ]
                    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                    response = ApiVersionsResponse(api_keys=keys)
                    if header.api_version >= 4:
                        response.supported_features = [feature]
                elif header.api_key in VOTER_HANDLERS:
                    response = await VOTER_HANDLERS[header.api_key](self.context(node_id), request)
                elif isinstance(request, FetchSnapshotRequest):
                    await trio.sleep(self.snapshot_piece_s)
                    self.snapshot_pieces.append(request.max_bytes)
                    response = await self.peers[node_id].answer_snapshot(request, header.api_version)
                else:
                    response = await self.peers[node_id].answer(request, header.api_version)
                if response is None or node_id in self.cut_off or node_id not in self.nodes:
                    return
                assert isinstance(response, response_class(type(request)))
                is_flexible = header.api_version >= flexible_from[api] and api != ApiKey.API_VERSIONS
                reply = response_header(header.correlation_id, is_flexible) + encode(response, header.api_version)
                await stream.send_all(len(reply).to_bytes(4, "big") + reply)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    def context(self, node_id: int) -> Any:
        """The parts of a request context that handlers of voter requests use."""
        services = SimpleNamespace(
            controller=self.nodes[node_id],
            peers=self.peers[node_id],
            cluster_id=CLUSTER,
            config=SimpleNamespace(request_timeout_ms=5000, network=SimpleNamespace(controller_listener="CONTROLLER")),
        )
        return SimpleNamespace(services=services, require_cluster=lambda operation: None)

    async def cut(self, node_id: int) -> None:
        """Takes a node off the network."""
        self.cut_off.add(node_id)
        await self.hang_up(node_id)

    async def hang_up(self, node_id: int) -> None:
        """Breaks the connections from and to a node."""
        for one, other, stream in self.streams:
            if node_id in (one, other):
                await trio.aclose_forcefully(stream)

    def kill(self, node_id: int) -> None:
        """As kill -9 and a loss of power."""
        del self.nodes[node_id], self.peers[node_id]
        self.scopes.pop(node_id).cancel()
        self.disks[node_id].crash()

    async def wait_for_leader(self) -> ControllerNode:
        with trio.fail_after(30):
            while True:
                for node_id, node in self.nodes.items():
                    if node.is_leader and node_id not in self.cut_off and node.quorum_state().high_watermark > 0:
                        return node
                await trio.sleep(0.05)


@asynccontextmanager
async def wire_world(*voters: int, **settings: Any) -> AsyncIterator[World]:
    """Voters that run, with these settings of a controller."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, voters, **settings)
        for node_id in voters:
            await world.start(node_id)
        yield world
        nursery.cancel_scope.cancel()
