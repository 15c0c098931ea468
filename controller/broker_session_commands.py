"""Commands about brokers that depend on their sessions: heartbeats and registrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats, BrokerState, Heartbeat, is_caught_up
from pykbroker.controller.metadata.broker_elections import changes_when_broker_leaves
from pykbroker.controller.metadata.brokers import (
    FenceBroker,
    RegisterBroker,
    StartControlledShutdown,
    UnfenceBroker,
    cordon_records,
    registered_broker,
)
from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.image import BrokerImage, ClusterImage
from pykbroker.controller.metadata.image_builder import apply_in_steps
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import BrokerRegistrationChangeRecord
from pykbroker.protocol.steps import Steps


class CurrentImage(NamedTuple):
    """Writes no records; the result is the newest image, which on a new leader includes all committed records."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[ClusterImage]:
        return Plan((), image)


class HeartbeatResult(NamedTuple):
    """Result of a heartbeat.

    Attributes:
        before, after: state of the broker before and after the heartbeat.
        is_caught_up: True if the broker has applied its own registration.
        end_offset: offset of the last record that was written for this heartbeat or before it.
    """

    before: BrokerState
    after: BrokerState
    is_caught_up: bool
    end_offset: int


class ProcessHeartbeat(NamedTuple):
    """Fences, unfences or shuts down a broker as its heartbeat requests. The result is a HeartbeatResult.

    Attributes:
        offline_log_dirs: ids of directories that the broker cannot use any more.
        cordoned_log_dirs: ids of directories that get no new replicas (KIP-1066); None if the heartbeat has no list.

    Both lists are ignored at a metadata.version without records for them.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    heartbeats: BrokerHeartbeats
    heartbeat: Heartbeat
    offline_log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[HeartbeatResult]]:
        broker_id, epoch = self.heartbeat.broker_id, self.heartbeat.broker_epoch
        broker = registered_broker(image, broker_id, epoch)
        before = self.heartbeats.state_of(broker)
        after = self.heartbeats.next_state(image, self.heartbeat)
        records: list[Any] = []
        if after is not before:
            if after.is_fenced:
                records += (yield from FenceBroker(broker_id, epoch).plan_in_steps(image, context)).records
            elif after is BrokerState.UNFENCED:
                records += (yield from UnfenceBroker(broker_id, epoch).plan_in_steps(image, context)).records
            else:
                records += (yield from StartControlledShutdown(broker_id, epoch).plan_in_steps(image, context)).records
        records += yield from self._directory_records(image, context, broker, records)
        # No broker reports the offset of a leader's first batch, a control batch, as applied.
        end_offset = context.next_offset + len(records) - 1 if records else image.offset
        return Plan(records, HeartbeatResult(before, after, is_caught_up(broker, self.heartbeat), end_offset))

    def _directory_records(
        self, image: ClusterImage, context: PlanContext, broker: BrokerImage, earlier: list[Any]
    ) -> Steps[list[Any]]:
        """Records of the broker's directories. `earlier`: records of the same heartbeat that precede them."""
        broker_id, epoch = broker.broker_id, broker.epoch
        records: list[Any] = []
        lost: list[bytes] = []
        if image.metadata_version >= DIRECTORY_ASSIGNMENT:
            lost = [directory for directory in broker.log_dirs if directory in self.offline_log_dirs]
        if lost:
            # The same heartbeat may unfence the broker, which may then become leader in the failed directory.
            if earlier:
                image = yield from apply_in_steps(
                    image, earlier, offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms
                )
            records += yield from changes_when_broker_leaves(image, context, broker_id, lost)
            left = [directory for directory in broker.log_dirs if directory not in lost]
            records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, log_dirs=left))
        return records + cordon_records(image, broker, self.cordoned_log_dirs)


class AdmitBroker(NamedTuple):
    """Registers a broker, unless another process with its id has a session.

    The result is (broker epoch, is_new); is_new is False for a process that was registered already.

    Raises:
        CommandRefused: DUPLICATE_BROKER_REGISTRATION, and the errors of RegisterBroker.
    """

    heartbeats: BrokerHeartbeats
    now_ms: int
    registration: RegisterBroker

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[tuple[int, bool]]]:
        broker_id = self.registration.broker_id
        existing = image.brokers.get(broker_id)
        is_new = existing is None or existing.incarnation_id != self.registration.incarnation_id
        if existing is not None and is_new and self.heartbeats.has_session(broker_id, existing.epoch, self.now_ms):
            raise CommandRefused(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )
        plan = yield from self.registration.plan_in_steps(image, context)
        return Plan(plan.records, (plan.result, is_new))
