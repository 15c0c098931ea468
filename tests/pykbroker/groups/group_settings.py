"""Settings of groups for tests: Kafka's defaults, and others by the names of Kafka's keys."""

from __future__ import annotations

from typing import Any, TypeVar

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.values import GroupValues, MemberTimeValues
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.share.settings import ShareGroupSettings
from pykbroker.groups.streams.settings import StreamsGroupSettings

Settings = TypeVar("Settings", ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings)

DEFAULT_SETTINGS = GroupSettings.from_config(BrokerConfig.from_properties({}))


def classic_settings(**values: Any) -> GroupSettings:
    """The defaults with other values for classic groups or for offsets."""
    names = GroupValues.__annotations__.keys() - set(GroupSettings._fields)
    classic = {name: values.pop(name) for name in names & values.keys()}
    return DEFAULT_SETTINGS._replace(classic=DEFAULT_SETTINGS.classic.replaced(**classic), **values)


def with_values(settings: Settings, **values: Any) -> Settings:
    """Settings with other values, of its own fields or of its members' times."""
    times = {name: values.pop(name) for name in MemberTimeValues.__annotations__ if name in values}
    return settings._replace(times=settings.times.replaced(**times), **values)
