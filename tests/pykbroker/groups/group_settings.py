"""Settings of groups for tests: Kafka's defaults, and others by the names of Kafka's keys."""

from __future__ import annotations

from typing import Any, TypeVar

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.groups.classic.settings import ClassicGroupSettings
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.modern.settings import MemberTimes
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.share.settings import ShareGroupSettings
from pykbroker.groups.streams.settings import StreamsGroupSettings

Settings = TypeVar("Settings", ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings)

DEFAULT_SETTINGS = GroupSettings.from_config(BrokerConfig.from_properties({}))


def classic_settings(**values: Any) -> GroupSettings:
    """The defaults with other values for classic groups or for offsets."""
    classic = {name: values.pop(name) for name in ClassicGroupSettings._fields if name in values}
    return DEFAULT_SETTINGS._replace(classic=DEFAULT_SETTINGS.classic._replace(**classic), **values)


def with_values(settings: Settings, **values: Any) -> Settings:
    """Settings with other values, of its own fields or of its members' times."""
    times = {name: values.pop(name) for name in MemberTimes._fields if name in values}
    return settings._replace(times=settings.times._replace(**times), **values)
