"""Peers: carries raft's messages between this node and the other nodes of the quorum.

What `RaftCore` sends is one-way and may be lost; on the wire it is requests and their responses. A request of ours goes
out over a link to its node, and the response comes back as a message. A request of another node waits here for the
answer that the state machine sends to it, at once or, for a Fetch, when there is something to fetch.

A link has two connections: a Fetch may wait at the leader for half a second, and votes must not wait behind it. On each
the newest message of a kind replaces one that could not be sent yet: what raft said before is out of date.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import trio

from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable, OpenStream, VersionTooOld
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.output import Envelope
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft_wire import (
    ENDPOINTS_SINCE,
    PRE_VOTE_SINCE,
    Belief,
    Refusal,
    Request,
    Response,
    VoterRequest,
    address_in_response,
    error_of_response,
    leader_of_response,
    message_from_request,
    message_from_response,
    message_from_voter_response,
    name_leaders_address,
    request_for_wire,
    response_for_wire,
)
from pykbroker.controller.snapshot_exchange import SnapshotUnavailable, download_snapshot, snapshot_response
from pykbroker.controller.voter_requests import ProbeFailed
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from pykbroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

log = logging.getLogger(__name__)

KRAFT_VERSION = "kraft.version"
NEWEST_VERSION = 1 << 15
CONNECT_BACKOFF_MS = 50
"""Pause after a request that failed: as Kafka's `controller.quorum.retry.backoff.ms`, and a little more."""

ANSWER_SLACK_MS = 1000
"""How much longer than it wants to wait a Fetch of another node is kept, if the state machine does not answer it."""

_ANSWER_TO: dict[type, type] = {
    raft.VoteRequest: raft.VoteResponse,
    raft.BeginQuorumEpochRequest: raft.BeginQuorumEpochResponse,
    raft.EndQuorumEpochRequest: raft.EndQuorumEpochResponse,
    raft.FetchRequest: raft.FetchResponse,
}

_EXPECTED = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)
"""What a node may well answer while leaders come and go."""

_EXPECTED_OF_VOTERS = _EXPECTED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""The same of requests about voters, which are made again after a while."""


class QuorumNode(Protocol):
    """The part of `ControllerNode` that is used here."""

    def step(self, message: raft.Message | local.LocalMessage) -> None: ...

    def known_leader(self) -> tuple[int, int]: ...

    @property
    def log_start(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...

    def snapshot_slice(self, snapshot: OffsetAndEpoch, position: int, size_max: int) -> tuple[int, bytes] | None: ...

    def request(self, message: local.LocalMessage) -> None: ...


class _Waiter:
    """A request of another node that has no answer yet."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Response | None = None


