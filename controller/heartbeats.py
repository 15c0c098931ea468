"""Which brokers are alive, as the active controller hears from them: pure, the time comes as an argument.

It is the running time of the controller (`running_time`): a session does not end while its controller stands still.

As Kafka's BrokerHeartbeatManager. None of this is in the metadata log: a new controller knows nobody's last heartbeat
and begins every session anew when it is elected. What a broker *is* (fenced, in controlled shutdown) stands in the
image; here is what only its heartbeats tell: when the last one came, how far it has read the metadata, and up to where
the others must have read before it may stop.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pykbroker.controller.metadata.image import BrokerImage, ClusterImage

NEVER_MS = 1 << 62
UNKNOWN_OFFSET = -1


class BrokerState(Enum):
    """What the controller makes of a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """Whether it serves nobody: who may stop does so no more."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class Heartbeat(NamedTuple):
    """What a broker says of itself. `metadata_offset`: of the last record that it has applied."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


class BrokerHeartbeats:
    """The soft state of one controller's term. `begin` it when all is known that earlier controllers have committed.

    Args:
        session_timeout_ms: `broker.session.timeout.ms`.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._contacts: dict[tuple[int, int], int] = {}
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        """Every broker that is registered has a session from now on, if it has not been heard of already."""
        for broker in image.brokers.values():
            self._contacts.setdefault((broker.broker_id, broker.epoch), now_ms)

    # Sessions

    def contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat arrived; it counts from now, however long it then waits to be dealt with."""
        self._contacts[(broker_id, broker_epoch)] = now_ms

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this process was heard of within the session timeout."""
        contact_ms = self._contacts.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self._session_timeout_ms

    def end_session(self, broker_id: int, broker_epoch: int) -> None:
        """The process is known to be gone: another may register under its id at once."""
        self._contacts.pop((broker_id, broker_epoch), None)

    def next_expiry_ms(self) -> int:
        """When the next session ends if nothing is heard; `NEVER_MS` without sessions."""
        return min(self._contacts.values(), default=NEVER_MS - self._session_timeout_ms) + self._session_timeout_ms

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """(broker, epoch) of one session that is over, which is forgotten then; the longest silent one first."""
        if not self._contacts:
            return None
        key = min(self._contacts, key=lambda one: (self._contacts[one], one))
        if now_ms <= self._contacts[key] + self._session_timeout_ms:
            return None
        del self._contacts[key]
        return key

    # States

    def state_of(self, broker: BrokerImage) -> BrokerState:
        """The state between heartbeats.

        A controlled shutdown that began under another controller is not known here: it begins again.
        """
        if broker.broker_id in self._shutdown_offsets and not broker.is_fenced:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if broker.is_fenced else BrokerState.UNFENCED

    def next_state(self, image: ClusterImage, heartbeat: Heartbeat) -> BrokerState:
        """What follows from a heartbeat of a broker that is registered under this epoch."""
        broker = image.brokers[heartbeat.broker_id]
        state = self.state_of(broker)
        if state is BrokerState.FENCED:
            if heartbeat.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            if not heartbeat.want_fence and is_caught_up(broker, heartbeat):
                return BrokerState.UNFENCED
            return BrokerState.FENCED
        if state is BrokerState.UNFENCED:
            if heartbeat.want_fence:
                return BrokerState.SHUTDOWN_NOW if heartbeat.want_shut_down else BrokerState.FENCED
            if not heartbeat.want_shut_down:
                return BrokerState.UNFENCED
            if _leads_something(image, broker.broker_id):
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        # Who leads nothing any more still waits until all that serve know it: nobody asks it any more then.
        if _leads_something(image, broker.broker_id):
            return BrokerState.CONTROLLED_SHUTDOWN
        if self._shutdown_offsets[broker.broker_id] > self.lowest_active_offset(image):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """How far all brokers that serve have read the metadata."""
        return min(
            (
                self._metadata_offsets.get(broker.broker_id, UNKNOWN_OFFSET)
                for broker in image.brokers.values()
                if broker.is_active and broker.broker_id not in self._shutdown_offsets
            ),
            default=NEVER_MS,
        )

    def note(self, heartbeat: Heartbeat, state: BrokerState, end_offset: int) -> None:
        """What a heartbeat brought about. `end_offset`: of the last record that was written for it or before it."""
        broker_id = heartbeat.broker_id
        self._metadata_offsets[broker_id] = heartbeat.metadata_offset
        if state is BrokerState.CONTROLLED_SHUTDOWN:
            self._shutdown_offsets.setdefault(broker_id, end_offset)
        elif state.is_fenced:
            self._shutdown_offsets.pop(broker_id, None)
        if state is BrokerState.SHUTDOWN_NOW:
            self.end_session(broker_id, heartbeat.broker_epoch)

    def forget(self, broker_id: int) -> None:
        """Another process is registered under this id, or none: what the earlier one said does not count."""
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        for key in [key for key in self._contacts if key[0] == broker_id]:
            del self._contacts[key]


def is_caught_up(broker: BrokerImage, heartbeat: Heartbeat) -> bool:
    """Whether the broker has read its own registration.

    A broker's epoch is the offset of the first record of its registration, and what is written together is applied
    together.
    """
    return heartbeat.metadata_offset >= broker.epoch


def _leads_something(image: ClusterImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )
