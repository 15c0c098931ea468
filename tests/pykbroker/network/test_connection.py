"""One connection: what is answered, what closes it, and in which order (P-1 to P-21)."""

from __future__ import annotations

import logging
import os
import random
from contextlib import AsyncExitStack, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.errors import KafkaError
from pykbroker.handlers import api_versions
from pykbroker.logstore.file_range import FileRange
from pykbroker.network.reply import SEND_TIMEOUT_S
from pykbroker.network.request_memory import RESERVATION_TIMEOUT_S, RequestMemory
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.requests.api_table import APIS
from pykbroker.requests.invocation import ELEMENTS_MAX, handlers_of
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.plain import PlainExchange
from pykbroker.security.sasl import SaslSession
from pykbroker.security.sasl_mechanism import Mechanism
from pykbroker.wall_clock import SystemWallClock
from tests.support.connections import FRAME_SIZE_MAX, Client, served

RECEIVE_SIZE_MAX = 524288
HANDLERS = handlers_of[ListenerKind.BROKER]


def services(*, unstable_apis: bool = False) -> Any:
    image = ClusterImage()
    image.features = {"metadata.version": 30, "group.version": 0}
    image.offset = 12
    return SimpleNamespace(
        principal_builder=None,
        clock=SystemWallClock(),
        metadata=SimpleNamespace(image=image),
        quotas=QuotaSwitch(),
        authorizer=None,
        controller=SimpleNamespace(kraft_version=0),
        config=SimpleNamespace(
            broker=SimpleNamespace(unstable_api_versions_enable=unstable_apis, unstable_feature_versions_enable=False),
            connections=SimpleNamespace(failed_authentication_delay_ms=100),
        ),
    )


