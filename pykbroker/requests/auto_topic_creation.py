"""Topics that the broker creates itself: those named in a client's Metadata request, and internal ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError, CommandRefused
from pykbroker.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC, reason_invalid
from pykbroker.controller.metadata.topics import BROKER_DEFAULT, CreateTopics, NewTopic
from pykbroker.coordination.internal_topic import offsets_topic, share_state_topic, transaction_topic
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker.requests.controller_calls import charge_of, forwarded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.requests.context import BrokerContext, NodeContext

log = logging.getLogger(__name__)

CREATION_WAIT_S = 1.0
"""Longest wait of a Metadata request for the topics that it creates, as when no controller is active."""


def new_topic(name: str, config: BrokerConfig, broker_count: int) -> NewTopic:
    """Settings of a new topic: from the keys of an internal topic, else from the defaults.

    As in Kafka num.partitions and default.replication.factor of this broker are used if they are set; otherwise the
    active controller uses its own. The replication factor of an internal topic is at most the number of brokers,
    as a single node could otherwise never create one (P-89).
    """
    if name == OFFSETS_TOPIC:
        internal = offsets_topic(config.groups, broker_count)
    elif name == TRANSACTION_TOPIC:
        internal = transaction_topic(config.transactions, broker_count)
    elif name == SHARE_STATE_TOPIC:
        internal = share_state_topic(config.share_coordinator, broker_count)
    else:
        given = config.static_properties
        return NewTopic(
            name,
            config.topics.num_partitions if "num.partitions" in given else BROKER_DEFAULT,
            config.topics.default_replication_factor if "default.replication.factor" in given else BROKER_DEFAULT,
        )
    return NewTopic(
        name, internal.partition_count, internal.replication_factor, configs=tuple(internal.configs.items())
    )


async def create_missing_topics(context: BrokerContext, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Creates topics that a client named, and returns the error code of each for the Metadata response (P-23).

    A valid name gets UNKNOWN_TOPIC_OR_PARTITION at first, as in Kafka, where the topic is created after the response;
    here it exists when the client repeats the request, if the controller answers within `CREATION_WAIT_S`. A failed
    creation is logged, and the client sees that the topic does not exist. The new partitions count for the client's
    quota on mutations.
    """
    services = context.services
    codes: dict[str, ErrorCode] = {}
    broker_count = services.metadata.expected_broker_count
    wanted: list[NewTopic] = []
    for name in names:
        if reason_invalid(name) is not None:
            codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            continue
        codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name != CLUSTER_METADATA_TOPIC:
            wanted.append(new_topic(name, services.config, broker_count))
    if wanted:
        await services.background.start(_create_missing, context, wanted, wait_s=CREATION_WAIT_S)
    return codes


async def _create_missing(context: BrokerContext, wanted: list[NewTopic]) -> None:
    try:
        errors = await create_topics(context, wanted)
    except (CommandRefused, KafkaError, CloseConnection) as error:
        # An active controller that is older than this broker does not know the version of the request. The client's
        # own request, which names the topics, is answered all the same, as in Kafka's AutoTopicCreationManager.
        log.warning("topics %s could not be created: %s", ", ".join(topic.name for topic in wanted), error)
        return
    for name, failure in errors:
        if failure.is_failure and failure.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            log.warning("topic %s could not be created: %s", name, failure.message or ErrorCode(failure.code).name)


async def create_topics(context: NodeContext, wanted: list[NewTopic]) -> list[tuple[str, ApiError]]:
    """Name and error of each topic. A remote active controller gets the request in the client's name, as in Kafka."""
    timeout_ms = context.services.config.request_timeout_ms
    answer = await forwarded(context, create_request(wanted, timeout_ms))
    if answer is not None:
        return [(topic.name, ApiError(topic.error_code, topic.error_message)) for topic in answer.topics]
    results = await context.services.controller.submit(CreateTopics(wanted, charge=charge_of(context)), timeout_ms)
    return [(result.name, result.error) for result in results]


def create_request(topics: Iterable[NewTopic], timeout_ms: int) -> CreateTopicsRequest:
    """CreateTopics request for topics, without assignments of replicas."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
    )
