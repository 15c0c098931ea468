"""PeerLinks: connections over which a node of the quorum sends raft's messages to the other nodes.

Messages between state machines are one-way and may be lost; on the wire they are requests and responses. A request of
this node is sent over the link to its destination, and its response is given to raft as a message. A request of another
node waits here until the state machine answers: at once, or in the case of a Fetch when there are new records.

A link has two connections, because a Fetch may wait at the leader for half a second, and votes must not wait behind it.
On each of them a message replaces an unsent older one of its kind, which is out of date.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from pykbroker.controller.fetch_snapshot import SnapshotUnavailable, download_snapshot
from pykbroker.controller.metadata.features import KRAFT_VERSION
from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable, OpenStream, VersionTooOld
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.output import Envelope
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft_wire import (
    PRE_VOTE_VERSION,
    Request,
    Response,
    VoterRequest,
    address_in_response,
    error_of_response,
    message_from_response,
    message_from_voter_response,
    request_for_wire,
)
from pykbroker.controller.transport import KRaftVersions, NoResponse, Step, Transport
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

CONNECT_BACKOFF_MS = 50
"""Pause in ms after the second and each further failed request: a little more than Kafka's quorum.retry.backoff.ms."""

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
"""Errors that are normal while the leader changes; they are not logged."""

_EXPECTED_OF_VOTERS = _EXPECTED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""Errors of requests about voters that are normal, because these requests are repeated; they are not logged."""


class _Waiter:
    """A request of another node that the state machine has not answered yet."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Response | None = None


