"""One connection with TLS: handshake, requests of every size, slow readers, and what is refused (P-240 to P-246)."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.logstore.file_range import FileRange
from pykbroker.network import tls_connection
from pykbroker.network.listener import Listener, bind
from pykbroker.network.reply import SEND_TIMEOUT_S
from pykbroker.network.request_memory import RequestMemory
from pykbroker.network.tls_connection import HANDSHAKE_BYTES_MAX, HANDSHAKE_TIMEOUT_S, PIECE_SIZE, TlsConnection
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.principals import AuthenticationContext, CheckedPrincipalBuilder
from pykbroker.security.tls.contexts import Stores, client_context
from pykbroker.security.tls.development import issue
from pykbroker.security.tls.settings import TlsSettings
from tests.pykbroker.security.tls.certificates import authority, client, listener_tls, server, texts
from tests.support.connections import Client, served
from tests.support.data_path import DataPath, cluster_image

HANDLERS = handlers_of[ListenerKind.BROKER]
NAMED = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
ALICE = "User:CN=alice,O=pykbroker development"


def services() -> Any:
    image = ClusterImage()
    image.features = {"metadata.version": 30}
    return SimpleNamespace(
        metadata=SimpleNamespace(image=image),
        controller=SimpleNamespace(kraft_version=0),
        quotas=QuotaSwitch(),
        principal_builder=None,
        config=SimpleNamespace(
            broker=SimpleNamespace(unstable_api_versions_enable=False, unstable_feature_versions_enable=False),
            connections=SimpleNamespace(failed_authentication_delay_ms=100),
        ),
    )


def context(certificate: Any = None, **more: str) -> ssl.SSLContext:
    """Context of a client that trusts the test authority."""
    settings = TlsSettings.read(texts(certificate, authority(), **more).get)
    return client_context(settings, Stores(settings))


@asynccontextmanager
async def encrypted(
    of_server: dict[str, str] | None = None,
    of_client: ssl.SSLContext | None = None,
    memory: RequestMemory | None = None,
) -> AsyncIterator[Client]:
    """A client over TLS, whose handshake is done by its first request."""
    tls = listener_tls(texts(server()) if of_server is None else of_server)
    async with served(services(), tls=tls, memory=memory) as plain:
        transport = plain.stream
        stream = trio.SSLStream(transport, of_client or context(), server_hostname="localhost", https_compatible=True)
        yield Client(stream, plain.connection)


async def answers(client: Client) -> bool:
    return await client.call(NAMED, 3, ApiVersionsResponse) is not None


async def is_refused(client: Client) -> bool:
    """True if the handshake or the first request fails; with TLS 1.3 a client's own handshake may end before."""
    with suppress(trio.BrokenResourceError):
        return not await answers(client)
    return True


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
async def test_requests_are_answered(protocol: str) -> None:
    async with encrypted(texts(server(), ssl_enabled_protocols=protocol)) as client:
        for _ in range(3):
            assert await answers(client)
        assert client.connection.info.principal == "User:ANONYMOUS"
        assert isinstance(client.stream, trio.SSLStream)
        assert client.stream.version() == protocol


async def test_a_byte_at_a_time() -> None:
    async with served(services(), tls=listener_tls(texts(server()))) as plain:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = context().wrap_bio(incoming, outgoing, server_hostname="localhost")

        async def send() -> None:
            for byte in outgoing.read():
                await plain.stream.send_all(bytes([byte]))

        while True:
            try:
                side.do_handshake()
                break
            except ssl.SSLWantReadError:
                await send()
                incoming.write(await plain.stream.receive_some(100))
        frame = b"\0\x12\0\0\0\0\0\7\0\4test"
        side.write(len(frame).to_bytes(4, "big") + frame)
        await send()
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            try:
                received += side.read(100)
            except ssl.SSLWantReadError:
                incoming.write(await plain.stream.receive_some(100))
        assert decode(ApiVersionsResponse, 0, received[8:]).error_code == 0


