"""Shards of groups for tests, over topics that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.groups.assignors.streams import sticky
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.streams.groups import StreamsGroups
from tests.pykbroker.groups.group_settings import DEFAULT_SETTINGS


def make_shard(
    settings: GroupSettings | None = None,
    image: ClusterImage = EMPTY_IMAGE,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> GroupShard:
    """A shard over the topics of an image; `configs` are dynamic configs by group id."""
    settings = settings or DEFAULT_SETTINGS
    found = {} if configs is None else configs

    def configs_of(group_id: str) -> Mapping[str, str]:
        return found.get(group_id, {})

    topics = GroupTopics(image)
    consumer = ConsumerGroups(settings.consumer, topics, configs_of)
    share = ShareGroups(settings.share, topics, configs_of)
    return GroupShard(settings, consumer, share, StreamsGroups(settings.streams, topics, configs_of, sticky.assign))
