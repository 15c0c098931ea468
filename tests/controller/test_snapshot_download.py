"""Downloads of a leader's snapshot that are refused, interrupted or no longer needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.fetch_snapshot import SNAPSHOT_SIZE_MAX, SnapshotUnavailable, download_snapshot
from pykbroker.controller.node_client import (
    API_VERSIONS_VERSION,
    NodeAddress,
    NodeClient,
    NodeUnreachable,
    is_refused,
)
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint
from pykbroker.controller.snapshot_installer import SnapshotInstaller
from pykbroker.controller.transport import NoResponse, Transport
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.api_versions import ApiVersionsResponse
from pykbroker.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshotResponse,
    TopicSnapshotResponse,
)

SNAPSHOT = OffsetAndEpoch(50, 3)
REPLICA = ReplicaKey(1, bytes(16))
LEADER = NodeAddress("leader", 9093)


def piece(records: bytes, *, position: int = 0, size: int = 6, error: ErrorCode = ErrorCode.NONE, **more: Any) -> Any:
    partition = PartitionSnapshotResponse(
        unaligned_records=records, position=position, size=size, error_code=error, **more
    )
    return FetchSnapshotResponse(topics=[TopicSnapshotResponse(name="__cluster_metadata", partitions=[partition])])


class Client:
    """A leader's answers, in order."""

    address = LEADER

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.positions: list[int] = []
        self.is_closed = False

    async def request(self, message: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        self.positions.append(message.topics[0].partitions[0].position)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.is_closed = True


async def download(client: Any) -> bytes:
    return await download_snapshot(client, SNAPSHOT, 4, REPLICA, "cluster", 1000, max_bytes=3, on_piece=lambda: None)


async def test_a_snapshot_comes_in_pieces() -> None:
    client = Client(piece(b"abc"), piece(b"def", position=3))
    assert await download(client) == b"abcdef"
    assert client.positions == [0, 3]


@pytest.mark.parametrize(
    "answer",
    [
        piece(b""),
        piece(b"abc", position=1),
        piece(b"abc", size=0),
        piece(b"abc", size=-1),
        piece(b"abc", size=SNAPSHOT_SIZE_MAX + 1),
    ],
)
async def test_bytes_that_were_not_asked_for_are_refused(answer: Any) -> None:
    with pytest.raises(SnapshotUnavailable, match="leader:9093 answers with other bytes of snapshot") as raised:
        await download(Client(answer))
    assert (raised.value.error, raised.value.known) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("answer", "error", "known"),
    [
        (FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), ErrorCode.INCONSISTENT_CLUSTER_ID, None),
        (
            piece(
                b"",
                error=ErrorCode.FENCED_LEADER_EPOCH,
                current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=9),
            ),
            ErrorCode.FENCED_LEADER_EPOCH,
            (3, 9),
        ),
        (
            piece(
                b"",
                error=ErrorCode.SNAPSHOT_NOT_FOUND,
                current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            ),
            ErrorCode.SNAPSHOT_NOT_FOUND,
            None,
        ),
    ],
)
async def test_a_refusal_may_name_the_leader(answer: Any, error: ErrorCode, known: tuple[int, int] | None) -> None:
    with pytest.raises(SnapshotUnavailable, match=f"does not give snapshot .*: {error.name}") as raised:
        await download(Client(answer))
    assert (raised.value.error, raised.value.known) == (error, known)


# The links to other nodes


async def nowhere(host: str, port: int) -> trio.abc.Stream:
    await trio.lowlevel.checkpoint()
    raise OSError("no route to host")


def links_to(client: Any, monkeypatch: pytest.MonkeyPatch) -> PeerLinks:
    links = PeerLinks(1, "cluster", {2: LEADER}, nowhere, software_version="1")
    monkeypatch.setattr(links, "client", lambda address: client)
    return links


