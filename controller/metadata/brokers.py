"""Registration of brokers and controllers, fencing and unfencing, as commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykbroker.controller.metadata.broker_elections import (
    Registering,
    changes_when_broker_is_replaced,
    changes_when_broker_leaves,
    changes_when_broker_restarted,
    changes_when_broker_serves,
)
from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.endpoints_and_features import endpoints_as, features_as
from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, ControllerImage, Endpoint
from pykbroker.controller.metadata.metadata_versions import (
    CONTROLLER_REGISTRATION,
    CORDONED_LOG_DIRS,
    DIRECTORY_ASSIGNMENT,
    METADATA_VERSION,
)
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from pykbroker.protocol.steps import Steps
from pykbroker.protocol.uuids import uuid_to_text

RESERVED_DIRECTORY_COUNT = 100


class RegisterBroker(NamedTuple):
    """Registers a broker process; the result is its broker epoch (int).

    Attributes:
        incarnation_id: 16 random bytes, new for each start of the process; the same id again amends the registration.
        features: feature name -> (lowest, highest level) that the broker supports.
        log_dirs: ids of its log directories (`directory.id` of meta.properties); neither checked nor written at a
            metadata.version without directories. A broker registers them again when the level rises.
        is_fenced: True as in Kafka: the broker serves after an UnfenceBroker. False for a broker in the process of the
            controller, which serves at once: this saves one record and one fsync.
        is_clean_restart: True after a clean stop of the process that is replaced; see `changes_when_broker_restarted`.
        previous_epoch: broker epoch at the last clean stop of the broker's directory, -1 without one (KIP-966); None if
            it is not known, so that `is_clean_restart` counts.

    Raises:
        CommandRefused: INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    features: Mapping[str, tuple[int, int]]
    log_dirs: Sequence[bytes]
    rack: str | None = None
    is_fenced: bool = True
    is_clean_restart: bool = False
    previous_epoch: int | None = None

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[int]]:
        self._check(image)
        existing = image.brokers.get(self.broker_id)
        records: list[Any] = []
        is_fenced, in_controlled_shutdown = self.is_fenced, False
        if existing is not None and existing.incarnation_id == self.incarnation_id:
            epoch = existing.epoch
            is_fenced, in_controlled_shutdown = existing.is_fenced, existing.in_controlled_shutdown
        else:
            is_clean = self.is_clean_restart
            if self.previous_epoch is not None:
                is_clean = existing is not None and existing.epoch == self.previous_epoch
            if self.is_fenced:
                records += yield from changes_when_broker_is_replaced(image, context, self.broker_id, is_clean=is_clean)
            else:
                broker = Registering(self.broker_id, self.log_dirs)
                records += yield from changes_when_broker_restarted(image, context, broker, is_clean=is_clean)
            epoch = context.next_offset
        # Last, as in Kafka: it takes effect when the partitions of the previous process have been changed.
        records.append(
            broker_record(
                BrokerImage(
                    self.broker_id,
                    epoch,
                    self.incarnation_id,
                    tuple(self.endpoints),
                    self.features,
                    self.rack,
                    is_fenced,
                    in_controlled_shutdown,
                    tuple(self.log_dirs) if image.metadata_version >= DIRECTORY_ASSIGNMENT else (),
                )
            )
        )
        return Plan(records, epoch)

    def _check(self, image: ClusterImage) -> None:
        invalid = ErrorCode.INVALID_REGISTRATION
        if image.metadata_version >= DIRECTORY_ASSIGNMENT:
            self._check_directories(image)
        # In Kafka's order: the features that the broker names, metadata.version among them, then all others.
        reason = _reason_not_supported(image, self.features, self.features)
        if reason is None and METADATA_VERSION not in self.features:
            raise CommandRefused(invalid, f"Request features do not contain '{METADATA_VERSION}'")
        reason = reason or reason_not_supported(image, self.features)
        if reason is not None:
            raise CommandRefused(ErrorCode.UNSUPPORTED_VERSION, reason)

    def _check_directories(self, image: ClusterImage) -> None:
        invalid = ErrorCode.INVALID_REGISTRATION
        if not self.log_dirs:
            raise CommandRefused(invalid, "No directories specified in request")
        for directory in self.log_dirs:
            if int.from_bytes(directory, "big") < RESERVED_DIRECTORY_COUNT:
                raise CommandRefused(invalid, "Reserved directory ID in request")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise CommandRefused(invalid, "Duplicate directory ID in request")
        owners = {
            directory: other.broker_id
            for other in image.brokers.values()
            if other.broker_id != self.broker_id
            for directory in other.log_dirs
        }
        for directory in self.log_dirs:
            if directory in owners:
                raise CommandRefused(
                    invalid,
                    f"Broker {owners[directory]} is already registered with directory {uuid_to_text(directory)}",
                )


