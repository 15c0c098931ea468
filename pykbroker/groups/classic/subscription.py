"""Subscribed topics of classic consumers: the only part of their metadata that a broker reads."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.groups.classic.members import Member
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.steps import PIECE

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_SIZE = 2
_NO_TOPICS = b"\0\0\0\0"  # the number of topics
_NO_DATA = b"\xff\xff\xff\xff"  # null as the user data behind the topics
_KNOWN_MAX = 8


def subscribed_topics(
    protocol_type: str | None, protocol_name: str | None, members: Iterable[Member]
) -> frozenset[str] | None:
    """Topics of all members' subscriptions; None if the protocol is another one or a subscription cannot be read.

    Every version of a subscription begins like version 0, so it is read as that, as in Kafka.
    """
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    known: list[bytes] = []
    for member in members:
        if protocol_name is None:
            return None
        metadata = member.metadata(protocol_name)
        if len(metadata) < 2 or metadata[0] >= 0x80:
            return None
        try:
            _add_topics(metadata, topics, known)
        except DecodeError:
            return None
    return frozenset(topics)


def _add_topics(metadata: bytes, topics: set[str], known: list[bytes]) -> None:
    """Adds the topics of a member. `known` has the encoded topics of earlier members, as long as they are large.

    The members of a large group have the same topics, and a client lists these in the same order for each of them.
    Bytes of 5,000 names are compared in microseconds and decoded in a millisecond.

    Raises:
        DecodeError: it cannot be read.
    """
    for encoded in known:
        if metadata.startswith(encoded, _VERSION_SIZE):
            # What comes behind the topics is read as before.
            decode(ConsumerProtocolSubscription, 0, _NO_TOPICS + metadata[_VERSION_SIZE + len(encoded) :])
            return
    own = decode(ConsumerProtocolSubscription, 0, metadata[_VERSION_SIZE:]).topics
    topics.update(own)
    if len(own) > PIECE and len(known) < _KNOWN_MAX:
        encoded = encode(ConsumerProtocolSubscription(topics=own, user_data=None), 0)[: -len(_NO_DATA)]
        if metadata.startswith(encoded, _VERSION_SIZE):
            known.append(encoded)
