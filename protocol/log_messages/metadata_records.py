"""Records of the `__cluster_metadata` log; `key` is the record type."""

from __future__ import annotations

from pykbroker.protocol.fields import (
    Message,
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerEndpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Message):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Message, versions="0-4", flexible="0+", key=0):
    """Metadata record of type 0."""

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0, tagged="3+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", default=None, nullable="4+", tag=1, tagged="4+")


class UnregisterBrokerRecord(Message, versions="0", flexible="0+", key=1):
    """Metadata record of type 1."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class TopicRecord(Message, versions="0", flexible="0+", key=2):
    """Metadata record of type 2."""

    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class PartitionRecord(Message, versions="0-2", flexible="0+", key=3):
    """Metadata record of type 3."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0, tagged="0+")
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", default=None, nullable="2+", tag=1, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", default=None, nullable="2+", tag=2, tagged="2+")


class ConfigRecord(Message, versions="0", flexible="0+", key=4):
    """Metadata record of type 4."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class PartitionChangeRecord(Message, versions="0-2", flexible="0+", key=5):
    """Metadata record of type 5."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array(int32, "0+", default=None, nullable="0+", tag=0, tagged="0+")
    leader: int = int32("0+", default=-2, tag=1, tagged="0+")
    replicas: list[int] | None = array(int32, "0+", default=None, nullable="0+", tag=2, tagged="0+")
    removing_replicas: list[int] | None = array(int32, "0+", default=None, nullable="0+", tag=3, tagged="0+")
    adding_replicas: list[int] | None = array(int32, "0+", default=None, nullable="0+", tag=4, tagged="0+")
    leader_recovery_state: int = int8("0+", default=-1, tag=5, tagged="0+")
    directories: list[bytes] | None = array(uuid, "1+", default=None, nullable="1+", tag=8, tagged="1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", default=None, nullable="2+", tag=6, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", default=None, nullable="2+", tag=7, tagged="2+")


class FenceBrokerRecord(Message, versions="0", flexible="0+", key=7):
    """Metadata record of type 7."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(Message, versions="0", flexible="0+", key=8):
    """Metadata record of type 8."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+", key=9):
    """Metadata record of type 9."""

    topic_id: bytes = uuid("0+")


class DelegationTokenRecord(Message, versions="0", flexible="0+", key=10):
    """Metadata record of type 10."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class UserScramCredentialRecord(Message, versions="0", flexible="0+", key=11):
    """Metadata record of type 11."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = byte_string("0+")
    stored_key: bytes = byte_string("0+")
    server_key: bytes = byte_string("0+")
    iterations: int = int32("0+")


class FeatureLevelRecord(Message, versions="0", flexible="0+", key=12):
    """Metadata record of type 12."""

    name: str = string("0+")
    feature_level: int = int16("0+")


class EntityData(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, versions="0", flexible="0+", key=14):
    """Metadata record of type 14."""

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ProducerIdsRecord(Message, versions="0", flexible="0+", key=15):
    """Metadata record of type 15."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerRegistrationChangeRecord(Message, versions="0-3", flexible="0+", key=17):
    """Metadata record of type 17."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0, tagged="0+")
    in_controlled_shutdown: int = int8("1+", tag=1, tagged="1+")
    log_dirs: list[bytes] = array(uuid, "2+", tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", default=None, nullable="3+", tag=3, tagged="3+")


class AccessControlEntryRecord(Message, versions="0", flexible="0+", key=18):
    """Metadata record of type 18."""

    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+", key=19):
    """Metadata record of type 19."""

    id: bytes = uuid("0+")


class NoOpRecord(Message, versions="0", flexible="0+", key=20):
    """Metadata record of type 20."""


class ZkMigrationStateRecord(Message, versions="0", flexible="0+", key=21):
    """Metadata record of type 21."""

    zk_migration_state: int = int8("0+")


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+", key=22):
    """Metadata record of type 22."""

    name: str = string("0+")
    mechanism: int = int8("0+")


class BeginTransactionRecord(Message, versions="0", flexible="0+", key=23):
    """Metadata record of type 23."""

    name: str | None = string("0+", default=None, nullable="0+", tag=0, tagged="0+")


class EndTransactionRecord(Message, versions="0", flexible="0+", key=24):
    """Metadata record of type 24."""


class AbortTransactionRecord(Message, versions="0", flexible="0+", key=25):
    """Metadata record of type 25."""

    reason: str | None = string("0+", default=None, nullable="0+", tag=0, tagged="0+")


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+", key=26):
    """Metadata record of type 26."""

    token_id: str = string("0+")


class ControllerEndpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Message):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(Message, versions="0", flexible="0+", key=27):
    """Metadata record of type 27."""

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")


class ClearElrRecord(Message, versions="0", flexible="0+", key=28):
    """Metadata record of type 28."""

    topic_name: str = string("0+")
