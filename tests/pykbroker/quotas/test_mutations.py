"""The quota on creating and deleting partitions, as clients of each API and version see it (KIP-599)."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.create_partitions import handle_create_partitions
from pykbroker.handlers.create_topics import handle_create_topics
from pykbroker.handlers.delete_topics import handle_delete_topics
from pykbroker.handlers.envelope import handle_envelope
from pykbroker.handlers.metadata import handle_metadata
from pykbroker.network.dispatch import dispatch
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.steps import finished
from pykbroker.quotas.throttling import QUOTA_EXCEEDED_MESSAGE, quota_of_request
from pykbroker.requests.context import RequestContext
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ListenerKind
from tests.controller.world import World
from tests.pykbroker.handlers.test_envelope import at_controller, envelope, framed
from tests.pykbroker.quotas.test_node_quotas import quotas_of, record_of
from tests.support.admin import beside_tasks, make_context, make_services
from tests.support.services import Services

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def limited(per_second: float = 1.0, user: str = "ANONYMOUS") -> Services:
    """Services with a quota of a user, whose burst is 11 times the limit."""
    services = make_services()
    services.quotas.active = quotas_of(record_of("controller_mutation_rate", per_second, user=user))
    return services


async def call(services: Services, handler: Any, request: Any, version: int) -> Any:
    """The response as `dispatch` sends it."""
    context = make_context(version, services=services, api_key=ApiKey(request.KEY))
    assert services.quotas.active is not None
    context.quota = quota_of_request(
        services.quotas.active, context.connection, context.client_id, request.KEY, version, 100
    )
    response = await handler(context, request)
    if context.quota is not None:
        context.quota.answer(request, response)
    return response


def create(*topics: tuple[str, int], validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics],
        timeout_ms=1000,
        validate_only=validate_only,
    )


def names(services: Services) -> set[str]:
    return set(services.metadata.image.topics_by_name)


async def test_a_command_that_is_planned_again_is_counted_once() -> None:
    """P-272: the queue plans a round again if the log has grown meanwhile (`CommandQueue.finish_round`)."""
    world, services = World(), limited()
    context = make_context(7, services=services, api_key=ApiKey.CREATE_TOPICS)
    quotas = services.quotas.active
    assert quotas is not None
    quota = quota_of_request(quotas, context.connection, context.client_id, ApiKey.CREATE_TOPICS, 7, 100)
    assert quota is not None
    command = CreateTopics([NewTopic(name, 8, 1) for name in "abc"], charge=quota.charge_mutations)
    for _ in range(3):
        results = finished(command.plan_in_steps(world.image, world.context())).result
        assert [(result.name, result.error.code) for result in results] == [("a", 0), ("b", 0), ("c", EXCEEDED)]
    response = CreateTopicsResponse()
    quota.answer(CreateTopicsRequest(), response)
    assert response.throttle_time_ms == 5000


async def test_topics_beyond_the_quota_are_refused() -> None:
    """P-159, P-272: the operation that takes the last token is carried out, whatever its size."""
    services = limited()
    response = await call(services, handle_create_topics, create(("a", 8), ("b", 8), ("c", 1)), 7)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 0), ("b", 0), ("c", EXCEEDED)]
    assert response.topics[2].error_message == QUOTA_EXCEEDED_MESSAGE
    assert response.throttle_time_ms == 5000
    assert names(services) == {"a", "b"}
    await trio.sleep(5.001)
    assert (await call(services, handle_create_topics, create(("c", 1)), 7)).topics[0].error_code == 0


async def test_what_is_only_validated_counts_too() -> None:
    """P-272."""
    services = limited()
    await call(services, handle_create_topics, create(("a", 20), validate_only=True), 7)
    response = await call(services, handle_create_topics, create(("a", 1)), 7)
    assert response.topics[0].error_code == EXCEEDED
    assert response.throttle_time_ms == pytest.approx(9000, abs=5)


async def test_topics_that_are_refused_for_another_reason_do_not_count() -> None:
    services = limited()
    response = await call(services, handle_create_topics, create(("a/b", 50), ("a", 11), ("b", 1), ("c", 1)), 7)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0, EXCEEDED]


async def test_old_versions_are_carried_out_and_throttled() -> None:
    """P-273: a client that does not know the error waits after its request."""
    services = limited()
    response = await call(services, handle_create_topics, create(("a", 8), ("b", 8), ("c", 1)), 5)
    assert [topic.error_code for topic in response.topics] == [0, 0, 0]
    assert response.throttle_time_ms == 6000
    assert names(services) == {"a", "b", "c"}


@pytest.mark.parametrize(("version", "code"), [(4, 0), (5, EXCEEDED), (6, EXCEEDED)])
async def test_deletion(version: int, code: int) -> None:
    """P-272, P-273: all partitions of a topic count."""
    services = limited(4.0)
    await call(services, handle_create_topics, create(("a", 20), ("b", 20)), 7)
    await call(services, handle_create_topics, create(("c", 10)), 7)
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000)
    if version == 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")], timeout_ms=1000)
    response = await call(services, handle_delete_topics, request, version)
    assert [result.error_code for result in response.responses] == [code, code]
    assert bool(names(services) & {"a", "b"}) == bool(code)
    assert response.throttle_time_ms


@pytest.mark.parametrize(("version", "code"), [(2, 0), (3, EXCEEDED)])
async def test_more_partitions(version: int, code: int) -> None:
    """P-272, P-273: only the new partitions count."""
    services = limited(4.0)
    await call(services, handle_create_topics, create(("a", 40)), 7)

    def grown(count: int) -> CreatePartitionsRequest:
        topic = CreatePartitionsTopic(name="a", count=count, assignments=None)
        return CreatePartitionsRequest(topics=[topic], timeout_ms=1000)

    response = await call(services, handle_create_partitions, grown(46), version)
    assert response.results[0].error_code == 0
    response = await call(services, handle_create_partitions, grown(47), version)
    assert response.results[0].error_code == code
    assert len(services.metadata.image.topics_by_name["a"].partitions) == (46 if code else 47)


async def test_topics_made_by_first_use_count() -> None:
    """P-273: Metadata names the topic as unknown, and it is not made."""
    services = limited()
    await call(services, handle_create_topics, create(("a", 20)), 7)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    response = await beside_tasks(services, call, services, handle_metadata, request, 9)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.throttle_time_ms == 0
    assert names(services) == {"a"}
    await trio.sleep(10)
    await beside_tasks(services, call, services, handle_metadata, request, 9)
    assert names(services) == {"a", "new"}


async def test_a_forwarded_request_counts_for_the_client_that_sent_it() -> None:
    """P-272: inside an Envelope the throttle time goes to the broker, which mutes the client."""
    services = limited(user="alice")
    context: RequestContext[Services] = at_controller(services)
    await handle_envelope(context, envelope(framed(create(("a", 20)), 7)))
    response = await handle_envelope(context, envelope(framed(create(("b", 1)), 7)))
    created = decode(CreateTopicsResponse, 7, bytes(response.response_data or b"")[5:])
    assert created.topics[0].error_code == EXCEEDED
    assert created.throttle_time_ms == pytest.approx(9000, abs=5)
    assert context.connection.muted_until == 0


async def test_the_time_of_a_forwarded_request_counts_at_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-312: the client that sent it is throttled, by the broker."""
    services = make_services()
    services.quotas.active = quotas_of(record_of("request_percentage", 0.15, user="alice"))

    async def handle(context: Any, request: CreateTopicsRequest) -> CreateTopicsResponse:
        ends = time.perf_counter() + 0.02
        while time.perf_counter() < ends:
            pass
        return CreateTopicsResponse(topics=[])

    monkeypatch.setitem(handlers_of[ListenerKind.CONTROLLER], ApiKey.CREATE_TOPICS, (CreateTopicsRequest, handle))
    context: RequestContext[Services] = at_controller(services)
    response = await handle_envelope(context, envelope(framed(create(("a", 1)), 7)))
    created = decode(CreateTopicsResponse, 7, bytes(response.response_data or b"")[5:])
    assert created.throttle_time_ms == 1000
    assert context.connection.muted_until == 0


async def test_the_broker_applies_the_controllers_throttle_time() -> None:
    """P-272: the longer of the controller's and its own."""
    services = limited()
    reply = CreateTopicsResponse(throttle_time_ms=700, topics=[])

    class RemoteController:
        """A channel to a controller that throttles."""

        is_local = False

        async def forward(self, connection: Any, frame: bytes) -> bytes:
            return b"\0\0\0\x2a\0" + encode(reply, 7)

    channel: Any = RemoteController()
    services = services.replaced(channel=channel)
    context = make_context(services=services)
    frame = memoryview(framed(create(("a", 1)), 7))
    chunks = await dispatch(services, context.connection, frame)
    assert isinstance(chunks, list)
    sent = b"".join(bytes(chunk) for chunk in chunks)
    assert sent[4:] == b"\0\0\0\x2a\0" + encode(reply, 7)
    assert context.connection.muted_until == pytest.approx(trio.current_time() + 0.7)
