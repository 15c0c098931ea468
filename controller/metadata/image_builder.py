"""ImageBuilder: applies metadata records one by one to tables, each of which is copied at its first change.

Records have the meaning that they have in KIP-631 and in Kafka's image classes. Records between BeginTransaction and
EndTransaction (KIP-868) take effect together at the end, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from pykbroker.controller.metadata.endpoints_and_features import read_endpoints, read_features
from pykbroker.controller.metadata.image import (
    TOPIC_RESOURCE,
    Acl,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    ImageDelta,
    InconsistentMetadata,
    PartitionImage,
    TopicImage,
    UnsupportedMetadataVersion,
    quota_key,
)
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, is_known, not_supported
from pykbroker.controller.metadata.topic_names import collision_form
from pykbroker.protocol.log_messages import metadata_records as r
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.protocol.uuids import MIGRATING_DIRECTORY, uuid_to_text

K = TypeVar("K")
V = TypeVar("V")

NO_LEADER_CHANGE = -2


def apply_records(
    image: ClusterImage, records: Iterable[Any], *, offset: int, epoch: int, timestamp_ms: int
) -> ClusterImage:
    """The image after these records. `offset`, `epoch` and `timestamp_ms` are those of the last one.

    Raises:
        InconsistentMetadata: a record names something that does not exist. The log is damaged or was written by a newer
            version, and nothing after it can be applied.
    """
    return finished(apply_in_steps(image, records, offset=offset, epoch=epoch, timestamp_ms=timestamp_ms))


def apply_in_steps(
    image: ClusterImage, records: Iterable[Any], *, offset: int, epoch: int, timestamp_ms: int
) -> Steps[ClusterImage]:
    """As `apply_records`, in steps."""
    builder = ImageBuilder(image)
    yield from builder.replay_in_steps(records)
    return builder.build(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


class CopyOnWrite(Generic[K, V]):
    """A table of a base image, which is copied before its first change.

    Attributes:
        current: the table of the base, or the copy; not to be changed.
    """

    __slots__ = ("_copy", "current")

    def __init__(self, base: Mapping[K, V]) -> None:
        self.current = base
        self._copy: dict[K, V] | None = None

    def own(self) -> dict[K, V]:
        """The copy, to be changed; made at the first call."""
        if self._copy is None:
            self.current = self._copy = dict(self.current)
        return self._copy


class ImageBuilder:
    """Makes one image out of a base image, which does not change."""

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._topics_by_name = base.topics_by_name
        self._topics_by_id = base.topics_by_id
        self._colliding_names = CopyOnWrite(base.colliding_names)
        self._configs = CopyOnWrite(base.configs)
        self._brokers = CopyOnWrite(base.brokers)
        self._controllers = CopyOnWrite(base.controllers)
        self._features = CopyOnWrite(base.features)
        self._acls = CopyOnWrite(base.acls)
        self._kept_records = CopyOnWrite(base.kept_records)
        self._next_producer_id = base.next_producer_id
        self._transaction: list[Any] | None = None if base.open_transaction is None else list(base.open_transaction)
        # Topic id -> its partitions, for topics whose partitions were already copied by this builder.
        self._open_partitions: dict[bytes, dict[int, PartitionImage]] = {}
        self._touched_topics: dict[bytes, None] = {}
        self._touched_configs: set[tuple[int, str]] = set()
        self._touched_brokers: set[int] = set()
        self._touched_controllers: set[int] = set()
        self._touched_features: set[str] = set()

    def replay(self, records: Iterable[Any]) -> None:
        """Applies records in log order."""
        for record in records:
            kind = type(record)
            if self._transaction is not None:
                self._replay_in_transaction(record)
            elif kind is r.BeginTransactionRecord:
                self._transaction = []
            else:
                _HANDLERS[kind](self, record)

    def replay_in_steps(self, records: Iterable[Any]) -> Steps[None]:
        """As `replay`, in steps, each of which takes the next records from the iterable and keeps none of them."""
        rest = iter(records)
        while piece := list(islice(rest, PIECE)):
            self.replay(piece)
            yield

    def build(self, *, offset: int, epoch: int, timestamp_ms: int) -> ClusterImage:
        """The finished image. `offset`, `epoch` and `timestamp_ms` are those of the last record applied."""
        image = ClusterImage()
        image.topics_by_name = self._topics_by_name
        image.topics_by_id = self._topics_by_id
        image.colliding_names = self._colliding_names.current
        image.configs = self._configs.current
        image.brokers = self._brokers.current
        image.controllers = self._controllers.current
        image.features = self._features.current
        image.acls = self._acls.current
        image.kept_records = self._kept_records.current
        image.next_producer_id = self._next_producer_id
        image.open_transaction = None if self._transaction is None else tuple(self._transaction)
        image.offset = offset
        image.epoch = epoch
        image.timestamp_ms = timestamp_ms
        image.delta = self._delta()
        return image

    def _delta(self) -> ImageDelta:
        before, after = self._base.topics_by_id, self._topics_by_id
        created, changed, deleted = [], [], []
        for topic_id in self._touched_topics:
            old, new = before.get(topic_id), after.get(topic_id)
            if old is None and new is not None:
                created.append(new)
            elif old is not None and new is None:
                deleted.append(old)
            elif old is not None and new is not None:
                changed.append((old, new))
        return ImageDelta(
            created_topics=tuple(created),
            changed_topics=tuple(changed),
            deleted_topics=tuple(deleted),
            configs=frozenset(self._touched_configs),
            brokers=frozenset(self._touched_brokers),
            controllers=frozenset(self._touched_controllers),
            features=frozenset(self._touched_features),
        )

    def _replay_in_transaction(self, record: Any) -> None:
        held = self._transaction
        assert held is not None
        if isinstance(record, r.EndTransactionRecord):
            self._transaction = None
            self.replay(held)
        elif isinstance(record, r.AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, r.BeginTransactionRecord):
            raise InconsistentMetadata("a metadata transaction begins inside another one")
        else:
            held.append(record)

    def _ignore_record(self, record: Any) -> None:
        """Does nothing: the image does not depend on this record."""

    def _transaction_end_without_begin(self, record: Any) -> None:
        raise InconsistentMetadata(f"{type(record).__name__} without a transaction")

    # Topics and partitions

    def _topic(self, record: r.TopicRecord) -> None:
        topic_id, name = record.topic_id, record.name
        partitions: dict[int, PartitionImage] = {}
        topic = TopicImage(name, topic_id, partitions)
        if self._topics_by_name is self._base.topics_by_name:
            self._copy_topic_tables()
        self._topics_by_name[name] = topic  # type: ignore[index]  # our own copy
        self._topics_by_id[topic_id] = topic  # type: ignore[index]
        self._open_partitions[topic_id] = partitions
        self._touched_topics[topic_id] = None
        if "." in name or "_" in name:
            names = self._colliding_names.own()
            form = collision_form(name)
            names[form] = (*names.get(form, ()), name)

    def _copy_topic_tables(self) -> None:
        self._topics_by_name = dict(self._topics_by_name)
        self._topics_by_id = dict(self._topics_by_id)

    def _partitions_to_change(self, topic_id: bytes) -> dict[int, PartitionImage]:
        partitions = self._open_partitions.get(topic_id)
        if partitions is None:
            topic = self._topics_by_id.get(topic_id)
            if topic is None:
                raise InconsistentMetadata(f"a partition record for the unknown topic id {uuid_to_text(topic_id)}")
            partitions = dict(topic.partitions)
            topic = topic._replace(partitions=partitions)
            if self._topics_by_name is self._base.topics_by_name:
                self._copy_topic_tables()
            self._topics_by_name[topic.name] = topic  # type: ignore[index]
            self._topics_by_id[topic_id] = topic  # type: ignore[index]
            self._open_partitions[topic_id] = partitions
            self._touched_topics[topic_id] = None
        return partitions

    def _partition(self, record: r.PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        self._partitions_to_change(record.topic_id)[record.partition_id] = PartitionImage(
            record.partition_id,
            replicas,
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.directories) if record.directories else (MIGRATING_DIRECTORY,) * len(replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._partitions_to_change(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            topic = self._topics_by_id[record.topic_id]
            raise InconsistentMetadata(f"a change of the unknown partition {topic.name}-{record.partition_id}")
        partitions[record.partition_id] = changed_partition(old, record)

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self._topics_by_id.get(record.topic_id)
        if topic is None:
            raise InconsistentMetadata(f"removal of the unknown topic id {uuid_to_text(record.topic_id)}")
        if self._topics_by_name is self._base.topics_by_name:
            self._copy_topic_tables()
        del self._topics_by_id[record.topic_id]  # type: ignore[attr-defined]
        del self._topics_by_name[topic.name]  # type: ignore[attr-defined]
        self._open_partitions.pop(record.topic_id, None)
        self._touched_topics[record.topic_id] = None
        key = (TOPIC_RESOURCE, topic.name)
        if key in self._configs.current:
            del self._configs.own()[key]
            self._touched_configs.add(key)
        form = collision_form(topic.name)
        if form in self._colliding_names.current:
            names = self._colliding_names.own()
            rest = tuple(name for name in names[form] if name != topic.name)
            if rest:
                names[form] = rest
            else:
                del names[form]

    # Everything else

    def _config(self, record: r.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        configs = dict(self._configs.current.get(key, ()))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        table = self._configs.own()
        if configs:
            table[key] = configs
        else:
            table.pop(key, None)
        self._touched_configs.add(key)

    def _register_broker(self, record: r.RegisterBrokerRecord) -> None:
        self._brokers.own()[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=read_endpoints(record.end_points),
            features=read_features(record.features),
            rack=record.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )
        self._touched_brokers.add(record.broker_id)

    def _unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch, record)
        del self._brokers.own()[record.broker_id]
        self._touched_brokers.add(record.broker_id)

    def _registered(self, broker_id: int, epoch: int, record: Any) -> BrokerImage:
        broker = self._brokers.current.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InconsistentMetadata(
                f"{type(record).__name__} for broker {broker_id} with epoch {epoch}, "
                f"but {'it is not registered' if broker is None else f'its epoch is {broker.epoch}'}"
            )
        return broker

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, record)
        changes: dict[str, Any] = {}
        if record.fenced != 0:
            changes["is_fenced"] = record.fenced > 0
        if record.in_controlled_shutdown > 0:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._replace_broker(broker, changes)

    def _replace_broker(self, broker: BrokerImage, changes: Mapping[str, Any]) -> None:
        self._brokers.own()[broker.broker_id] = broker._replace(**changes)
        self._touched_brokers.add(broker.broker_id)

    def _fence_broker(self, record: r.FenceBrokerRecord) -> None:
        self._replace_broker(self._registered(record.id, record.epoch, record), {"is_fenced": True})

    def _unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        self._replace_broker(self._registered(record.id, record.epoch, record), {"is_fenced": False})

    def _register_controller(self, record: r.RegisterControllerRecord) -> None:
        self._controllers.own()[record.controller_id] = ControllerImage(
            record.controller_id,
            record.incarnation_id,
            read_endpoints(record.end_points),
            read_features(record.features),
        )
        self._touched_controllers.add(record.controller_id)

    def _feature_level(self, record: r.FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION and not is_known(record.feature_level):
            raise UnsupportedMetadataVersion(not_supported(record.feature_level))
        features = self._features.own()
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level
        self._touched_features.add(record.name)

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id and self._next_producer_id:
            raise InconsistentMetadata(
                f"the next producer id would go from {self._next_producer_id} to {record.next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        """Empties the eligible leader replicas of one topic, or of all when the name is empty (KIP-966)."""
        if record.topic_name:
            topic = self._topics_by_name.get(record.topic_name)
            if topic is None:
                raise InconsistentMetadata(f"ClearElrRecord for the unknown topic {record.topic_name!r}")
            topics = [topic]
        else:
            topics = list(self._topics_by_name.values())
        for topic in topics:
            for partition in list(topic.partitions.values()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._partitions_to_change(topic.topic_id)[partition.partition] = partition._replace(
                        eligible_leader_replicas=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )

    def _access_control_entry(self, record: r.AccessControlEntryRecord) -> None:
        self._acls.own()[record.id] = Acl(*(getattr(record, name) for name in Acl._fields))

    def _remove_access_control_entry(self, record: r.RemoveAccessControlEntryRecord) -> None:
        if record.id not in self._acls.current:
            raise InconsistentMetadata(f"removal of the unknown access control entry {uuid_to_text(record.id)}")
        del self._acls.own()[record.id]

    # Records that are kept whole

    def _keep_record(self, key: tuple[Any, ...], record: Any) -> None:
        self._kept_records.own()[key] = record

    def _drop_kept_record(self, key: tuple[Any, ...]) -> None:
        self._kept_records.own().pop(key, None)

    def _client_quota(self, record: r.ClientQuotaRecord) -> None:
        key = quota_key(((part.entity_type, part.entity_name) for part in record.entity), record.key)
        if record.remove:
            self._drop_kept_record(key)
        else:
            self._keep_record(key, record)

    def _scram_credential(self, record: r.UserScramCredentialRecord) -> None:
        self._keep_record((record.KEY, record.name, record.mechanism), record)

    def _remove_scram_credential(self, record: r.RemoveUserScramCredentialRecord) -> None:
        self._drop_kept_record((r.UserScramCredentialRecord.KEY, record.name, record.mechanism))

    def _delegation_token(self, record: r.DelegationTokenRecord) -> None:
        self._keep_record((record.KEY, record.token_id), record)

    def _remove_delegation_token(self, record: r.RemoveDelegationTokenRecord) -> None:
        self._drop_kept_record((r.DelegationTokenRecord.KEY, record.token_id))


def changed_partition(old: PartitionImage, record: r.PartitionChangeRecord) -> PartitionImage:
    """The partition after a PartitionChangeRecord."""
    changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
    for field in ("replicas", "isr", "removing_replicas", "adding_replicas", "directories"):
        value = getattr(record, field)
        if value is not None:
            changes[field] = tuple(value)
    if record.replicas is not None and record.directories is None:
        # Records of levels without directories (below 3.7-IV2) name none.
        known = dict(zip(old.replicas, old.directories, strict=True))
        changes["directories"] = tuple(known.get(broker_id, MIGRATING_DIRECTORY) for broker_id in record.replicas)
    if record.eligible_leader_replicas is not None:
        changes["eligible_leader_replicas"] = tuple(record.eligible_leader_replicas)
    if record.last_known_elr is not None:
        changes["last_known_elr"] = tuple(record.last_known_elr)
    if record.leader != NO_LEADER_CHANGE:
        # The leader may be the same: so the controller raises the leader epoch alone.
        changes["leader"] = record.leader
        changes["leader_epoch"] = old.leader_epoch + 1
    if record.leader_recovery_state != -1:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return old._replace(**changes)


_HANDLERS: dict[type, Callable[[ImageBuilder, Any], None]] = {
    r.RegisterBrokerRecord: ImageBuilder._register_broker,
    r.UnregisterBrokerRecord: ImageBuilder._unregister_broker,
    r.TopicRecord: ImageBuilder._topic,
    r.PartitionRecord: ImageBuilder._partition,
    r.ConfigRecord: ImageBuilder._config,
    r.PartitionChangeRecord: ImageBuilder._partition_change,
    r.FenceBrokerRecord: ImageBuilder._fence_broker,
    r.UnfenceBrokerRecord: ImageBuilder._unfence_broker,
    r.RemoveTopicRecord: ImageBuilder._remove_topic,
    r.DelegationTokenRecord: ImageBuilder._delegation_token,
    r.UserScramCredentialRecord: ImageBuilder._scram_credential,
    r.FeatureLevelRecord: ImageBuilder._feature_level,
    r.ClientQuotaRecord: ImageBuilder._client_quota,
    r.ProducerIdsRecord: ImageBuilder._producer_ids,
    r.BrokerRegistrationChangeRecord: ImageBuilder._change_broker,
    r.AccessControlEntryRecord: ImageBuilder._access_control_entry,
    r.RemoveAccessControlEntryRecord: ImageBuilder._remove_access_control_entry,
    r.NoOpRecord: ImageBuilder._ignore_record,
    # ZooKeeper migration is over in every version we read; Kafka 4 ignores the record as well.
    r.ZkMigrationStateRecord: ImageBuilder._ignore_record,
    r.RemoveUserScramCredentialRecord: ImageBuilder._remove_scram_credential,
    r.EndTransactionRecord: ImageBuilder._transaction_end_without_begin,
    r.AbortTransactionRecord: ImageBuilder._transaction_end_without_begin,
    r.RemoveDelegationTokenRecord: ImageBuilder._remove_delegation_token,
    r.RegisterControllerRecord: ImageBuilder._register_controller,
    r.ClearElrRecord: ImageBuilder._clear_elr,
}