class Peers:
    """See the module's text. Give `send` to the node as its way out, then `attach` it, then `run`.

    Args:
        node_id: this node.
        cluster_id: named in every request; a node of another cluster is refused.
        voters: where the voters listen for one another, by node id.
        open_stream: connects.
        software_version: of this software.
        request_timeout_ms: Kafka's `controller.quorum.request.timeout.ms`.
        fetch_wait_max_ms: how long the state machine keeps a Fetch of another node.
        snapshot_piece_bytes: Kafka's `controller.quorum.fetch.snapshot.max.bytes`.
        bootstrap: servers that may know the leader; raft names them -2, -3, ...
        endpoints: where this node listens for the others.
        listener_name: by which voters are dialled that the log names.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        voters: Mapping[int, NodeAddress],
        open_stream: OpenStream,
        *,
        software_version: str,
        request_timeout_ms: int = 2000,
        fetch_wait_max_ms: int = 500,
        snapshot_piece_bytes: int = 1 << 20,
        bootstrap: Sequence[NodeAddress] = (),
        endpoints: Sequence[VoterEndpoint] = (),
        listener_name: str = "CONTROLLER",
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._request_timeout_ms = request_timeout_ms
        self._fetch_wait_max_ms = fetch_wait_max_ms
        self._snapshot_piece_bytes = snapshot_piece_bytes
        self._node: QuorumNode
        self._waiters: dict[tuple[int, type], _Waiter] = {}
        # Voters that did not answer the last request to them.
        self._silent: set[int] = set()
        # What was wrong with the last request of a kind to a node, where that is worth a line in the log.
        self._complaints: dict[tuple[int, str], ErrorCode] = {}
        self._open_stream = open_stream
        self._software_version = software_version
        self._endpoints = endpoints
        self.listener_name = listener_name
        self._configured = {**voters, **dict(zip(range(-2, -2 - len(bootstrap), -1), bootstrap, strict=True))}
        self._voters = VoterSet(())
        # Where leaders said that they listen: it may be newer than what the voters' record says.
        self._leaders: dict[int, NodeAddress] = {}
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        self._nursery: trio.Nursery | None = None

    def attach(self, node: QuorumNode) -> None:
        """Says whom to hand messages to. Until then nothing may be sent."""
        self._node = node

    def send(self, envelope: Envelope) -> None:
        """Takes a message of this node: an answer for who waits for it, or a request for the link to a voter.

        What has nobody to go to is dropped, as raft allows.
        """
        message = envelope.message
        assert not isinstance(message, raft.UpdateVoterResponse), "that answer is `VoterRequests`'"
        if isinstance(message, Response):
            waiter = self._waiters.pop((envelope.destination, type(message)), None)
            if waiter is not None:
                waiter.answer = message
                waiter.done.set()
            return
        if self.address_of(envelope.destination) is not None:
            self._lane(envelope.destination, is_fetch=isinstance(message, raft.FetchRequest)).put(message)

    def set_voters(self, voters: VoterSet) -> None:
        """Takes note of who votes, and of where they listen if that is known.

        Who votes no longer may still lead, until that is committed: its address is kept.
        """
        for old in self._voters.ids:
            address = self.address_of(old)
            if voters.voter(old) is None and address is not None:
                self._leaders[old] = address
        self._voters = voters
        for voter in voters.voters:
            if voter.endpoints:
                self._leaders.pop(voter.key.node_id, None)

    def address_of(self, node_id: int) -> NodeAddress | None:
        """Where a node listens for the others, None if that is not known."""
        if node_id == self._node_id:
            return NodeAddress(*self._endpoints[0][1:]) if self._endpoints else self._configured.get(node_id)
        voter = self._voters.voter(node_id)
        endpoint = voter.endpoint(self.listener_name) if voter is not None else None
        recorded = self._configured.get(node_id) if endpoint is None else NodeAddress(endpoint.host, endpoint.port)
        return self._leaders.get(node_id, recorded)

    def learn(self, node_id: int, address: NodeAddress) -> None:
        """Takes note of where a leader says that it listens."""
        if node_id >= 0 and node_id != self._node_id and self.address_of(node_id) != address:
            self._leaders[node_id] = address

    def _lane(self, node_id: int, *, is_fetch: bool) -> _Lane:
        lane = self._lanes.get((node_id, is_fetch))
        if lane is None:
            lane = self._lanes[node_id, is_fetch] = _Lane(self, node_id)
            if self._nursery is not None:
                self._nursery.start_soon(lane.run)
        return lane

    def client(self, address: NodeAddress) -> NodeClient:
        """A client with a connection of its own."""
        client_id = f"raft-client-{self._node_id}"
        return NodeClient(address, self._open_stream, client_id=client_id, software_version=self._software_version)

    async def run(self) -> None:
        """Sends what there is to send, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for lane in list(self._lanes.values()):
                nursery.start_soon(lane.run)
            await trio.sleep_forever()

    def are_gone(self, voters: Collection[int]) -> bool:
        """Whether so many of these voters did not answer when asked last that the others are no majority."""
        return 2 * sum(voter not in self._silent for voter in voters) <= len(voters)

    async def answer(self, request: Any, api_version: int = NEWEST_VERSION) -> Any:
        """The response to a KRaft request of another node; None if there is none and the connection should close.

        `api_version`: in which the response will be written.
        """
        try:
            known = Belief(*self._node.known_leader(), self._node.log_start)
            asked = message_from_request(request, self._node_id, self._cluster_id, known)
        except Refusal as refusal:
            log.warning("refusing %s: %s", type(request).__name__, refusal)
            return self._with_address(request, refusal.response, leader_of_response(refusal.response), api_version)
        if isinstance(request, BeginQuorumEpochRequest):
            for endpoint in request.leader_endpoints:
                if endpoint.name == self.listener_name:
                    self.learn(asked.source, NodeAddress(endpoint.host, endpoint.port))
        key = (asked.source, _ANSWER_TO[type(asked)])
        # Whoever asks again does not wait for the first answer: that connection is gone.
        waiter = self._waiters[key] = _Waiter()
        try:
            self._node.step(asked)
            limit_ms = self._request_timeout_ms
            if isinstance(asked, raft.FetchRequest):
                limit_ms = self._fetch_wait_max_ms + ANSWER_SLACK_MS
            with trio.move_on_after(limit_ms / 1000):
                await waiter.done.wait()
        finally:
            if self._waiters.get(key) is waiter:
                del self._waiters[key]
        if waiter.answer is None:
            return None
        response = response_for_wire(request, waiter.answer)
        return self._with_address(request, response, waiter.answer.leader_id, api_version)

    def _with_address(self, request: Any, response: Any, leader_id: int, api_version: int) -> Any:
        """A response that says where the leader listens too, if that is known and the version can say it."""
        address = self.address_of(leader_id) if leader_id >= 0 else None
        if address is not None and api_version >= ENDPOINTS_SINCE[type(request).__name__]:
            name_leaders_address(response, leader_id, *address)
        return response

    async def answer_snapshot(
        self, request: FetchSnapshotRequest, api_version: int = NEWEST_VERSION
    ) -> FetchSnapshotResponse:
        """The response to another node that fetches a checkpoint of ours."""
        node = self._node
        known = node.known_leader()
        response = snapshot_response(request, self._cluster_id, known, node.is_leader, node.snapshot_slice)
        if response.topics:
            asked, piece = request.topics[0].partitions[0], response.topics[0].partitions[0]
            if piece.error_code == ErrorCode.NONE:
                replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
                node.request(local.SnapshotServed(replica))
            self._with_address(request, response, known[0], api_version)
        return response

    async def download(self, leader_id: int, snapshot: OffsetAndEpoch, replica: ReplicaKey) -> bytes:
        """The leader's checkpoint file.

        Raises:
            SnapshotUnavailable, NodeUnreachable, ProtocolError: it did not come.
        """
        address = self.address_of(leader_id)
        if address is None:
            raise SnapshotUnavailable(f"node {leader_id} leads, but nobody told where it listens")
        client = self.client(address)
        try:
            return await download_snapshot(
                client,
                snapshot,
                self._node.known_leader()[1],
                replica,
                self._cluster_id,
                self._request_timeout_ms,
                max_bytes=self._snapshot_piece_bytes,
                on_piece=lambda: self._node.request(local.SnapshotBytesFetched(leader_id)),
            )
        except SnapshotUnavailable as refusal:
            if refusal.known is not None:
                known_leader, epoch = refusal.known
                self._node.step(raft.FetchResponse(leader_id, epoch, known_leader, error=refusal.error))
            raise
        finally:
            with trio.CancelScope(shield=True):
                await client.close()

    async def probe(self, voter: Voter) -> tuple[int, int] | None:
        """The kraft.versions that the node at a voter's address can run, None if it names none.

        Raises:
            ProbeFailed: it does not answer.
        """
        endpoint = voter.endpoint(self.listener_name)
        if endpoint is None:
            raise ProbeFailed(f"node {voter.key.node_id} has no listener {self.listener_name}")
        client = self.client(NodeAddress(endpoint.host, endpoint.port))
        try:
            return (await client.features(self._request_timeout_ms)).get(KRAFT_VERSION)
        except (NodeUnreachable, ProtocolError) as error:
            raise ProbeFailed(str(error)) from error
        finally:
            with trio.CancelScope(shield=True):
                await client.close()

    async def ask(self, voter: int, client: NodeClient, asked: Request | VoterRequest) -> None:
        """One request of ours to a voter, and what its response says to the node.

        Raises:
            NodeUnreachable, ProtocolError: it has no usable response.
        """
        request = request_for_wire(asked, self._cluster_id, self._endpoints, change_timeout_ms=self._request_timeout_ms)
        is_pre_vote = isinstance(asked, raft.VoteRequest) and asked.is_pre_vote
        try:
            response = await client.request(request, self._request_timeout_ms, PRE_VOTE_SINCE if is_pre_vote else 0)
        except VersionTooOld:
            error = ErrorCode.UNSUPPORTED_VERSION
            self._node.step(raft.VoteResponse(voter, -1, raft.NO_LEADER, False, True, error))
            return
        self._silent.discard(voter)
        self._complain(voter, asked, error_of_response(response))
        leader = address_in_response(response)
        if leader is not None:
            self.learn(leader[0], NodeAddress(*leader[1:]))
        message: raft.Message | None
        if isinstance(asked, raft.UpdateVoterRequest | raft.AddVoterRequest | raft.RemoveVoterRequest):
            message = message_from_voter_response(asked, voter, response)
        else:
            message = message_from_response(asked, voter, response)
        if message is not None:
            self._node.step(message)

    def _complain(self, voter: int, asked: Request | VoterRequest, error: ErrorCode) -> None:
        """Says once, not at every attempt, that a node refuses what it should not."""
        kind = type(asked).__name__
        said = {known for (node_id, _), known in self._complaints.items() if node_id == voter}
        self._complaints.pop((voter, kind), None)
        if error in (_EXPECTED_OF_VOTERS if isinstance(asked, VoterRequest) else _EXPECTED):
            return
        self._complaints[voter, kind] = error
        if error in said:
            return
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            log.error("node %d of the quorum belongs to another cluster than this node, %s", voter, self._cluster_id)
        elif error is ErrorCode.INVALID_VOTER_KEY:
            log.warning("node %d of the quorum says that it is not the voter that it is taken for", voter)
        else:
            log.error("node %d of the quorum answers a %s with %s", voter, kind, error.name)

    def tell_unreachable(self, voter: int, *, is_gone: bool) -> None:
        """A request to a voter had no answer."""
        self._silent.add(voter)
        self._node.step(local.Unreachable(voter, is_gone))


