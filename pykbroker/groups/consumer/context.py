"""The context of a heartbeat of a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykbroker.config.values import ConsumerGroupValues
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import RegexRefresh


@dataclass(slots=True)
class HeartbeatContext:
    """Context of a heartbeat: settings, topics, time and client.

    Attributes:
        settings: settings of this group.
        topics: the topics of the cluster.
        now_ms: time in ms since the epoch.
        client_id, client_host: of the client; the host in Java's notation.
        may_describe: returns True if the client may DESCRIBE a topic; for regular expressions.
        regex_refresh: the resolution of regular expressions that the coordinator has to run; set by the operation.
    """

    settings: ConsumerGroupValues
    topics: GroupTopics
    now_ms: int
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool]
    regex_refresh: RegexRefresh | None = None