async def test_a_leader_that_has_been_replaced_names_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state machine learns it as from a Fetch response."""
    refusal = piece(
        b"", error=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    )
    client = Client(piece(b"abc"), refusal)
    steps: list[Any] = []
    with pytest.raises(NoResponse, match="NOT_LEADER_OR_FOLLOWER"):
        await links_to(client, monkeypatch).download(2, 4, SNAPSHOT, REPLICA, steps.append)
    assert steps == [
        local.SnapshotBytesFetched(2),
        raft.FetchResponse(2, 9, 3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    assert client.is_closed


async def test_a_leader_that_does_not_answer_or_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(NodeUnreachable("leader:9093 is away"))
    links = links_to(client, monkeypatch)
    steps: list[Any] = []
    with pytest.raises(NoResponse, match="leader:9093 is away"):
        await links.download(2, 4, SNAPSHOT, REPLICA, steps.append)
    assert client.is_closed
    with pytest.raises(NoResponse, match="the address of the leader, node 7, is not known"):
        await links.download(7, 4, SNAPSHOT, REPLICA, steps.append)
    assert steps == []


async def test_a_voter_without_this_listener_has_no_known_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    voter = Voter(ReplicaKey(5, bytes(16)), (VoterEndpoint("OTHER", "h", 1),), (0, 1))
    with pytest.raises(NoResponse, match="node 5 has no listener CONTROLLER"):
        await links_to(Client(), monkeypatch).supported_versions(voter)


async def test_a_node_alone_has_no_links() -> None:
    alone = Transport()
    with pytest.raises(NoResponse, match="this node has no connections to other nodes"):
        await alone.download(2, 4, SNAPSHOT, REPLICA, lambda message: None)
    with pytest.raises(NoResponse, match="this node has no connections to other nodes"):
        await alone.supported_versions(Voter(ReplicaKey(5, bytes(16)), (), (0, 1)))


def test_an_error_that_no_voter_should_answer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    links = PeerLinks(1, "cluster", {2: LEADER}, nowhere, software_version="1")
    asked = raft.FetchRequest(1, 4, REPLICA, SNAPSHOT, -1)
    for _ in range(3):
        links._log_error(2, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert caplog.messages == ["node 2 of the quorum answers a FetchRequest with CLUSTER_AUTHORIZATION_FAILED"]
    links._log_error(2, asked, ErrorCode.NONE)
    links._log_error(2, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert len(caplog.messages) == 2, "it has answered as it should in between"


# The installation


class Downloads(Transport):
    """Gives content, or fails; `on_download` is called meanwhile."""

    can_download = True

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.on_download: Any = lambda: None

    async def download(self, *_: Any) -> bytes:
        await trio.sleep(1)
        self.on_download()
        if isinstance(self.answer, Exception):
            raise self.answer
        content: bytes = self.answer
        return content


class Storage:
    def __init__(self, error: StorageError | None = None) -> None:
        self.error = error
        self.installed: list[bytes] = []

    def install_snapshot(self, snapshot: OffsetAndEpoch, content: bytes, wall_clock_ms: int) -> str:
        if self.error is not None:
            raise self.error
        self.installed.append(content)
        return "installed"


async def install(downloads: Downloads, storage: Any, core: Any) -> Any:
    return await SnapshotInstaller(downloads).install(core, storage, 2, SNAPSHOT, 0, lambda message: None)


def following() -> Any:
    return SimpleNamespace(leader_id=2, epoch=4, key=REPLICA, high_watermark=10)


@pytest.mark.parametrize(
    ("answer", "storage_error"),
    [(NoResponse("leader:9093 is away"), None), (b"x", StorageError("/data", "leader:9093 is away"))],
)
async def test_a_snapshot_that_is_not_had_or_not_written_is_an_error(
    answer: Any, storage_error: StorageError | None, caplog: pytest.LogCaptureFixture
) -> None:
    result = await install(Downloads(answer), Storage(storage_error), following())
    assert isinstance(result, (NoResponse, StorageError))
    assert "the metadata snapshot at offset 50 of leader 2 was not installed:" in caplog.text
    assert "leader:9093 is away" in caplog.text


@pytest.mark.parametrize("change", [{"leader_id": 3}, {"high_watermark": 50}])
async def test_a_snapshot_that_is_not_wanted_any_more_is_not_installed(change: dict[str, int]) -> None:
    """Another leader was elected, or the log has caught up meanwhile."""
    core, storage, downloads = following(), Storage(), Downloads(b"x")
    downloads.on_download = lambda: vars(core).update(change)
    result = await install(downloads, storage, core)
    assert isinstance(result, NoResponse)
    assert storage.installed == []


async def test_a_later_download_cancels_an_earlier_one() -> None:
    core, storage, downloads = following(), Storage(), Downloads(b"x")
    installer = SnapshotInstaller(downloads)
    results: list[Any] = []

    async def run(delay_s: float) -> None:
        await trio.sleep(delay_s)
        found: Any = await installer.install(core, storage, 2, SNAPSHOT, 0, lambda message: None)  # type: ignore[arg-type]
        results.append(found)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 0)
        nursery.start_soon(run, 0.5)
    assert results == [None, "installed"]
    assert storage.installed == [b"x"]


# The client of a node


def answering(correlation_id: int, *answers: ApiVersionsResponse) -> Any:
    """Opens streams to a node whose answers, in order, all have this correlation id."""
    left = list(answers)

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        # Answers may stand in the stream before the request: the client reads them when it has sent it.
        for answer in left:
            body = correlation_id.to_bytes(4, "big") + encode(answer, API_VERSIONS_VERSION)
            await theirs.send_all(len(body).to_bytes(4, "big") + body)
        return ours

    return open_stream


@pytest.mark.parametrize(
    ("correlation_id", "error", "reason"),
    [
        (1, ErrorCode.UNSUPPORTED_VERSION, "leader:9093 refuses ApiVersions with error 35"),
        (7, ErrorCode.NONE, "leader:9093 answers request 7, not 1"),
    ],
)
async def test_a_node_whose_first_answer_is_of_no_use(correlation_id: int, error: ErrorCode, reason: str) -> None:
    open_stream = answering(correlation_id, ApiVersionsResponse(error_code=error))
    client = NodeClient(LEADER, open_stream, client_id="client", software_version="1")
    with pytest.raises(ProtocolError, match=reason):
        await client.features(1000)
    await client.close()


async def test_a_node_that_refuses_to_tell_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    client = NodeClient(LEADER, nowhere, client_id="client", software_version="1")

    async def answer(message: Any, *_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    monkeypatch.setattr(client, "request", answer)
    with pytest.raises(ProtocolError, match="leader:9093 refuses ApiVersions with error 35"):
        await client.features(1000)


def test_a_refusal_of_several_addresses_is_one_if_all_refuse() -> None:
    """A name may have an address of IPv4 and one of IPv6: a process that ended is replaced at once."""
    refused, other = ConnectionRefusedError(), TimeoutError()
    outer = OSError("all attempts failed")
    for causes, expected in (([refused, refused], True), ([refused, other], False)):
        outer.__cause__ = ExceptionGroup("attempts", causes)
        assert is_refused(outer) is expected