async def test_many_requests_in_one_record_and_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are left in OpenSSL, when the connection's turn ends, are served without a further packet."""
    sizes = []

    async def measure(context: Any, request: SyncGroupRequest) -> SyncGroupResponse:
        sizes.append(sum(len(a.assignment) for a in request.assignments))
        return SyncGroupResponse(assignment=bytes(300_000))

    monkeypatch.setitem(HANDLERS, ApiKey.SYNC_GROUP, (SyncGroupRequest, measure))
    async with encrypted() as client:
        assert await answers(client)
        body = encode(NAMED, 3)
        header = b"\0\x12\0\3\0\0\0\7\0\4test\0"
        frame = (len(header) + len(body)).to_bytes(4, "big") + header + body
        await client.stream.send_all(frame * 200)
        for _ in range(200):
            assert await client.frame() is not None
        for size in (100, 20_000, 70_000, 900_000):
            assigned = SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))
            request = SyncGroupRequest(assignments=[assigned])
            answer = await client.call(request, 3, SyncGroupResponse)
            assert len(answer.assignment) == 300_000
        assert sizes == [100, 20_000, 70_000, 900_000]


def file_ranges(tmp_path: Any, size: int, count: int) -> tuple[int, bytes, list[FileRange]]:
    content = os.urandom(1 << 16) * (size >> 16) + os.urandom(size & 0xFFFF)
    path = tmp_path / "segment"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    released: list[int] = []
    segment: Any = SimpleNamespace(
        path=str(path),
        acquire=lambda: descriptor,
        release=lambda: released.append(1),
        filesystem=SimpleNamespace(read=lambda fd, size, position: os.pread(fd, size, position)),
        released=released,
    )
    return descriptor, content, [FileRange(segment, 0, size) for _ in range(count)]