NAMED = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_at_every_version(version: int) -> None:
    """P-1: the response header is version 0 at every version. P-21: Produce is listed from 0."""
    async with served(services()) as client:
        response = await client.call(NAMED if version >= 3 else ApiVersionsRequest(), version, ApiVersionsResponse)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert listed == {key: (api.advertised_lowest, api.highest) for key, api in APIS.items() if not api.needs_telemetry}
    assert listed[ApiKey.PRODUCE] == (0, 13)
    assert APIS[ApiKey.PRODUCE].lowest == 3
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_enabled", [False, True])
async def test_a_version_that_may_still_change_is_served_only_if_enabled(
    is_enabled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """P-440: InitProducerId 6 is the only one; without the setting its connection is closed."""
    request = InitProducerIdRequest(transactional_id="x", producer_id=5)
    async with served(services(unstable_apis=is_enabled)) as client:
        listed = await client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
        highest = {entry.api_key: entry.max_version for entry in listed.api_keys}
        assert highest[ApiKey.INIT_PRODUCER_ID] == (6 if is_enabled else 5)
        if is_enabled:
            answer = await client.call(request, 6, InitProducerIdResponse)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        else:
            await client.request(ApiKey.INIT_PRODUCER_ID, 6, encode(request, 6), flexible=True)
            assert await client.frame() is None
            assert "InitProducerId version 6 is not supported; this broker has 0 to 5" in caplog.text


async def test_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-19: the epoch of the features is the metadata's offset. P-20: lowest level 0 only from v4; level 0 never."""
    supported = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
    monkeypatch.setattr(api_versions, "supported_features", lambda *, unstable: supported)
    monkeypatch.setattr(api_versions, "_supported_features", cache(api_versions._supported_features.__wrapped__))
    async with served(services()) as client:
        third = await client.call(NAMED, 3, ApiVersionsResponse)
        fourth = await client.call(NAMED, 4, ApiVersionsResponse)
    assert third.finalized_features_epoch == 12
    assert [(f.name, f.max_version_level) for f in third.finalized_features] == [("metadata.version", 30)]
    assert [feature.name for feature in third.supported_features] == ["metadata.version"]
    assert [feature.name for feature in fourth.supported_features] == ["metadata.version", "kraft.version"]


@pytest.mark.parametrize(
    ("kind", "newest"),
    [(ListenerKind.BROKER, {"feature": 31, "api": 30}), (ListenerKind.CONTROLLER, {"feature": 30, "api": 31})],
)
@pytest.mark.parametrize("key", ["feature", "api"])
async def test_the_key_that_adds_the_unstable_level_differs_on_a_controllers_port(
    kind: ListenerKind, newest: dict[str, int], key: str
) -> None:
    """P-450."""
    node = services()
    setattr(node.config.broker, f"unstable_{key}_versions_enable", True)
    async with served(node, kind=kind) as client:
        response = await client.call(NAMED, 4, ApiVersionsResponse)
    levels = {feature.name: feature.max_version for feature in response.supported_features}
    assert levels["metadata.version"] == newest[key]


async def test_a_version_of_the_future_gets_our_range_in_version_0() -> None:
    """P-2, and the client may ask again on the same connection."""
    async with served(services()) as client:
        await client.request(ApiKey.API_VERSIONS, 9, b"whatever", flexible=True)
        frame = await client.frame()
        assert frame is not None
        response = decode(ApiVersionsResponse, 0, frame[4:])
        assert len(frame) == 4 + 2 + 4 + 6
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 4)]
        assert (await client.call(NAMED, 4, ApiVersionsResponse)).error_code == 0


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("-a", "1"), ("a", "1.0-"), ("a b", "1")])
async def test_a_bad_client_name_is_refused_and_the_connection_stays(name: str, version: str) -> None:
    """P-3."""
    async with served(services()) as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert (await client.call(request, 3, ApiVersionsResponse)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.call(NAMED, 3, ApiVersionsResponse)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\x03\xe7\0\0\0\0\0\1\xff\xff", "API key 999 version 0 is not known"),
        (b"\0\0\0\2\0\0\0\1\xff\xff", "Produce version 2 is not supported; this broker has 3 to 13"),
        (b"\0\1\0\x63\0\0\0\1\xff\xff\0", "Fetch version 99 is not supported; this broker has 4 to 18"),
        (b"\0\x03\0\1\0\0\0\1\xff\xff\0\0\0\1\0\x09", "MetadataRequest v1: field topics"),
        (b"\0\x03", "RequestHeader"),
        (b"GET / HTTP/1.1\r\n", "API key 18245"),
    ],
    ids=["unknown key", "version too low", "version too high", "body", "header", "HTTP"],
)
async def test_what_cannot_be_answered_closes_with_one_line(
    frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P-4."""
    async with served(services()) as client:
        await client.send_frame(frame)
        assert await client.frame() is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert reason in caplog.text


@pytest.mark.parametrize("size", [-1, FRAME_SIZE_MAX + 1])
async def test_a_frame_of_impossible_size_closes(size: int, caplog: pytest.LogCaptureFixture) -> None:
    """P-7: without waiting for the bytes that were announced."""
    async with served(services()) as client:
        await client.stream.send_all(size.to_bytes(4, "big", signed=True))
        assert await client.frame() is None
    assert f"a frame of {size} bytes is announced" in caplog.text


async def test_replies_keep_the_order_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-8, P-9: a request that waits holds back those behind it."""
    delays = {1: 30.0, 2: 0.0, 3: 5.0}

    async def slow(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        await trio.sleep(delays[request.generation_id])
        return HeartbeatResponse(throttle_time_ms=request.generation_id)

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, slow))
    async with served(services()) as client:
        for number in delays:
            body = encode(HeartbeatRequest(generation_id=number), 1)
            await client.request(ApiKey.HEARTBEAT, 1, body, correlation_id=number, flexible=False)
        for number in delays:
            frame = await client.frame()
            assert frame is not None
            assert frame[:4] == number.to_bytes(4, "big")


