"""A broker in a value: real commands on a real image, without log, sockets or time. For tests of admin handlers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.controller_rules import ServerConfigRules
from pykbroker.controller.metadata import image_builder
from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.commands import Command, PlanContext, plan_in_steps
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage, Endpoint
from pykbroker.coordination.runtime import CoordinatorEnvironment
from pykbroker.errors import KafkaError
from pykbroker.metadata.advertised_listeners import broker_listeners, host_to_advertise
from pykbroker.metadata.controller_channel import ControllerChannel
from pykbroker.metadata.metadata_cache import MetadataCache
from pykbroker.metadata.producer_ids import ProducerIds
from pykbroker.node.controller_server import call as call_locally
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.log_messages.metadata_records import FeatureLevelRecord
from pykbroker.protocol.steps import finished
from pykbroker.requests.background_tasks import BackgroundTasks
from pykbroker.requests.context import RequestContext
from pykbroker.requests.invocation import failed
from pykbroker.security.connection_info import ConnectionInfo
from pykbroker.telemetry.client_telemetry import ClientTelemetry
from pykbroker.transactions.coordinator import TransactionCoordinator
from tests.support.services import Services

R = TypeVar("R")

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
DIRECTORY_ID = b"directory-id-of"


def apply_records(image: ClusterImage, records: Iterable[Any]) -> ClusterImage:
    return image_builder.apply_records(image, list(records), offset=image.offset + 1, epoch=1, timestamp_ms=0)


class FakeController:
    """Plans commands as the controller does and applies them at once; `commands` has all that were submitted."""

    def __init__(self, cache: MetadataCache, config: BrokerConfig) -> None:
        self.cache = cache
        self.commands: list[Any] = []
        self.failure: Exception | None = None
        self._config = config
        self._random = random.Random(7)

    is_leader = True
    kraft_version = 0

    @property
    def image(self) -> ClusterImage:
        return self.cache.image

    def plan_context(self) -> PlanContext:
        return PlanContext(
            next_offset=self.image.offset + 1,
            random=self._random,
            partition_count_default=self._config.topics.num_partitions,
            replication_factor_default=self._config.topics.default_replication_factor,
            config_rules=ServerConfigRules(self._config),
            supported_features=SUPPORTED_FEATURES,
            node_id=self._config.node_id,
            voter_ids=frozenset({self._config.node_id}),
        )

    def submit_now(self, command: Command[R]) -> R:
        plan = finished(plan_in_steps(command, self.image, self.plan_context()))
        self.commands.append(command)
        if plan.records:
            self.cache.apply(self.image, apply_records(self.image, plan.records))
        return plan.result

    async def submit(self, command: Command[R], timeout_ms: int) -> R:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        return self.submit_now(command)


def _own_endpoints(config: BrokerConfig) -> list[Endpoint]:
    return [
        Endpoint(address.name, host_to_advertise(address), address.port, address.security_protocol_id)
        for address in broker_listeners(config)
    ]


def make_services(properties: Mapping[str, str] | None = None, broker_ids: Iterable[int] = (1,)) -> Services:
    """Services with a fake controller and some registered brokers; parts that admin does not use are None."""
    config = BrokerConfig.from_properties(properties or {})
    cache = MetadataCache(config, config.node_id)
    controller = FakeController(cache, config)
    cache.image = apply_records(EMPTY_IMAGE, [FeatureLevelRecord(name="metadata.version", feature_level=30)])
    for broker_id in broker_ids:
        controller.submit_now(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=bytes(15) + bytes([broker_id]),
                endpoints=(
                    _own_endpoints(config)
                    if broker_id == config.node_id and "listeners" in config.static_properties
                    else [Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)]
                ),
                features=SUPPORTED_FEATURES,
                log_dirs=[DIRECTORY_ID + bytes([broker_id])],
                is_fenced=False,
            )
        )
    unused: Any = None

    async def call_controller(message: Any) -> Any:
        return await call_locally(services, message)

    channel = ControllerChannel(
        controller,  # type: ignore[arg-type]
        unused,
        unused,
        call_controller,
        client_id="test",
        request_timeout_ms=1000,
    )
    producer_ids = ProducerIds(channel, cache, config.node_id)
    transactions = TransactionCoordinator(
        config,
        CoordinatorEnvironment(config.node_id, unused, unused, cache, unused),
        next_producer_id=producer_ids.next,
        write_marker=unused,
        connect=unused,
    )
    services = Services(
        config=config,
        cluster_id=CLUSTER_ID,
        node_id=config.node_id,
        metadata=cache,
        partitions=unused,
        controller=controller,
        groups=unused,
        transactions=transactions,
        share_state=unused,
        producer_ids=producer_ids,
        fetch_sessions=unused,
        telemetry=ClientTelemetry(cache),
        background=BackgroundTasks(),
        log_directory=unused,
        clock=unused,
        random=random.Random(11),
        run_in_thread=unused,
        channel=channel,
    )
    return services


def make_context(
    version: int = 0,
    *,
    services: Services | None = None,
    properties: Mapping[str, str] | None = None,
    broker_ids: Iterable[int] = (1,),
    listener_name: str = "PLAINTEXT",
    local: tuple[str, int] = ("127.0.0.1", 9092),
    client_id: str = "test",
    api_key: ApiKey = ApiKey.METADATA,
) -> RequestContext[Services]:
    return RequestContext(
        services or make_services(properties, broker_ids),
        ConnectionInfo(listener_name, ("127.0.0.1", 50000), local, None),
        api_key,
        version,
        1,
        client_id,
    )


def call(handler: Any, context: RequestContext[Services], request: Any) -> Any:
    """Runs a handler to its answer, beside the broker's tasks for requests."""
    return trio.run(beside_tasks, context.services, handler, context, request)


async def beside_tasks(services: Services, ask: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Runs `ask` beside the broker's tasks for requests; returns or raises as it does."""
    answer: Any = None
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(services.background.run)
        nursery.start_soon(services.producer_ids.run)
        try:
            answer = await ask(*arguments)
        except Exception as error:
            # Out of the nursery it would come in a group.
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return answer


def answer(handler: Any, context: RequestContext[Services], request: Any) -> Any:
    """Runs a handler to its answer as the client reads it: an error is a response, and no part is encoded already."""
    return trio.run(answer_beside_tasks, handler, context, request)


async def answer_beside_tasks(handler: Any, context: RequestContext[Services], request: Any) -> Any:
    """As `answer`, within a run of trio."""
    try:
        response = await beside_tasks(context.services, handler, context, request)
    except KafkaError as error:
        response = failed(context, request, error)
    return decode(type(response), context.api_version, encode(response, context.api_version))
