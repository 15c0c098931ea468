"""The clients that push metrics, and the rules for their requests (KIP-714; P-202). Pure: time is an argument.

A client instance is removed after three push intervals without a request (at least a minute), or when more than
`INSTANCE_COUNT_MAX` were used later. The end of a connection ends the instance that was last made on it: as in Kafka,
earlier ones stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from pykbroker.telemetry.subscriptions import Requested, Subscription, requested

INSTANCE_COUNT_MAX: Final = 16_384
EXPIRY_MIN_MS: Final = 60_000
INTERVALS_TO_EXPIRY: Final = 3

COMPRESSION_TYPES: Final = range(5)
"""None, gzip, snappy, lz4, zstd."""

RESERVED_IDS: Final = (ZERO_UUID, METADATA_TOPIC_ID)
"""Ids that no client instance has: none, and the metadata topic's."""

REASONS_TO_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors of a push after which the client may ask for its subscription before the interval ends."""


class Push(NamedTuple):
    """The parts of a PushTelemetry request that are checked."""

    subscription_id: int
    compression_type: int
    size_bytes: int
    is_terminating: bool


class ClientInstance:
    """One client instance: its subscription, and its last requests (times are 0 before the first)."""

    __slots__ = (
        "attributes",
        "expires_at_ms",
        "is_terminating",
        "last_asked_at_ms",
        "last_error",
        "last_pushed_at_ms",
        "requested",
        "subscription_id",
        "version",
    )

    def __init__(self, attributes: Mapping[str, str], wanted: Requested, subscription_id: int, version: int) -> None:
        self.attributes = attributes
        self.requested = wanted
        self.subscription_id = subscription_id
        self.version = version
        self.last_asked_at_ms = 0
        self.last_pushed_at_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.expires_at_ms = 0

    @property
    def push_interval_ms(self) -> int:
        return self.requested.push_interval_ms

    def may_ask(self, now_ms: int) -> bool:
        """True if the interval has ended, or if the last push failed because its subscription was outdated."""
        if now_ms - max(self.last_asked_at_ms, self.last_pushed_at_ms) >= self.push_interval_ms:
            self.last_asked_at_ms = now_ms
            return True
        return self.last_error in REASONS_TO_ASK_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """True for the first push after a subscription, and when the interval has ended."""
        if self.last_asked_at_ms > self.last_pushed_at_ms or now_ms - self.last_pushed_at_ms >= self.push_interval_ms:
            self.last_pushed_at_ms = now_ms
            return True
        return False


class ClientInstances:
    """Client instances of a broker by their 16-byte ids. `set_subscriptions` replaces the metrics that they push."""

    def __init__(self) -> None:
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0
        self._last_made: dict[object, bytes] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def set_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Replaces the subscriptions; each instance starts afresh with its next request."""
        self._subscriptions = subscriptions
        self._version += 1

    def connection_closed(self, connection: object) -> None:
        """Removes the instance that was last made on a connection, or made anew as the subscriptions had changed."""
        client_instance_id = self._last_made.pop(connection, None)
        if client_instance_id is not None:
            self._instances.pop(client_instance_id, None)

    def ask(
        self, client_instance_id: bytes, attributes: Mapping[str, str], now_ms: int, connection: object
    ) -> tuple[ErrorCode, ClientInstance]:
        """A request for the subscription of an instance: THROTTLING_QUOTA_EXCEEDED, or success."""
        instance = self._instance(client_instance_id, attributes, now_ms, connection)
        if not instance.may_ask(now_ms):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE, instance

    def push(
        self,
        client_instance_id: bytes,
        attributes: Mapping[str, str],
        now_ms: int,
        connection: object,
        push: Push,
        max_bytes: int,
    ) -> tuple[ErrorCode, ClientInstance]:
        """A push of metrics: the first error in Kafka's order, or success. A terminating push is never too early."""
        instance = self._instance(client_instance_id, attributes, now_ms, connection)
        error = ErrorCode.NONE
        if instance.is_terminating:
            error = ErrorCode.INVALID_REQUEST
        elif not instance.may_push(now_ms) and not push.is_terminating:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif push.subscription_id != instance.subscription_id:
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif push.compression_type not in COMPRESSION_TYPES:
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif push.size_bytes > max_bytes:
            error = ErrorCode.TELEMETRY_TOO_LARGE
        instance.last_error = error
        instance.is_terminating = push.is_terminating
        return error, instance

    def _instance(
        self, client_instance_id: bytes, attributes: Mapping[str, str], now_ms: int, connection: object
    ) -> ClientInstance:
        self._expire(now_ms)
        instance = self._instances.get(client_instance_id)
        if instance is not None and instance.expires_at_ms <= now_ms:
            instance = None
        if instance is None or instance.version < self._version:
            # With the attributes of its first request, as in Kafka.
            known = attributes if instance is None else instance.attributes
            wanted = requested(self._subscriptions, known)
            instance = ClientInstance(known, wanted, wanted.subscription_id(client_instance_id), self._version)
            self._instances[client_instance_id] = instance
            self._last_made[connection] = client_instance_id
        self._instances.move_to_end(client_instance_id)
        if len(self._instances) > INSTANCE_COUNT_MAX:
            self._instances.popitem(last=False)
        instance.expires_at_ms = now_ms + max(EXPIRY_MIN_MS, INTERVALS_TO_EXPIRY * instance.push_interval_ms)
        return instance

    def _expire(self, now_ms: int) -> None:
        """Removes the least recently used instances while they have expired."""
        while self._instances:
            oldest, instance = next(iter(self._instances.items()))
            if instance.expires_at_ms > now_ms:
                return
            del self._instances[oldest]
