"""Shards of groups for tests, over topics that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.groups.assignors.streams import sticky
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.streams.groups import StreamsGroups
from tests.pykbroker.groups.group_settings import DEFAULT_CONFIG


def make_shard(
    config: BrokerConfig = DEFAULT_CONFIG,
    image: ClusterImage = EMPTY_IMAGE,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> GroupShard:
    """A shard over the topics of an image; `configs` are dynamic configs by group id."""
    found = {} if configs is None else configs

    def configs_of(group_id: str) -> Mapping[str, str]:
        return found.get(group_id, {})

    topics = GroupTopics(image)
    consumer = ConsumerGroups(config.consumer_groups, topics, configs_of)
    share = ShareGroups(config.share_groups, topics, configs_of)
    return GroupShard(config, consumer, share, StreamsGroups(config.streams_groups, topics, configs_of, sticky.assign))
