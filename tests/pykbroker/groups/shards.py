"""Shards of groups for tests, over topics that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.shard import GroupShard


def make_shard(
    settings: GroupSettings | None = None,
    image: ClusterImage = EMPTY_IMAGE,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> GroupShard:
    """A shard over the topics of an image; `configs` are dynamic configs by group id."""
    settings = settings or GroupSettings()
    found = {} if configs is None else configs
    groups = ConsumerGroups(settings.consumer, GroupTopics(image), lambda group_id: found.get(group_id, {}))
    return GroupShard(settings, groups)