class _Lane:
    """One connection to a voter, and the newest unsent message of each kind."""

    def __init__(self, peers: Peers, voter: int) -> None:
        self._peers = peers
        self._voter = voter
        self._client: NodeClient | None = None
        self._unsent: dict[type, Request | VoterRequest] = {}
        self._filled = trio.Event()
        self._has_failed = False

    def put(self, message: Request | VoterRequest) -> None:
        """Takes the place of an unsent message of its kind."""
        self._unsent.pop(type(message), None)
        self._unsent[type(message)] = message
        self._filled.set()

    async def run(self) -> None:
        """Sends, one after the other, what comes."""
        try:
            while True:
                await self._filled.wait()
                self._filled = trio.Event()
                while self._unsent:
                    await self._send_next()
        finally:
            with trio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send_next(self) -> None:
        kind = next(iter(self._unsent))
        message = self._unsent.pop(kind)
        address = self._peers.address_of(self._voter)
        if address is None:
            return
        if self._client is None or self._client.address != address:
            await self._close()
            self._client = self._peers.client(address)
        try:
            await self._peers.ask(self._voter, self._client, message)
        except (NodeUnreachable, ProtocolError) as error:
            # Said once per failure, not per attempt: a node that is away is asked several times a second.
            if not self._has_failed:
                log.warning("node %d of the quorum: %s", self._voter, error)
            is_first, self._has_failed = not self._has_failed, True
            if isinstance(error, NodeUnreachable):
                self._peers.tell_unreachable(self._voter, is_gone=error.is_refused)
            if not is_first:
                await trio.sleep(CONNECT_BACKOFF_MS / 1000)
        else:
            if self._has_failed:
                log.info("node %d of the quorum answers again", self._voter)
            self._has_failed = False