async def test_a_handler_that_fails_is_answered_with_an_error_and_the_connection_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka does; what went wrong is in the log, with the client and the API."""

    async def broken(context: Any, request: Any) -> None:
        raise RuntimeError("invariant")

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, broken))
    async with served(services()) as client:
        response = await client.call(HeartbeatRequest(), 4, HeartbeatResponse)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await client.call(NAMED, 4, ApiVersionsResponse)).error_code == 0
    assert "RuntimeError: invariant" in caplog.text
    assert "Heartbeat v4 of 127.0.0.1:50000 failed with an internal error" in caplog.text


async def test_an_answer_that_does_not_fit_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_long(context: Any, request: Any) -> SyncGroupResponse:
        return SyncGroupResponse(protocol_name="x" * 40_000)

    monkeypatch.setitem(HANDLERS, ApiKey.SYNC_GROUP, (SyncGroupRequest, too_long))
    async with served(services()) as client:
        response = await client.call(SyncGroupRequest(), 5, SyncGroupResponse)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_code_of_an_error_that_got_through_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refusing(context: Any, request: Any) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, refusing))
    async with served(services()) as client:
        response = await client.call(HeartbeatRequest(), 4, HeartbeatResponse)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert caplog.text == ""


async def test_a_failed_produce_without_answer_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(context: Any, request: Any) -> None:
        raise RuntimeError

    monkeypatch.setitem(HANDLERS, ApiKey.PRODUCE, (ProduceRequest, broken))
    async with served(services()) as client:
        assert await client.call(ProduceRequest(acks=0), 9, ProduceResponse) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bytes.fromhex("16030100c8010000c40303") + bytes(190), "looks like TLS; this listener has no encryption"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP; this port speaks Kafka's protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "looks like HTTP/2"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "looks like SSH"),
    ],
    ids=["TLS", "HTTP", "HTTP/2", "SSH"],
)
async def test_strangers_are_named(data: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served(services()) as client:
        await client.stream.send_all(data)
        assert await client.frame() is None
    (record,) = caplog.records
    assert said in record.getMessage()


async def test_a_request_of_too_many_elements_closes(caplog: pytest.LogCaptureFixture) -> None:
    """A small frame may become very many objects; deep in it or as tagged fields of its header."""
    async with served(services()) as client:
        names = MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(ELEMENTS_MAX + 1)])
        assert await client.call(names, 1, MetadataResponse) is None
    async with served(services()) as client:
        await client.send_frame(b"\0\x12\0\x03\0\0\0\7\0\4test\xff\xff\x03" + b"\0\0" * 65535)
        assert await client.frame() is None
    assert "MetadataRequest v1: field topics at byte 18: the message has too many elements" in caplog.text
    assert "RequestHeader v2: field tagged fields at byte 14: 65535 tagged fields" in caplog.text


async def test_a_client_that_sends_a_byte_now_and_then_is_not_idle() -> None:
    """As in Kafka: bytes count as use, so a slow upload is not cut off."""
    async with served(services()) as client:
        started = client.connection.last_used
        for byte in (7).to_bytes(4, "big"):
            await trio.sleep(60)
            await client.stream.send_all(bytes([byte]))
        await trio.testing.wait_all_tasks_blocked()
        assert client.connection.last_used >= started + 240


async def test_a_client_that_reads_no_reply_is_closed_and_the_segments_are_released(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Slow readers and half-open connections: what they were to get must not be held for ever."""
    file = tmp_path / "segment"
    file.write_bytes(bytes(4_000_000))
    descriptor = os.open(file, os.O_RDONLY)
    leases = 0

    class Segment:
        def acquire(self) -> int:
            nonlocal leases
            leases += 1
            return descriptor

        def release(self) -> None:
            nonlocal leases
            leases -= 1

    segment: Any = Segment()
    ranges = [FileRange(segment, 0, 4_000_000) for _ in range(2)]

    async def long_reply(context: Any, request: Any) -> FetchResponse:
        data = [PartitionData(partition_index=number, records=found) for number, found in enumerate(ranges)]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])

    monkeypatch.setitem(HANDLERS, ApiKey.FETCH, (FetchRequest, long_reply))
    async with served(services()) as client:
        body = encode(FetchRequest(), 11)
        for _ in range(3):
            await client.request(ApiKey.FETCH, 11, body, flexible=False)
        began = trio.current_time()
        assert leases == 2
        while leases:
            await trio.sleep(1)
        assert SEND_TIMEOUT_S <= trio.current_time() - began <= SEND_TIMEOUT_S + 2
    os.close(descriptor)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["it reads no reply for 30 s"]


