"""Settings of the newer group kinds for tests, by the names of Kafka's keys."""

from __future__ import annotations

from typing import Any, TypeVar

from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.modern.settings import MemberTimes
from pykbroker.groups.share.settings import ShareGroupSettings
from pykbroker.groups.streams.settings import StreamsGroupSettings

Settings = TypeVar("Settings", ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings)


def with_values(settings: Settings, **values: Any) -> Settings:
    """Settings with other values, of its own fields or of its members' times."""
    times = {name: values.pop(name) for name in MemberTimes._fields if name in values}
    return settings._replace(times=settings.times._replace(**times), **values)
