"""CreateTopics (key 19).

Versions 2-7. v4 -1 for the broker's defaults (KIP-464); v5 flexible, and the answer has partition count, replication
factor and all configs (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED (P-272); v7 topic ids. The controller has the
checks and their error messages (P-143 to P-147). A topic can be produced to as soon as the response arrives.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pykbroker.config.descriptions import ConfigViews
from pykbroker.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.errors import KafkaError
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import string_hash
from pykbroker.protocol.acl_codes import CREATE, DESCRIBE_CONFIGS, TOPIC
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from pykbroker.requests.controller_calls import charge_of, is_too_late, submit_command

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.config.descriptions import ConfigEntry
    from pykbroker.controller.metadata.topics import CreateTopicResult
    from pykbroker.protocol.messages.create_topics import CreateTopicsRequest
    from pykbroker.requests.context import NodeContext

CONFIG_ECHO_VERSION = 5


async def handle_create_topics(context: NodeContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Creates each topic independently: a refused topic does not affect the others."""
    counts = Counter(topic.name for topic in request.topics)
    refused = await _refused(context, counts)
    command = CreateTopics(
        [
            NewTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
                [(config.name, config.value) for config in topic.configs],
            )
            async for topic in EachInTurns(request.topics)
            if topic.name not in refused
        ],
        request.validate_only,
        charge_of(context),
    )
    if is_too_late(request.timeout_ms) and _has_work(command):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    results = await submit_command(context, command, request.timeout_ms)
    configs = _CreatedConfigs(context)
    answers = {result.name: _result(context, result, configs) async for result in EachInTurns(results)}
    for name in refused:
        answers[name] = CreatableTopicResult(
            name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
        )
    return CreateTopicsResponse(topics=[answers[name] for name in await _order(counts, refused)])


async def _order(counts: Counter[str], refused: Collection[str]) -> list[str]:
    """Names in the order of Kafka's response: as in the request, then those given twice, then those not passed on."""
    twice = [name for name, count in counts.items() if count > 1]
    last = {
        name for name, count in counts.items() if count == 1 and (name in refused or name == CLUSTER_METADATA_TOPIC)
    }
    if not twice and not last:
        return [*counts]
    return [
        *(name for name, count in counts.items() if count == 1 and name not in last),
        *await in_turns(table_order_in_steps(twice, string_hash)),
        *(name for name in await in_turns(table_order_in_steps(counts, string_hash)) if name in last),
    ]


def _has_work(command: CreateTopics) -> bool:
    """False if all topics are refused before Kafka's controller has anything to do for them."""
    counts = Counter(topic.name for topic in command.topics)
    return any(count == 1 and name != CLUSTER_METADATA_TOPIC for name, count in counts.items())


async def _refused(context: NodeContext, counts: Counter[str]) -> Collection[str]:
    """Topics that the client may not create; the controller refuses duplicate names and `__cluster_metadata`.

    Args:
        context: of the request.
        counts: how often the request has each name.
    """
    if context.authorize_cluster(CREATE):
        return ()
    names = [name for name, count in counts.items() if count == 1 and name != CLUSTER_METADATA_TOPIC]
    return await context.refused_in_turns(CREATE, TOPIC, names)


class _CreatedConfigs:
    """Encoded configs of created topics. Topics of one request with the same settings share them."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._by_settings: dict[tuple[tuple[str, str], ...], list[Any]] = {}

    def of(self, settings: tuple[tuple[str, str], ...]) -> list[Any]:
        """All configs of a new topic with these settings of its own, each encoded."""
        if settings not in self._by_settings:
            services, version = self._context.services, self._context.api_version
            views = ConfigViews(services.config, services.metadata.config, services.metadata.image, services.node_id)
            self._by_settings[settings] = [
                encode_element(CreateTopicsResponse, _shown(entry), version)
                for entry in views.created_topic(dict(settings))
            ]
        return self._by_settings[settings]


def _shown(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )


def _result(context: NodeContext, result: CreateTopicResult, configs: _CreatedConfigs) -> CreatableTopicResult:
    answer = CreatableTopicResult(
        name=result.name, error_code=result.error.code, error_message=result.error.message, topic_id=result.topic_id
    )
    if not result.error.is_failure and context.api_version >= CONFIG_ECHO_VERSION:
        if not context.authorize(DESCRIBE_CONFIGS, TOPIC, result.name):
            answer.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return answer
        answer.num_partitions = result.partition_count
        answer.replication_factor = result.replication_factor
        answer.configs = configs.of(tuple(result.configs))
    return answer