async def test_replies_that_nobody_reads_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A small request may have a large reply: whoever does not read it is cut off when very much waits already."""

    async def long_reply(context: Any, request: Any) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=bytes(2_000_000))

    monkeypatch.setitem(HANDLERS, ApiKey.SYNC_GROUP, (SyncGroupRequest, long_reply))
    memory = RequestMemory(3_000_000)
    body = encode(SyncGroupRequest(), 3)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served(services(), memory=memory)) for _ in range(3)]
        for client in clients:
            await client.request(ApiKey.SYNC_GROUP, 3, body, flexible=False)
            await trio.testing.wait_all_tasks_blocked()
        assert 4_000_000 < memory.reply_bytes < 5_000_000
        (record,) = caplog.records
        assert "bytes of replies wait for clients to read them" in record.getMessage()
        # Whoever reads after all gets all of it.
        assert len(await clients[0].frame() or b"") > 2_000_000
        await trio.testing.wait_all_tasks_blocked()
        assert 2_000_000 <= memory.reply_bytes < 3_000_000
    assert memory.reply_bytes == 0


async def test_memory_of_large_requests_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """queued.max.request.bytes: who comes later waits, who holds memory for long while others wait is closed."""
    memory = RequestMemory(400_000)
    frame = (b"\0\x12\0\x03\0\0\0\7\0\4test\0" + encode(NAMED, 3)).ljust(500_000, b"\0")
    async with served(services(), memory=memory) as slow, served(services(), memory=memory) as quick:
        await slow.stream.send_all(len(frame).to_bytes(4, "big") + frame[:100_000])
        await trio.testing.wait_all_tasks_blocked()
        assert memory.reserved_bytes == 500_000
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quick.send_frame, frame)
            assert await quick.frame() is not None
        assert RESERVATION_TIMEOUT_S <= trio.current_time() - began < RESERVATION_TIMEOUT_S + 1
        assert await slow.frame() is None
        await trio.testing.wait_all_tasks_blocked()
        assert memory.reserved_bytes == 0
    assert "has kept others waiting for 10 s (queued.max.request.bytes=400000)" in caplog.text


async def test_mutated_frames_are_answered_or_close() -> None:
    """Whatever arrives, the broker answers or closes; nothing escapes from the connection."""
    generator = random.Random(11)
    good = b"\0\x12\0\x03\0\0\0\7\0\4test\0" + encode(NAMED, 3)
    answered = closed = 0
    for _ in range(300):
        frame = bytearray(good)
        for _ in range(generator.randint(1, 3)):
            frame[generator.randrange(len(frame))] = generator.randrange(256)
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key in APIS and key != 18 and APIS[key].lowest <= version <= APIS[key].highest:
            continue  # would be served, by a handler that needs a broker
        async with served(services()) as client:
            await client.send_frame(bytes(frame))
            if await client.frame() is None:
                closed += 1
            else:
                answered += 1
    assert min(answered, closed) > 50


# -------------------------------------------------------------------------------------------------------- SASL


def sasl(max_reauth_ms: int = 0) -> SaslSession:
    plain = Mechanism(lambda: PlainExchange({"alice": "secret", "carol": "secret"}), max_reauth_ms)
    return SaslSession({"PLAIN": plain}, RECEIVE_SIZE_MAX, trio.current_time)


def handshake(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


async def test_sasl_plain() -> None:
    """P-13, P-16: versions, handshake, token; the answer carries an empty token. P-17: no session lifetime."""
    async with served(services(), sasl=sasl()) as client:
        assert (await client.call(NAMED, 4, ApiVersionsResponse)).error_code == 0
        assert (await client.call(handshake(), 1, SaslHandshakeResponse)).mechanisms == ["PLAIN"]
        token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
        response = await client.call(token, 2, SaslAuthenticateResponse)
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
        # The Java client asks for the versions again once it is authenticated.
        assert (await client.call(NAMED, 4, ApiVersionsResponse)).error_code == 0
        assert (await client.call(handshake(), 1, SaslHandshakeResponse)).error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_before_authentication_only_sasl_is_served() -> None:
    """P-13: any other key closes, and so does a second successful ApiVersions; a refused one may be repeated."""
    async with served(services(), sasl=sasl()) as client:
        assert await client.call(HeartbeatRequest(), 4, HeartbeatResponse) is None
    async with served(services(), sasl=sasl()) as client:
        bad = ApiVersionsRequest(client_software_name="", client_software_version="1")
        assert (await client.call(bad, 3, ApiVersionsResponse)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.call(NAMED, 3, ApiVersionsResponse)).error_code == 0
        assert await client.call(NAMED, 3, ApiVersionsResponse) is None


async def test_handshake_version_0_is_followed_by_bare_tokens() -> None:
    """P-14."""
    async with served(services(), sasl=sasl()) as client:
        assert (await client.call(handshake(), 0, SaslHandshakeResponse)).error_code == 0
        await client.send_frame(b"\0alice\0secret")
        assert await client.frame() == b""
        assert (await client.call(NAMED, 4, ApiVersionsResponse)).error_code == 0
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), 0, SaslHandshakeResponse)
        await client.send_frame(b"\0alice\0wrong")
        assert await client.frame() is None


async def test_an_unknown_mechanism_is_refused_with_the_list_and_the_connection_closed() -> None:
    """P-15."""
    async with served(services(), sasl=sasl()) as client:
        response = await client.call(handshake("GSSAPI"), 1, SaslHandshakeResponse)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ["PLAIN"]
        assert await client.frame() is None


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0bob\0secret", b"\0bob\0"])
async def test_failed_authentication_is_answered_late_and_closes(token: bytes) -> None:
    """P-16; P-18: a wrong user and a wrong password read the same."""
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), 1, SaslHandshakeResponse)
        before = trio.current_time()
        request = SaslAuthenticateRequest(auth_bytes=token)
        response = await client.call(request, 2, SaslAuthenticateResponse)
        assert trio.current_time() - before >= 0.1
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        if token.split(b"\0")[2]:
            assert response.error_message == "Authentication failed: Invalid username or password"
        assert await client.frame() is None


@pytest.mark.parametrize("version", [0, 1])
async def test_every_failed_login_is_delayed(version: int) -> None:
    """Kafka delays the end of a login after a refused mechanism, a wrong bare token and a request out of order too."""
    async with served(services(), sasl=sasl()) as client:
        before = trio.current_time()
        await client.call(handshake("GSSAPI"), version, SaslHandshakeResponse)
        assert trio.current_time() - before >= 0.1
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), version, SaslHandshakeResponse)
        before = trio.current_time()
        if version == 0:
            await client.send_frame(b"\0alice\0wrong")
        else:
            response = await client.call(HeartbeatRequest(), 4, HeartbeatResponse)
            assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.frame() is None
        assert trio.current_time() - before >= 0.1


async def test_a_client_logs_in_again_before_its_session_ends() -> None:
    """P-17: the lifetime is in the response; the first request after the end closes the connection."""
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    async with served(services(), sasl=sasl(max_reauth_ms=5000)) as client:
        for _ in range(3):
            assert (await client.call(handshake(), 1, SaslHandshakeResponse)).error_code == 0
            assert (await client.call(token, 2, SaslAuthenticateResponse)).session_lifetime_ms == 5000
            await trio.sleep(4)
            assert (await client.call(NAMED, 3, ApiVersionsResponse)).error_code == 0
        await trio.sleep(1.1)
        assert await client.call(NAMED, 3, ApiVersionsResponse) is None


async def test_another_user_may_not_log_in_again() -> None:
    """P-17."""
    async with served(services(), sasl=sasl(max_reauth_ms=5000)) as client:
        await client.call(handshake(), 1, SaslHandshakeResponse)
        await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2, SaslAuthenticateResponse)
        await client.call(handshake(), 1, SaslHandshakeResponse)
        other = SaslAuthenticateRequest(auth_bytes=b"\0carol\0secret")
        response = await client.call(other, 2, SaslAuthenticateResponse)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals during re-authentication from User.alice: User.carol" in response.error_message
        assert await client.frame() is None


async def test_frames_are_small_before_authentication() -> None:
    """P-7."""
    async with served(services(), sasl=sasl()) as client:
        await client.stream.send_all((RECEIVE_SIZE_MAX + 1).to_bytes(4, "big"))
        assert await client.frame() is None


async def test_a_closed_client_ends_the_connection_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async with served(services()) as client:
        await client.stream.send_all(b"\0\0")
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
    assert caplog.text == ""


async def test_no_order_of_requests_gets_around_authentication() -> None:
    """P-13: whatever a client sends in whatever order, before its password was right only SASL and versions answer."""
    generator = random.Random(13)
    for _ in range(200):
        async with served(services(), sasl=sasl()) as client:
            with suppress(trio.BrokenResourceError):  # closed after an answer that refuses
                for _ in range(6):
                    if not await send_something_before_authentication(client, generator):
                        break
            assert client.connection.info.principal == "User:ANONYMOUS"


async def send_something_before_authentication(client: Client, generator: random.Random) -> bool:
    """Send one random request; False once no further request can be answered on the connection."""
    choice = generator.randrange(7)
    if choice == 0:
        return await client.call(NAMED, 3, ApiVersionsResponse) is not None
    if choice in (1, 2):
        mechanism = generator.choice(["PLAIN", "PLAIN", "SCRAM-SHA-256"])
        return await client.call(handshake(mechanism), generator.randrange(2), SaslHandshakeResponse) is not None
    if choice in (3, 4):
        token = generator.choice([b"\0alice\0wrong", b"", b"\0\0", b"alice", b"\0alice\0secret\0"])
        request = SaslAuthenticateRequest(auth_bytes=token)
        response = await client.call(request, generator.randrange(3), SaslAuthenticateResponse)
        assert response is None or response.error_code
        return response is not None
    if choice == 5:
        await client.send_frame(generator.randbytes(generator.randrange(30)))
        assert await client.frame() is None
        return False
    response = await client.call(HeartbeatRequest(), 4, HeartbeatResponse)
    assert response is None or response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    return False


async def test_who_wants_to_hear_of_a_connections_end_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = trio.Event()

    async def listening(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        context.connection.when_closed("test", ended.set)
        return HeartbeatResponse()

    monkeypatch.setitem(HANDLERS, ApiKey.HEARTBEAT, (HeartbeatRequest, listening))
    async with served(services()) as client:
        await client.call(HeartbeatRequest(), 4, HeartbeatResponse)
        assert not ended.is_set()
        await client.stream.aclose()
        await ended.wait()