async def test_file_ranges_are_read_and_encrypted(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    size = 3 * PIECE_SIZE + 777
    descriptor, content, ranges = file_ranges(tmp_path, size, 2)

    async def fetch(context: Any, request: Any) -> FetchResponse:
        partitions = [PartitionData(records=each) for each in ranges]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    monkeypatch.setitem(HANDLERS, ApiKey.FETCH, (FetchRequest, fetch))
    async with encrypted() as client:
        answer = await client.call(FetchRequest(), 11, FetchResponse)
        records = [bytes(partition.records) for partition in answer.responses[0].partitions]
    assert records == [content, content]
    assert len(ranges[0]._file.released) == 2  # type: ignore[attr-defined]
    os.close(descriptor)


async def test_a_client_that_reads_nothing_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One piece waits for it in memory, however much it has asked for."""
    descriptor, _, ranges = file_ranges(tmp_path, 4_000_000, 2)

    async def fetch(context: Any, request: Any) -> FetchResponse:
        partitions = [PartitionData(records=each) for each in ranges]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    monkeypatch.setitem(HANDLERS, ApiKey.FETCH, (FetchRequest, fetch))
    memory = RequestMemory(1 << 20)
    async with encrypted(memory=memory) as client:
        assert await answers(client)
        await client.request(ApiKey.FETCH, 11, encode(FetchRequest(), 11), flexible=False)
        await trio.testing.wait_all_tasks_blocked()
        assert client.connection.is_sending
        assert 0 < memory.reply_bytes < 2 * PIECE_SIZE
        await trio.sleep(SEND_TIMEOUT_S + 1)
        assert client.connection.has_ended
    assert memory.reply_bytes == 0
    assert len(ranges[0]._file.released) == 2  # type: ignore[attr-defined]
    os.close(descriptor)
    assert "it reads no reply for 30 s" in caplog.text


async def test_a_slow_reader_gets_all_of_a_large_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    async def long_reply(context: Any, request: Any) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=bytes(5_000_000))

    monkeypatch.setitem(HANDLERS, ApiKey.SYNC_GROUP, (SyncGroupRequest, long_reply))
    memory = RequestMemory(8_000_000)
    async with encrypted(memory=memory) as client:
        assert await answers(client)
        await client.request(ApiKey.SYNC_GROUP, 3, encode(SyncGroupRequest(), 3), flexible=False)
        await trio.testing.wait_all_tasks_blocked()
        assert memory.reply_bytes > 5_000_000
        assert len(await client.frame() or b"") > 5_000_000
        await trio.testing.wait_all_tasks_blocked()
        assert memory.reply_bytes == 0


async def test_a_follow_up_is_done_after_a_reply_that_fits_or_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[bool] = []

    def has_reply() -> bool:
        try:
            return bool(raw.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        events.append(has_reply())
        context.connection.after_reply(lambda: events.append(has_reply()))
        return HeartbeatResponse()

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, handle))
    async with encrypted() as client:
        raw = client.stream.transport_stream.socket._sock
        # The handshake, and its tickets behind the first reply.
        assert await answers(client)
        assert await client.call(HeartbeatRequest(), 1, HeartbeatResponse) is not None
        assert events == [False, True]
        connection: Any = client.connection
        sent = 0
        while not connection._unsent:
            connection._ssl.write(bytes(1 << 14))
            connection._outgoing_to_unsent()
            connection._send_what_fits()
            sent += 1 << 14
        await client.request(ApiKey.HEARTBEAT, 1, encode(HeartbeatRequest(), 1), flexible=False)
        await trio.testing.wait_all_tasks_blocked()
        assert connection.is_sending
        assert len(events) == 4, "the follow-up does not wait for the client"
        while sent:
            sent -= len(await client.stream.receive_some(sent))
        assert await client.frame() is not None
        assert not connection.is_sending


async def test_a_request_that_waits_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    event = trio.Event()

    async def wait(context: Any, request: Any) -> HeartbeatResponse:
        await event.wait()
        return HeartbeatResponse()

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, wait))
    async with encrypted() as client:
        assert await answers(client)
        await client.request(ApiKey.HEARTBEAT, 3, encode(HeartbeatRequest(), 3), flexible=False)
        body = encode(NAMED, 3)
        await client.request(ApiKey.API_VERSIONS, 3, body, flexible=True)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        assert await client.frame() is not None
        assert await client.frame() is not None


async def test_the_end_of_a_connection_is_told() -> None:
    """P-246: the broker sends the end of the encrypted stream before it closes, so that a cut can be told from it."""
    async with encrypted() as client:
        assert await answers(client)
        assert isinstance(client.stream, trio.SSLStream)
        strict = client.stream
        strict._https_compatible = False
        client.connection.close()
        assert await strict.receive_some(100) == b""


async def test_the_end_of_the_clients_stream_is_answered() -> None:
    """P-246: clients on asyncio wait for it before they close."""
    async with encrypted() as client:
        assert await answers(client)
        assert isinstance(client.stream, trio.SSLStream)
        stream, _ = await client.stream.unwrap()
        assert await stream.receive_some(100) == b""
        assert client.connection.has_ended


@pytest.mark.parametrize(
    ("first", "alert", "words"),
    [
        (
            b"\0\0\0\x10\0\x12\0\3",
            0x50,
            "they look like Kafka's protocol without encryption; clients of listener SSL need",
        ),
        (b"GET / HTTP/1.1\r\n", 0x50, "they look like HTTP"),
        (b"SSH-2.0-x\r\n", 0x50, "they look like SSH"),
        (b"\x80\x2e\1\0\2", 0x50, "they begin with 802e0100"),
        (b"\x15\3\3\0\2\2\x28", None, "they begin with 15030300"),
        (b"\x16\3\1\0\5aaaaaaaa", 0x0A, "the TLS handshake failed: "),
        (b"\x16\3\1\xff\xff" + bytes(200), 0x16, "the TLS handshake failed: "),
    ],
)
async def test_what_is_not_tls(first: bytes, alert: int | None, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """P-245, P-614: the client gets an alert; one line says what was sent and what clients need."""
    received = b""
    async with served(services(), tls=listener_tls(texts(server()))) as plain:
        await plain.stream.send_all(first)
        with suppress(trio.BrokenResourceError):
            while part := await plain.stream.receive_some(100):
                received += part
        assert plain.connection.has_ended
    assert received == (b"" if alert is None else bytes((0x15, 3, 3, 0, 2, 2, alert)))
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert words in record.getMessage()


async def test_a_handshake_that_never_ends_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """P-245: in bytes here, in time by the listener."""
    message = b"\x16\3\1\x40\0" + b"\1\0\x3f\xfc" + bytes(0x3FFC)
    async with served(services(), tls=listener_tls(texts(server()))) as plain:
        with suppress(trio.BrokenResourceError):
            for _ in range(HANDSHAKE_BYTES_MAX // len(message) + 2):
                await plain.stream.send_all(message)
                await trio.testing.wait_all_tasks_blocked()
        assert plain.connection.has_ended
    assert "TLS handshake" in caplog.text


async def test_a_slow_handshake_is_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-245: bytes that come now and then do not make it last longer."""
    path = DataPath(tmp_path, cluster_image())
    listener = Listener("SSL", bind("127.0.0.1", 0), path.services, tls=listener_tls(texts(server())))
    listener.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        slow = await trio.open_tcp_stream("127.0.0.1", listener.port)
        quick = trio.SSLStream(
            await trio.open_tcp_stream("127.0.0.1", listener.port), context(), server_hostname="localhost"
        )
        await quick.do_handshake()
        began = trio.current_time()
        with suppress(trio.BrokenResourceError):
            await slow.send_all(b"\x16\3\1\x10\0\1\0\0\xfc")
            for _ in range(100):
                await slow.send_all(b"x")
                await trio.sleep(1)
        assert HANDSHAKE_TIMEOUT_S <= trio.current_time() - began < HANDSHAKE_TIMEOUT_S + 5
        assert len(listener.connections) == 1
        for stream in (slow, quick):
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
    path.close()
    assert "its TLS handshake took longer than 30 s" in caplog.text


async def test_bytes_of_a_handshake_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_BYTES_MAX", 100)
    async with encrypted() as client:
        assert await is_refused(client)
    assert "it sent more than 100 bytes in its TLS handshake" in caplog.text


async def test_a_client_that_leaves_in_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for first in (b"", b"\x16\3\1"):
            async with served(services(), tls=listener_tls(texts(server()))) as plain:
                if first:
                    await plain.stream.send_all(first)
                await plain.stream.aclose()
                await trio.testing.wait_all_tasks_blocked()
                assert plain.connection.has_ended
    assert [record.getMessage() for record in caplog.records] == [
        "client 127.0.0.1 closed the connection during the TLS handshake"
    ]


async def test_a_damaged_record_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """P-246."""
    async with encrypted() as client:
        assert await answers(client)
        assert isinstance(client.stream, trio.SSLStream)
        await client.stream.transport_stream.send_all(b"\x17\3\3\0\x20" + bytes(32))
        assert await client.frame() is None
        assert client.connection.has_ended
    assert "TLS: " in caplog.text


@pytest.mark.parametrize(
    ("client_auth", "certificate", "principal"),
    [
        ("none", client(), "User:ANONYMOUS"),
        ("requested", None, "User:ANONYMOUS"),
        ("requested", client(), ALICE),
        ("required", client(), ALICE),
    ],
)
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
async def test_certificates_of_clients(client_auth: str, certificate: Any, principal: str, protocol: str) -> None:
    """P-242."""
    of_server = texts(server(), authority(), ssl_client_auth=client_auth, ssl_enabled_protocols=protocol)
    async with encrypted(of_server, context(certificate)) as client:
        assert await answers(client)
        assert client.connection.info.principal == principal


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (None, "the client has no certificate, and ssl.client.auth=required asks for one"),
        (issue("mallory"), "the client's certificate is not trusted (ssl.truststore)"),
        (issue("bob", issuer=authority(), days=-1), "the client's certificate has expired"),
    ],
    ids=["none", "unknown authority", "expired"],
)
async def test_certificates_that_are_refused(certificate: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """P-245."""
    of_server = texts(server(), authority(), ssl_client_auth="required")
    async with encrypted(of_server, context(certificate)) as client:
        assert await is_refused(client)
        assert client.connection.has_ended
    assert words in caplog.text


async def test_a_certificate_that_no_rule_maps(caplog: pytest.LogCaptureFixture) -> None:
    """P-242."""
    rules = "RULE:^CN=bob,.*$/bob/"
    of_server = texts(server(), authority(), ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    async with encrypted(of_server, context(client())) as connected:
        assert await is_refused(connected)
    assert "its certificate gives no principal: no rule" in caplog.text


async def test_a_principal_builder_is_asked() -> None:
    """A user's principal builder gets the principal of the certificate, and what it raises closes the connection."""

    class Builder:
        def build(self, context: AuthenticationContext) -> str:
            assert (context.listener_name, context.mechanism) == ("SSL", "SSL")
            if context.principal == "User:ANONYMOUS":
                raise ValueError("no certificate")
            return context.principal.upper().replace("USER:", "User:")

    tls = listener_tls(texts(server(), authority(), ssl_client_auth="requested"))
    with_builder = services()
    with_builder.principal_builder = CheckedPrincipalBuilder(Builder())
    for certificate, principal in ((client(), "User:CN=ALICE,O=PYKBROKER DEVELOPMENT"), (None, None)):
        async with served(with_builder, tls=tls) as plain:
            stream = trio.SSLStream(
                plain.stream, context(certificate), server_hostname="localhost", https_compatible=True
            )
            connected = Client(stream, plain.connection)
            assert await is_refused(connected) == (principal is None)
            if principal is not None:
                assert plain.connection.info.principal == principal


async def test_a_broker_that_the_client_does_not_trust(caplog: pytest.LogCaptureFixture) -> None:
    """P-245: the client's reason is in the broker's log."""
    settings = TlsSettings.read(texts(None, client()).get)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = client_context(settings, Stores(settings)).wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with served(services(), tls=listener_tls(texts(server()))) as plain:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
        await plain.stream.send_all(outgoing.read())
        incoming.write(await plain.stream.receive_some(10_000))
        with pytest.raises(ssl.SSLCertVerificationError):
            side.do_handshake()
        await plain.stream.send_all(outgoing.read())
        await trio.testing.wait_all_tasks_blocked()
        assert plain.connection.has_ended
    assert "the client does not trust this broker's certificate" in caplog.text


async def test_a_suite_of_tls_1_3_that_is_not_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """P-240: OpenSSL cannot be told a shorter list by Python, so that the connection ends after its handshake."""
    async with encrypted(texts(server(), ssl_cipher_suites="TLS_AES_128_GCM_SHA256")) as client:
        assert await is_refused(client)
    assert "the cipher suite TLS_AES_256_GCM_SHA384 is not in ssl.cipher.suites" in caplog.text


async def test_answers_that_a_client_does_not_read_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of OpenSSL's own, such as answers to updates of keys, wait in memory when the client reads nothing."""
    async with encrypted() as client:
        assert await answers(client)
        connection = client.connection
        assert isinstance(connection, TlsConnection)
        monkeypatch.setattr(TlsConnection, "_send_what_fits", lambda self: None)
        connection._outgoing.write(bytes(tls_connection.UNSENT_MAX + 1))
        await client.request(ApiKey.API_VERSIONS, 3, encode(NAMED, 3), flexible=True)
        await trio.testing.wait_all_tasks_blocked()
        assert connection.has_ended
    assert "it does not read the answers to its TLS messages" in caplog.text