class PeerLinks(Transport):
    """Links to the other nodes. Requests are sent while `run` runs.

    Args:
        node_id: id of this node.
        cluster_id: cluster id in every request; a node of another cluster refuses it.
        voters: addresses of the configured voters, by node id.
        request_timeout_ms: `controller.quorum.request.timeout.ms`.
        snapshot_piece_bytes: `controller.quorum.fetch.snapshot.max.bytes`.
        bootstrap: `controller.quorum.bootstrap.servers`; their node ids in raft are -2, -3, ...
        endpoints: listeners of this node for other nodes.
        listener_name: name of the listener whose endpoint is used for voters of a VotersRecord.
    """

    can_download = True

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        voters: Mapping[int, NodeAddress],
        open_stream: OpenStream,
        *,
        software_version: str,
        request_timeout_ms: int = 2000,
        snapshot_piece_bytes: int = 1 << 20,
        bootstrap: Sequence[NodeAddress] = (),
        endpoints: Sequence[VoterEndpoint] = (),
        listener_name: str = "CONTROLLER",
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.request_timeout_ms = request_timeout_ms
        self._snapshot_piece_bytes = snapshot_piece_bytes
        self._waiters: dict[tuple[int, type], _Waiter] = {}
        # Voters that did not respond to the last request.
        self._silent: set[int] = set()
        # (node id, kind of request) to the error of the last response, if it was logged.
        self._logged_errors: dict[tuple[int, str], ErrorCode] = {}
        self._open_stream = open_stream
        self._software_version = software_version
        self._endpoints = endpoints
        self.listener_name = listener_name
        self._configured = {**voters, **dict(zip(range(-2, -2 - len(bootstrap), -1), bootstrap, strict=True))}
        self._voters = VoterSet(())
        # Addresses of leaders from their own requests and responses; they may be newer than the VotersRecord.
        self._leaders: dict[int, NodeAddress] = {}
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        self._running: tuple[trio.Nursery, Step] | None = None

    def send(self, envelope: Envelope) -> None:
        """Passes an answer to the request that waits for it, and a request to the link to its destination.

        A request to an unknown address, and an answer for which no request waits, are dropped, as raft allows.
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
        """Sets the voters and their endpoints.

        A leader that is being removed leads until its removal is committed, so addresses of former voters are kept.
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
        """Address of a node's listener for other nodes; None if it is unknown."""
        if node_id == self.node_id:
            return NodeAddress(*self._endpoints[0][1:]) if self._endpoints else self._configured.get(node_id)
        voter = self._voters.voter(node_id)
        endpoint = voter.endpoint(self.listener_name) if voter is not None else None
        recorded = self._configured.get(node_id) if endpoint is None else NodeAddress(endpoint.host, endpoint.port)
        return self._leaders.get(node_id, recorded)

    def learn(self, node_id: int, address: NodeAddress) -> None:
        """Sets the address of a leader, from its own request or response."""
        if node_id >= 0 and node_id != self.node_id and self.address_of(node_id) != address:
            self._leaders[node_id] = address

    def _lane(self, node_id: int, *, is_fetch: bool) -> _Lane:
        lane = self._lanes.get((node_id, is_fetch))
        if lane is None:
            lane = self._lanes[node_id, is_fetch] = _Lane(self, node_id)
            if self._running is not None:
                nursery, step = self._running
                nursery.start_soon(lane.run, step)
        return lane

    def client(self, address: NodeAddress) -> NodeClient:
        """A new client with its own connection, which opens at the first request."""
        client_id = f"raft-client-{self.node_id}"
        return NodeClient(address, self._open_stream, client_id=client_id, software_version=self._software_version)

    @asynccontextmanager
    async def _own_client(self, address: NodeAddress) -> AsyncIterator[NodeClient]:
        """A client for the requests of one block, which raises NoResponse if there is no usable response."""
        client = self.client(address)
        try:
            yield client
        except (NodeUnreachable, ProtocolError) as error:
            raise NoResponse(str(error)) from error
        finally:
            with trio.CancelScope(shield=True):
                await client.close()

    async def run(self, step: Step) -> None:
        """Sends requests and passes their responses to `step`, until it is cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._running = nursery, step
                for lane in list(self._lanes.values()):
                    nursery.start_soon(lane.run, step)
                await trio.sleep_forever()
        finally:
            # A node resigns when it is closed, perhaps with a message to a voter that has no link yet.
            self._running = None

    def is_majority_silent(self, voters: Collection[int]) -> bool:
        """True if so many voters did not respond to their last request that the others are no majority."""
        return 2 * sum(voter not in self._silent for voter in voters) <= len(voters)

    async def answer_of(self, asked: Request, step: Step, timeout_ms: int) -> Response | None:
        """The state machine's answer to a request of another node; None if there is none within `timeout_ms`."""
        key = (asked.source, _ANSWER_TO[type(asked)])
        # A node that repeats a request no longer waits for the first answer: that connection has ended.
        waiter = self._waiters[key] = _Waiter()
        try:
            step(asked)
            with trio.move_on_after(timeout_ms / 1000):
                await waiter.done.wait()
        finally:
            if self._waiters.get(key) is waiter:
                del self._waiters[key]
        return waiter.answer

    async def download(
        self, leader_id: int, epoch: int, snapshot: OffsetAndEpoch, replica: ReplicaKey, step: Step
    ) -> bytes:
        address = self.address_of(leader_id)
        if address is None:
            raise NoResponse(f"the address of the leader, node {leader_id}, is not known")
        try:
            async with self._own_client(address) as client:
                return await download_snapshot(
                    client,
                    snapshot,
                    epoch,
                    replica,
                    self.cluster_id,
                    self.request_timeout_ms,
                    max_bytes=self._snapshot_piece_bytes,
                    on_piece=lambda: step(local.SnapshotBytesFetched(leader_id)),
                )
        except SnapshotUnavailable as refusal:
            if refusal.known is not None:
                known_leader, known_epoch = refusal.known
                step(raft.FetchResponse(leader_id, known_epoch, known_leader, error=refusal.error))
            raise NoResponse(str(refusal)) from refusal

    async def supported_versions(self, voter: Voter) -> KRaftVersions | None:
        endpoint = voter.endpoint(self.listener_name)
        if endpoint is None:
            raise NoResponse(f"node {voter.key.node_id} has no listener {self.listener_name}")
        async with self._own_client(NodeAddress(endpoint.host, endpoint.port)) as client:
            return (await client.features(self.request_timeout_ms)).get(KRAFT_VERSION)

    async def ask(self, voter: int, client: NodeClient, asked: Request | VoterRequest, step: Step) -> None:
        """Sends one request, and passes the message in its response to `step`.

        Raises:
            NodeUnreachable, ProtocolError: there is no usable response.
        """
        request = request_for_wire(asked, self.cluster_id, self._endpoints, change_timeout_ms=self.request_timeout_ms)
        is_pre_vote = isinstance(asked, raft.VoteRequest) and asked.is_pre_vote
        try:
            response = await client.request(request, self.request_timeout_ms, PRE_VOTE_VERSION if is_pre_vote else 0)
        except VersionTooOld:
            error = ErrorCode.UNSUPPORTED_VERSION
            step(raft.VoteResponse(voter, -1, raft.NO_LEADER, False, True, error))
            return
        self._silent.discard(voter)
        self._log_error(voter, asked, error_of_response(response))
        leader = address_in_response(response)
        if leader is not None:
            self.learn(leader[0], NodeAddress(*leader[1:]))
        message: raft.Message | None
        if isinstance(asked, raft.UpdateVoterRequest | raft.AddVoterRequest | raft.RemoveVoterRequest):
            message = message_from_voter_response(asked, voter, response)
        else:
            message = message_from_response(asked, voter, response)
        if message is not None:
            step(message)

    def _log_error(self, voter: int, asked: Request | VoterRequest, error: ErrorCode) -> None:
        """Logs an unexpected error once, not at every attempt."""
        kind = type(asked).__name__
        logged = {known for (node_id, _), known in self._logged_errors.items() if node_id == voter}
        self._logged_errors.pop((voter, kind), None)
        if error in (_EXPECTED_OF_VOTERS if isinstance(asked, VoterRequest) else _EXPECTED):
            return
        self._logged_errors[voter, kind] = error
        if error in logged:
            return
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            log.error(
                "node %d of the quorum belongs to another cluster; this node belongs to %s", voter, self.cluster_id
            )
        elif error is ErrorCode.INVALID_VOTER_KEY:
            log.warning(
                "node %d of the quorum has another directory id than voter %d: if its directory was formatted again, "
                "remove the old voter and add the new one",
                voter,
                voter,
            )
        else:
            log.error("node %d of the quorum answers a %s with %s", voter, kind, error.name)

    def note_silent(self, voter: int) -> None:
        """Notes that a request to a voter got no response."""
        self._silent.add(voter)


