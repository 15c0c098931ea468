"""NodeClient: requests of this node to another node of the cluster, over one connection, one at a time.

The first exchange on a connection is ApiVersions; requests then have the highest version that both sides support.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import trio

from pykbroker.controller.turns import in_turns
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.codec import chunks_in_steps, decode_from, decode_in_steps, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Message, response_class
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT, FrameReader
from pykbroker.protocol.headers import read_response_header, request_header
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS_KEY = 18
API_VERSIONS_VERSION = 3
SOFTWARE_NAME = "pykbroker"
RESPONSE_SIZE_MAX = 256 << 20
"""Largest response in bytes that is accepted from another node of the cluster."""

LENT_BUFFER_SIZE_KEPT = 16 << 20
"""Bytes of a buffer that is kept between responses: more than a replica requests
(`replica.fetch.response.max.bytes`)."""

LARGE_RESPONSE_BYTES = 16 * 1024
"""Size from which a response is decoded in turns with other tasks: the first Fetch response about 5,000 partitions
takes 10 ms."""


class NodeAddress(NamedTuple):
    """Host and port of a node's listener for other nodes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


OpenStream = Callable[[str, int], Awaitable[trio.abc.Stream]]


session_ends: WeakKeyDictionary[trio.abc.Stream, float] = WeakKeyDictionary()
"""Connection -> time in seconds on trio's clock at which its login ends, after which it must not be used (KIP-368)."""


class NodeUnreachable(Exception):
    """The other node did not answer: no connection can be made, it disconnected, or it took too long.

    It may have executed the request, unless `is_refused`: then its machine has refused the connection.
    """

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused


class VersionTooOld(ProtocolError):
    """The other node has the API, but only in versions that lack a needed field."""


class NodeClient:
    """A connection to another node. A failure closes it; the next request opens another one.

    Args:
        address: address of the other node.
        open_stream: opens a connection: `trio.open_tcp_stream`, or a function of a test or simulation.
        client_id: client id of the requests.
        software_version: version of this software for ApiVersions (KIP-511).
        lends: if true, bytes in a response (records) are views of the receive buffer, valid until the next request,
            and no copies. The buffer is then kept between requests, for clients that always receive much.
    """

    def __init__(
        self,
        address: NodeAddress,
        open_stream: OpenStream,
        *,
        client_id: str,
        software_version: str,
        lends: bool = False,
    ) -> None:
        self.address = address
        self._lends = lends
        self._open_stream = open_stream
        self._client_id = client_id
        self._software_version = software_version
        self._stream: trio.abc.Stream | None = None
        self._frames = self._frame_reader()
        self._versions: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    async def request(self, message: Message, timeout_ms: int, version_min: int = 0, *, is_long: bool = False) -> Any:
        """Sends a request, after connecting if necessary, and returns the response.

        A long request, about thousands of topics, is encoded in turns with other tasks; it must not change meanwhile.

        Raises:
            NodeUnreachable: no response came within `timeout_ms`.
            VersionTooOld: the other node does not have the API in `version_min` or a later version.
            ProtocolError: the other node has no version of this API that exists here, or its response cannot be
                decoded.
        """
        try:
            with trio.fail_after(timeout_ms / 1000):
                if self._stream is not None and session_ends and self._is_over(self._stream):
                    await self.close()
                if self._stream is None:
                    await self._connect()
                version = self._version_for(message)
                if version < version_min:
                    name = type(message).__name__
                    raise VersionTooOld(f"{self.address} has {name} up to version {version}, not {version_min}")
                return await self._exchange(message, version, is_long=is_long)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            await self.close()
            why = (
                f"no answer within {timeout_ms} ms"
                if isinstance(error, trio.TooSlowError)
                else str(error) or str(error.__cause__ or "")
            )
            raise NodeUnreachable(f"{self.address}: {why}", is_refused=is_refused(error)) from error
        except VersionTooOld:
            raise
        except BaseException:
            # A late response would be taken for the response to the next request.
            await self.close()
            raise

    async def features(self, timeout_ms: int) -> dict[str, tuple[int, int]]:
        """Lowest and highest level of each feature that the other node supports, from its ApiVersions response.

        Raises:
            NodeUnreachable, ProtocolError: there is no usable response.
        """
        # In the newest version: before version 4 features whose lowest level is 0 are left out.
        asked = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=self._software_version)
        answer: ApiVersionsResponse = await self.request(asked, timeout_ms)
        if answer.error_code != ErrorCode.NONE:
            raise ProtocolError(f"{self.address} refuses ApiVersions with error {answer.error_code}")
        return {each.name: (each.min_version, each.max_version) for each in answer.supported_features}

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await trio.aclose_forcefully(stream)

    def _is_over(self, stream: trio.abc.Stream) -> bool:
        return trio.current_time() >= session_ends.get(stream, math.inf)

    def _frame_reader(self) -> FrameReader:
        return FrameReader(RESPONSE_SIZE_MAX, LENT_BUFFER_SIZE_KEPT if self._lends else BUFFER_SIZE_KEPT)

    async def _connect(self) -> None:
        self._stream = await self._open_stream(self.address.host, self.address.port)
        self._frames = self._frame_reader()
        asked = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=self._software_version)
        answer: ApiVersionsResponse = await self._exchange(asked, API_VERSIONS_VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise ProtocolError(f"{self.address} refuses ApiVersions with error {answer.error_code}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _version_for(self, message: Message) -> int:
        ours, theirs = message.VERSIONS, self._versions.get(message.KEY)
        if theirs is not None:
            version = min(ours.highest, theirs[1])
            if version >= max(ours.lowest, theirs[0]):
                return version
        name = type(message).__name__
        there = "none" if theirs is None else f"{theirs[0]} to {theirs[1]}"
        raise ProtocolError(f"{self.address} has {there} of the versions of {name}, this node has {ours}")

    async def _exchange(self, message: Message, version: int, *, is_long: bool = False) -> Any:
        assert self._stream is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        is_flexible = version in message.FLEXIBLE_VERSIONS
        head = request_header(message.KEY, version, self._correlation_id, self._client_id, is_flexible)
        body = b"".join(await in_turns(chunks_in_steps(message, version))) if is_long else encode(message, version)
        await self._stream.send_all((len(head) + len(body)).to_bytes(4, "big") + head + body)
        frame = await self._receive_frame()
        # The header of an ApiVersions response has no tagged fields in any version (P-1).
        correlation_id, position = read_response_header(frame, is_flexible and message.KEY != API_VERSIONS_KEY)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"{self.address} answers request {correlation_id}, not {self._correlation_id}")
        response_type = response_class(type(message))
        if len(frame) >= LARGE_RESPONSE_BYTES:
            return await in_turns(decode_in_steps(response_type, version, frame, position))
        return decode_from(response_type, version, frame, position)[0]

    async def _receive_frame(self) -> bytes | memoryview:
        stream = self._stream
        assert stream is not None
        while (frame := self._frames.next_frame()) is None:
            room = self._frames.buffer()
            if isinstance(stream, trio.SocketStream):  # pragma: no cover: sockets are tested with processes
                count = await stream.socket.recv_into(room)
            else:
                received = await stream.receive_some(len(room))
                count = len(received)
                room[:count] = received
            if not count:
                raise trio.BrokenResourceError("the connection was closed")
            self._frames.received(count)
        return frame if self._lends else bytes(frame)


def is_refused(error: BaseException | None) -> bool:
    """True if every address that was tried refused the connection."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_refused, error.exceptions))
    return isinstance(error, ConnectionRefusedError) or (error is not None and is_refused(error.__cause__))
