"""Subscribed topics of classic consumers: the only part of their metadata that a broker reads."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.groups.classic.members import Member
from pykbroker.protocol.codec import decode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(
    protocol_type: str | None, protocol_name: str | None, members: Iterable[Member]
) -> frozenset[str] | None:
    """Topics of all members' subscriptions; None if the protocol is another one or a subscription cannot be read.

    Every version of a subscription begins like version 0, so it is read as that, as in Kafka.
    """
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in members:
        if protocol_name is None:
            return None
        metadata = member.metadata(protocol_name)
        if len(metadata) < 2 or metadata[0] >= 0x80:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, metadata[2:]).topics)
        except DecodeError:
            return None
    return frozenset(topics)