class UnfenceBroker(NamedTuple):
    """Unfences a registered broker: it may lead from now on. The result is None.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    broker_id: int
    broker_epoch: int

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[None]]:
        broker = registered_broker(image, self.broker_id, self.broker_epoch)
        if not broker.is_fenced:
            return Plan((), None)
        records: list[Any] = [
            BrokerRegistrationChangeRecord(broker_id=self.broker_id, broker_epoch=self.broker_epoch, fenced=-1)
        ]
        records += yield from changes_when_broker_serves(image, context, self.broker_id)
        return Plan(records, None)


class FenceBroker(NamedTuple):
    """Fences a broker whose heartbeats stopped; its partitions get other leaders. The result is True.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    broker_id: int
    broker_epoch: int

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[bool]]:
        broker = registered_broker(image, self.broker_id, self.broker_epoch)
        if broker.is_fenced:
            return Plan((), True)
        records: list[Any] = [*(yield from changes_when_broker_leaves(image, context, self.broker_id))]
        records.append(
            BrokerRegistrationChangeRecord(broker_id=self.broker_id, broker_epoch=self.broker_epoch, fenced=1)
        )
        return Plan(records, True)


class StartControlledShutdown(NamedTuple):
    """Starts a broker's controlled shutdown: its leaderships move to others while it still serves. The result is None.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    broker_id: int
    broker_epoch: int

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[None]]:
        broker = registered_broker(image, self.broker_id, self.broker_epoch)
        records: list[Any] = []
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=self.broker_id, broker_epoch=self.broker_epoch, in_controlled_shutdown=1
                )
            )
        records += yield from changes_when_broker_leaves(image, context, self.broker_id)
        return Plan(records, None)


class UnregisterBroker(NamedTuple):
    """Removes the registration of a broker that will not come back (KIP-746, UnregisterBroker). The result is None.

    Raises:
        CommandRefused: BROKER_ID_NOT_REGISTERED.
    """

    broker_id: int

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[None]]:
        broker = image.brokers.get(self.broker_id)
        if broker is None:
            raise CommandRefused(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {self.broker_id} is not currently registered"
            )
        records: list[Any] = [*(yield from changes_when_broker_leaves(image, context, self.broker_id))]
        records.append(UnregisterBrokerRecord(broker_id=self.broker_id, broker_epoch=broker.epoch))
        return Plan(records, None)


class RegisterController(NamedTuple):
    """Registers a controller process (KIP-919); the result is None.

    Raises:
        CommandRefused: UNSUPPORTED_VERSION at a metadata.version without records for it.
    """

    controller_id: int
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    features: Mapping[str, tuple[int, int]]

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        if image.metadata_version < CONTROLLER_REGISTRATION:
            raise CommandRefused(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller registrations.",
            )
        controller = ControllerImage(self.controller_id, self.incarnation_id, tuple(self.endpoints), self.features)
        return Plan([controller_record(controller)], None)


def reason_not_supported(image: ClusterImage, features: Mapping[str, tuple[int, int]]) -> str | None:
    """Text of Kafka that names a finalized level which a broker with these features does not support; None if none.

    A feature that the broker has and that is not enabled is at level 0, which must be supported too.
    """
    return _reason_not_supported(image, features, {**features, **image.features})


def _reason_not_supported(
    image: ClusterImage, features: Mapping[str, tuple[int, int]], names: Iterable[str]
) -> str | None:
    """As `reason_not_supported`, of these features alone."""
    for name in names:
        if name == METADATA_VERSION and name not in image.features:
            # Nothing is finalized yet: the level of a new cluster comes with its first records.
            continue
        level = image.features.get(name, 0)
        lowest, highest = features.get(name, (0, 0))
        if not lowest <= level <= highest:
            return (
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {lowest} and {highest}, inclusive."
            )
    return None


def registered_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker with this id and epoch.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH when another process is registered under the id, or none.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise CommandRefused(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise CommandRefused(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker


class CordonDirectories(NamedTuple):
    """Records which directories of a broker get no new replicas, for a broker that sends no heartbeats (KIP-1066).

    Raises:
        CommandRefused: STALE_BROKER_EPOCH.
    """

    broker_id: int
    broker_epoch: int
    cordoned_log_dirs: Sequence[bytes]

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        broker = registered_broker(image, self.broker_id, self.broker_epoch)
        return Plan(cordon_records(image, broker, self.cordoned_log_dirs), None)


def cordon_records(
    image: ClusterImage, broker: BrokerImage, cordoned: Sequence[bytes] | None
) -> list[BrokerRegistrationChangeRecord]:
    """Record of a broker's cordoned directories, if they have changed; none at a metadata.version without it."""
    if cordoned is None or image.metadata_version < CORDONED_LOG_DIRS:
        return []
    if set(cordoned) == set(broker.cordoned_log_dirs or ()):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
        )
    ]


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """The record that registers this broker."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=endpoints_as(BrokerEndpoint, broker.endpoints),
        features=features_as(BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """The record that registers this controller."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=endpoints_as(ControllerEndpoint, controller.endpoints),
        features=features_as(ControllerFeature, controller.features),
    )
