"""Requests that concern many topics are served in turns: others go on meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.describe_configs import handle_describe_configs
from pykbroker.handlers.describe_log_dirs import handle_describe_log_dirs
from pykbroker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.handlers.metadata import handle_metadata
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.requests.context import RequestContext
from tests.support.admin import make_context, make_services
from tests.support.data_path import DataPath, cluster_image, topic_image
from tests.support.services import Services
from tests.support.ticking_clock import TickingClock

TOPICS = 400


def _turns_of(handler: Any, context: RequestContext[Services], request: Any) -> int:
    """Number of times that another task runs before the request is answered."""
    turns = 0

    async def other(answers: list[Any]) -> None:
        nonlocal turns
        while not answers:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other, answers)
            answers.append(await handler(context, request))

    trio.run(main, clock=TickingClock())
    return turns


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (handle_metadata, 12, MetadataRequest(topics=None)),
        (handle_describe_topic_partitions, 0, DescribeTopicPartitionsRequest()),
        (
            handle_describe_configs,
            4,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=2, resource_name=f"t{n}", configuration_keys=None)
                    for n in range(TOPICS)
                ]
            ),
        ),
    ],
)
def test_of_the_metadata(handler: Any, version: int, request_: Any) -> None:
    services = make_services()
    topics = [NewTopic(f"t{n}", 2) for n in range(TOPICS)]
    services.controller.submit_now(CreateTopics(topics))  # type: ignore[attr-defined]
    assert _turns_of(handler, make_context(version, services=services), request_) > 5


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (handle_describe_log_dirs, 4, DescribeLogDirsRequest(topics=None)),
        (
            handle_list_offsets,
            7,
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(20)],
                    )
                ],
            ),
        ),
    ],
)
def test_of_logs(handler: Any, version: int, request_: Any, tmp_path: Path) -> None:
    path = DataPath(tmp_path, cluster_image(topic_image("t", 20)))
    try:
        assert _turns_of(handler, make_context(version, services=path.services), request_) > 5
    finally:
        path.close()
