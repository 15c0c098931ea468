"""Creation of the internal topics of Streams groups by the broker, in the name of the client (KIP-1071)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.topics import BROKER_DEFAULT, NewTopic
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.groups.streams.configured import InternalTopic, StatusCode
from pykbroker.protocol.acl_codes import CREATE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from pykbroker.requests.auto_topic_creation import create_topics

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext

log = logging.getLogger(__name__)

FAILURES_NAMED = 3
"""Number of failures that a status names before it counts the rest."""
HEARTBEATS_OF_BACK_OFF = 2
"""A failed creation is tried again after this many heartbeat intervals of the group."""


def create_missing(
    context: BrokerContext, group_id: str, response: StreamsGroupHeartbeatResponse, missing: Mapping[str, InternalTopic]
) -> None:
    """Starts the creation of topics, and adds refusals and recent failures to the response.

    The topics are created after the response, so a failure is in the response to the member's next heartbeat.
    """
    refused = set() if context.authorize_cluster(CREATE) else set(context.refused(CREATE, TOPIC, missing))
    if refused:
        names = ", ".join(name for name in missing if name in refused)
        _add_detail(response, f"Unauthorized to CREATE on topics {names}.")
        return
    streams = context.services.groups.streams
    now_ms = context.services.clock.now_ms()
    wanted = streams.creation.begin(missing, now_ms) if streams.nursery is not None else []
    if wanted and streams.nursery is not None:
        back_off_ms = HEARTBEATS_OF_BACK_OFF * streams.heartbeat_interval_ms(group_id)
        streams.nursery.start_soon(_create, context, [missing[name] for name in wanted], back_off_ms)
    failures = streams.creation.failures(missing, now_ms)
    if failures:
        named = ", ".join(f"{name} ({text})" for name, text in list(failures.items())[:FAILURES_NAMED])
        more = len(failures) - FAILURES_NAMED
        _add_detail(response, f"Creation failed: {named}{f' and {more} more' if more > 0 else ''}.")


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"


async def _create(context: BrokerContext, topics: Iterable[InternalTopic], back_off_ms: int) -> None:
    wanted = [
        NewTopic(
            topic.name,
            topic.partition_count,
            topic.replication_factor or BROKER_DEFAULT,
            configs=tuple(topic.configs.items()),
        )
        for topic in topics
    ]
    names = [topic.name for topic in wanted]
    failures: dict[str, str] = {}
    try:
        results = await create_topics(context, wanted)
        failures = {name: error.message or ErrorCode(error.code).name for name, error in results if error.is_failure}
    except CommandRefused as refused:
        failures = dict.fromkeys(names, refused.error.message or ErrorCode(refused.error.code).name)
    except (KafkaError, CloseConnection) as error:
        failures = dict.fromkeys(names, str(error))
    finally:
        creation = context.services.groups.streams.creation
        creation.end(names, failures, context.services.clock.now_ms(), back_off_ms)
    for name, text in failures.items():
        log.warning("internal topic %s of a Streams group could not be created: %s", name, text)