class _Lane:
    """One connection to a node, and the newest unsent request of each kind."""

    def __init__(self, links: PeerLinks, voter: int) -> None:
        self._links = links
        self._voter = voter
        self._client: NodeClient | None = None
        self._unsent: dict[type, Request | VoterRequest] = {}
        self._filled = trio.Event()
        self._has_failed = False

    def put(self, message: Request | VoterRequest) -> None:
        """Queues a request; it replaces an unsent one of its kind."""
        self._unsent.pop(type(message), None)
        self._unsent[type(message)] = message
        self._filled.set()

    async def run(self, step: Step) -> None:
        """Sends the queued messages one after another, until it is cancelled."""
        try:
            while True:
                await self._filled.wait()
                self._filled = trio.Event()
                while self._unsent:
                    await self._send_next(step)
        finally:
            with trio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send_next(self, step: Step) -> None:
        kind = next(iter(self._unsent))
        message = self._unsent.pop(kind)
        address = self._links.address_of(self._voter)
        if address is None:
            return
        if self._client is None or self._client.address != address:
            await self._close()
            self._client = self._links.client(address)
        try:
            await self._links.ask(self._voter, self._client, message, step)
        except (NodeUnreachable, ProtocolError) as error:
            # Logged at the first failure only: an absent node gets several requests a second.
            if not self._has_failed:
                log.warning("node %d of the quorum does not answer as expected: %s", self._voter, error)
            is_first, self._has_failed = not self._has_failed, True
            if isinstance(error, NodeUnreachable):
                self._links.note_silent(self._voter)
                step(local.Unreachable(self._voter, error.is_refused))
            if not is_first:
                await trio.sleep(CONNECT_BACKOFF_MS / 1000)
        else:
            if self._has_failed:
                log.info("node %d of the quorum answers again", self._voter)
            self._has_failed = False
