"""Cases of the raw frames: requests of every API that clients may send, good and bad, by Kafka's field names.

`$topic`, `$group` and `$transaction` are names of the case's own; `$topic_id`, `$member`, `$producer_id` and `$session`
are what an earlier reply of the case said; `$node`, `$host`, `$port` and `$cluster` are the broker's. A step without a
version is sent in the version under test, and fields that the version does not have are left out by the encoder. What
Apache Kafka replies is in replies.json, written by record.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interop_tests.frames.layouts import Versions, apis
from interop_tests.wire import record_batch

EVERY_VERSION = Versions.of("0+")
NOWHERE = "f" * 32
"""A topic id that no topic has."""
BATCH_TIME = 1_700_000_000_000
BATCH = record_batch([b"one", b"two"], timestamp_ms=BATCH_TIME).hex()
DAMAGED = BATCH[:34] + "01020304" + BATCH[42:]
SUBSCRIPTION = "0000000000010005746f70696300000000"
ASSIGNMENT = "000000000001000574 6f706963000000010000000000000000".replace(" ", "")
NODE = "$node"


class Step(NamedTuple):
    """One request; version None is the version under test."""

    api: str
    request: dict[str, Any]
    version: int | None = None


class Case(NamedTuple):
    """A behaviour of an API, shown by the last of some requests.

    Attributes:
        api: the API of the last step.
        behaviour: what holds, as it follows the API's name in a sentence.
        versions: the versions that have it.
    """

    api: str
    behaviour: str
    steps: tuple[Step, ...]
    versions: Versions = EVERY_VERSION

    @property
    def tried(self) -> list[int]:
        """The versions that are tried, oldest first: those of Apache Kafka that have the behaviour."""
        known = apis()[self.api].versions
        return [version for version in range(known.first, known.last + 1) if version in self.versions]

    @property
    def name(self) -> str:
        """Name of the case in replies.json and in the report."""
        return f"{self.api} {self.behaviour}"


def case(api: str, behaviour: str, *steps: Step | dict[str, Any], versions: str = "0+") -> Case:
    """A case whose plain dictionaries are requests to the API itself."""
    made = tuple(step if isinstance(step, Step) else Step(api, step) for step in steps)
    return Case(api, behaviour, made, Versions.of(versions))


def all_cases() -> tuple[Case, ...]:
    """Every case, in the order of the APIs' numbers."""
    return (
        *_records(),
        *_metadata(),
        *_offsets(),
        *_groups(),
        *_handshakes(),
        *_topics(),
        *_transactions(),
        *_security(),
        *_configs(),
        *_replicas(),
        *_cluster(),
    )


def _new_topic(**changes: Any) -> dict[str, Any]:
    topic = {"Name": "$topic", "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
    return {"Topics": [topic | changes], "TimeoutMs": 10_000}


# The records are old: retention must not take them while they are asked for.
CREATE = Step("CreateTopics", _new_topic(Configs=[{"Name": "retention.ms", "Value": "-1"}]), 7)


def _produce(partition: int = 0, batch: str = BATCH, acks: int = -1, **changes: Any) -> dict[str, Any]:
    topic = {"Name": "$topic", "TopicId": "$topic_id", "PartitionData": [{"Index": partition, "Records": batch}]}
    return {"TransactionalId": None, "Acks": acks, "TimeoutMs": 10_000, "TopicData": [topic | changes]}


PRODUCE = Step("Produce", _produce(), 9)


def _fetch(partition: int = 0, offset: int = 0, session: Any = 0, epoch: int = -1, **changes: Any) -> dict[str, Any]:
    asked = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
    topic = {"Topic": "$topic", "TopicId": "$topic_id", "Partitions": [asked | changes]}
    return {"MaxWaitMs": 100, "MaxBytes": 1 << 20, "SessionId": session, "SessionEpoch": epoch, "Topics": [topic]}


def _records() -> Iterator[Case]:
    yield case("Produce", "stores a batch and says its offset", CREATE, _produce())
    yield case("Produce", "to a partition that is not there is UNKNOWN_TOPIC_OR_PARTITION", CREATE, _produce(5))
    nobody = _produce(Name="$topic", TopicId=NOWHERE)
    yield case("Produce", "to a topic that is not there is an error of the partition", nobody)
    yield case("Produce", "of a batch with a wrong CRC is CORRUPT_MESSAGE", CREATE, _produce(batch=DAMAGED))
    yield case("Produce", "with acks of 5 is INVALID_REQUIRED_ACKS", CREATE, _produce(acks=5))
    compacted = Step("CreateTopics", _new_topic(Configs=[{"Name": "cleanup.policy", "Value": "compact"}]), 7)
    yield case(
        "Produce", "without keys to a compacted topic is INVALID_RECORD, told record by record", compacted, _produce()
    )
    yield case("Produce", "of two batches in one is INVALID_RECORD", CREATE, _produce(batch=BATCH + BATCH))
    small = Step("CreateTopics", _new_topic(Configs=[{"Name": "max.message.bytes", "Value": "50"}]), 7)
    yield case("Produce", "of a batch over max.message.bytes is MESSAGE_TOO_LARGE", small, _produce())
    stamped = Step(
        "CreateTopics", _new_topic(Configs=[{"Name": "message.timestamp.before.max.ms", "Value": "1000"}]), 7
    )
    yield case("Produce", "of records that are too old is INVALID_TIMESTAMP", stamped, _produce())
    yield case("Fetch", "returns the batches as they are stored", CREATE, PRODUCE, _fetch())
    yield case("Fetch", "from within a batch returns the whole batch", CREATE, PRODUCE, _fetch(offset=1))
    yield case("Fetch", "at the end of the log returns nothing", CREATE, PRODUCE, _fetch(offset=2))
    yield case("Fetch", "behind the end is OFFSET_OUT_OF_RANGE", CREATE, PRODUCE, _fetch(offset=3))
    yield case("Fetch", "of a partition that is not there is an error of the partition", CREATE, _fetch(5))
    stranger = _fetch()
    stranger["Topics"][0]["TopicId"] = NOWHERE
    yield case("Fetch", "of a topic that is not there is an error of the partition", stranger)
    yield case(
        "Fetch", "with an old leader epoch is FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH", CREATE,
        _fetch(CurrentLeaderEpoch=9), versions="9+",
    )  # fmt: skip
    nothing = {"MaxWaitMs": 100, "MaxBytes": 1 << 20, "SessionId": "$session", "SessionEpoch": 1, "Topics": []}
    yield case(
        "Fetch", "in a session returns only what is new", CREATE, PRODUCE, _fetch(epoch=0), nothing, versions="7+"
    )
    yield case("Fetch", "in a session that nobody opened is FETCH_SESSION_ID_NOT_FOUND", CREATE,
               _fetch(session=77, epoch=3), versions="7+")  # fmt: skip
    committed = _fetch() | {"IsolationLevel": 1}
    yield case("Fetch", "of what is committed has the list of aborted transactions", CREATE, PRODUCE, committed)
    twice = _fetch()
    twice["Topics"][0]["Partitions"] *= 2
    yield case("Fetch", "of a partition named twice", CREATE, PRODUCE, twice)
    for what, time, versions in (
        ("the end", -1, "1+"),
        ("the beginning", -2, "1+"),
        ("the largest timestamp", -3, "7+"),
        ("the beginning of what is local", -4, "8+"),
        ("the end of what is tiered", -5, "9+"),
        ("a time before the first record", BATCH_TIME - 1, "1+"),
        ("a time after the last record", BATCH_TIME + 1, "1+"),
    ):
        yield case("ListOffsets", f"at {what}", CREATE, PRODUCE, _list_offsets(0, time), versions=versions)
    yield case("ListOffsets", "of a partition that is not there is an error", CREATE, _list_offsets(5, -1))
    yield case("OffsetForLeaderEpoch", "says where the epoch ends", CREATE, PRODUCE, _epoch_end(0))
    yield case("OffsetForLeaderEpoch", "of an epoch to come says that there is none", CREATE, PRODUCE, _epoch_end(7))
    yield case("OffsetForLeaderEpoch", "of a partition that is not there is an error", CREATE, _epoch_end(0, 5))


def _list_offsets(partition: int, time: int) -> dict[str, Any]:
    asked = {"PartitionIndex": partition, "CurrentLeaderEpoch": -1, "Timestamp": time}
    return {"ReplicaId": -1, "TimeoutMs": 5000, "Topics": [{"Name": "$topic", "Partitions": [asked]}]}


def _epoch_end(epoch: int, partition: int = 0) -> dict[str, Any]:
    asked = {"Partition": partition, "CurrentLeaderEpoch": -1, "LeaderEpoch": epoch}
    return {"ReplicaId": -1, "Topics": [{"Topic": "$topic", "Partitions": [asked]}]}


def _ask(**topic: Any) -> dict[str, Any]:
    return {"Topics": [topic], "AllowAutoTopicCreation": False}


def _metadata() -> Iterator[Case]:
    yield case("Metadata", "of one topic", CREATE, _ask(Name="$topic"))
    yield case("Metadata", "of no topic names brokers and cluster", {"Topics": []}, versions="1+")
    yield case("Metadata", "of a topic that is not there is an error of the topic", _ask(Name="$topic"), versions="4+")
    yield case("Metadata", "of an illegal name is INVALID_TOPIC_EXCEPTION", _ask(Name="bad/name"), versions="4+")
    yield case("Metadata", "by topic id", CREATE, _ask(Name=None, TopicId="$topic_id"), versions="12+")
    yield case("Metadata", "by an id of no topic is UNKNOWN_TOPIC_ID", _ask(Name=None, TopicId=NOWHERE), versions="12+")
    authorized = _ask(Name="$topic") | {
        "IncludeTopicAuthorizedOperations": True, "IncludeClusterAuthorizedOperations": True
    }  # fmt: skip
    yield case("Metadata", "with what the client may do", CREATE, authorized, versions="8+")
    yield case("DescribeCluster", "names the brokers", {})
    yield case("DescribeCluster", "with what the client may do", {"IncludeClusterAuthorizedOperations": True})
    page = {"Topics": [{"Name": "$topic"}], "ResponsePartitionLimit": 100, "Cursor": None}
    yield case("DescribeTopicPartitions", "of one topic", CREATE, page)
    yield case("DescribeTopicPartitions", "of a topic that is not there is an error of the topic", page)


def _commit(member: str = "", generation: int = -1) -> dict[str, Any]:
    partition = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": 0, "CommittedMetadata": "note"}
    topic = {"Name": "$topic", "TopicId": "$topic_id", "Partitions": [partition]}
    return {
        "GroupId": "$group", "GenerationIdOrMemberEpoch": generation, "MemberId": member, "RetentionTimeMs": -1,
        "Topics": [topic],
    }  # fmt: skip


COMMIT = Step("OffsetCommit", _commit(), 8)


def _fetch_offsets(partition: int = 0, *, everything: bool = False) -> dict[str, Any]:
    topics = [{"Name": "$topic", "TopicId": "$topic_id", "PartitionIndexes": [partition]}]
    group = {"GroupId": "$group", "Topics": None if everything else topics}
    old = [{"Name": "$topic", "PartitionIndexes": [partition]}]
    return {"GroupId": "$group", "Topics": None if everything else old, "Groups": [group], "RequireStable": True}


def _offsets() -> Iterator[Case]:
    yield case("OffsetCommit", "outside of any generation is kept", CREATE, _commit())
    yield case("OffsetCommit", "of a member that nobody knows is UNKNOWN_MEMBER_ID", CREATE, _commit("nobody", 3))
    yield case("OffsetFetch", "returns what was committed", CREATE, COMMIT, _fetch_offsets())
    yield case("OffsetFetch", "of a partition without commit returns -1", CREATE, COMMIT, _fetch_offsets(5))
    yield case("OffsetFetch", "of a group that is not there returns -1", CREATE, _fetch_offsets())
    yield case("OffsetFetch", "of everything returns all that was committed", CREATE, COMMIT,
               _fetch_offsets(everything=True), versions="2+")  # fmt: skip
    yield case("OffsetCommit", "of a member in its generation", CREATE, JOIN, SYNC, _commit("$member", 1))
    yield case("OffsetCommit", "in another generation is ILLEGAL_GENERATION", CREATE, JOIN, SYNC, _commit("$member", 9))
    yield case(
        "OffsetCommit", "outside of the generation of a group with members is an error", CREATE, JOIN, SYNC, _commit()
    )
    lengthy = _commit()
    lengthy["Topics"][0]["Partitions"][0]["CommittedMetadata"] = "x" * 5000
    yield case("OffsetCommit", "with 5000 bytes of metadata is OFFSET_METADATA_TOO_LARGE", CREATE, lengthy)
    elsewhere = _commit()
    elsewhere["Topics"][0]["TopicId"] = NOWHERE
    yield case("OffsetCommit", "for a topic that is not there is an error", elsewhere)
    deletion = {"GroupId": "$group", "Topics": [{"Name": "$topic", "Partitions": [{"PartitionIndex": 0}]}]}
    yield case("OffsetDelete", "forgets a committed offset", CREATE, COMMIT, deletion)
    yield case("OffsetDelete", "of a group that is not there is GROUP_ID_NOT_FOUND", deletion)


def _join(member: str = "", protocol: str = "range") -> dict[str, Any]:
    return {
        "GroupId": "$group", "SessionTimeoutMs": 30_000, "RebalanceTimeoutMs": 30_000, "MemberId": member,
        "ProtocolType": "consumer", "Protocols": [{"Name": protocol, "Metadata": SUBSCRIPTION}],
    }  # fmt: skip


def _sync(member: str = "$member", generation: int = 1) -> dict[str, Any]:
    return {
        "GroupId": "$group", "GenerationId": generation, "MemberId": member, "ProtocolType": "consumer",
        "ProtocolName": "range", "Assignments": [{"MemberId": member, "Assignment": ASSIGNMENT}],
    }  # fmt: skip


JOIN, SYNC = Step("JoinGroup", _join(), 3), Step("SyncGroup", _sync(), 3)


def _groups() -> Iterator[Case]:
    finding = {"Key": "$group", "KeyType": 0, "CoordinatorKeys": ["$group"]}
    yield case("FindCoordinator", "of a group", finding)
    yield case("FindCoordinator", "of a transaction", finding | {"KeyType": 1}, versions="1+")
    yield case(
        "FindCoordinator", "of a kind that does not exist is INVALID_REQUEST", finding | {"KeyType": 9}, versions="1+"
    )
    yield case("JoinGroup", "of a first member makes it leader of generation 1", _join(), versions="0-3")
    yield case("JoinGroup", "asks a new member to come back with the id it gets", _join(), versions="4+")
    yield case("JoinGroup", "with the id that was given makes it leader", _join(), _join("$member"), versions="4+")
    yield case("JoinGroup", "of a member that nobody knows is UNKNOWN_MEMBER_ID", _join("nobody"))
    yield case("JoinGroup", "without a common protocol is INCONSISTENT_GROUP_PROTOCOL", JOIN, SYNC,
               _join(protocol="other"))  # fmt: skip
    yield case(
        "JoinGroup", "with a session timeout of 1 ms is INVALID_SESSION_TIMEOUT", _join() | {"SessionTimeoutMs": 1}
    )
    yield case("SyncGroup", "gives the member its assignment", JOIN, _sync())
    yield case("SyncGroup", "of another generation is ILLEGAL_GENERATION", JOIN, _sync(generation=9))
    yield case("SyncGroup", "of a member that nobody knows is UNKNOWN_MEMBER_ID", JOIN, _sync("nobody"))
    beat = {"GroupId": "$group", "GenerationId": 1, "MemberId": "$member"}
    yield case("Heartbeat", "of a member", JOIN, SYNC, beat)
    yield case("Heartbeat", "of another generation is ILLEGAL_GENERATION", JOIN, SYNC, beat | {"GenerationId": 9})
    yield case("Heartbeat", "of a member that nobody knows is UNKNOWN_MEMBER_ID", beat | {"MemberId": "nobody"})
    leaving = {"GroupId": "$group", "MemberId": "$member", "Members": [{"MemberId": "$member", "Reason": "done"}]}
    yield case("LeaveGroup", "of a member", JOIN, SYNC, leaving)
    yield case("LeaveGroup", "of a member that nobody knows is UNKNOWN_MEMBER_ID", JOIN, SYNC,
               leaving | {"MemberId": "nobody", "Members": [{"MemberId": "nobody"}]})  # fmt: skip
    static = _join() | {"GroupInstanceId": "one"}
    yield case("JoinGroup", "with a group.instance.id needs no second try", static, versions="5+")
    known = Step("JoinGroup", static, 5)
    yield case("JoinGroup", "of a static member that comes back replaces its member id", known, SYNC, static,
               versions="5+")  # fmt: skip
    yield case("Heartbeat", "of another member under a group.instance.id is FENCED_INSTANCE_ID", known, SYNC,
               beat | {"MemberId": "nobody", "GroupInstanceId": "one"}, versions="3+")  # fmt: skip
    yield case("LeaveGroup", "by group.instance.id", known, SYNC,
               leaving | {"Members": [{"MemberId": "", "GroupInstanceId": "one"}]}, versions="3+")  # fmt: skip
    yield case("LeaveGroup", "by a group.instance.id that nobody has", known, SYNC,
               leaving | {"Members": [{"MemberId": "", "GroupInstanceId": "two"}]}, versions="3+")  # fmt: skip
    describing = {"Groups": ["$group"], "IncludeAuthorizedOperations": True}
    yield case("DescribeGroups", "of a stable group", JOIN, SYNC, describing)
    yield case("DescribeGroups", "of a group with offsets only is Empty", CREATE, COMMIT, describing)
    yield case("DescribeGroups", "of a group that is not there", describing)
    yield case("ListGroups", "has the group with its state and type", JOIN, SYNC, {})
    yield case("ListGroups", "by state has those in it", JOIN, SYNC, {"StatesFilter": ["Stable"]}, versions="4+")
    yield case("ListGroups", "by type has those of it", JOIN, SYNC, {"TypesFilter": ["classic"]}, versions="5+")
    deleting = {"GroupsNames": ["$group"]}
    yield case("DeleteGroups", "deletes an empty group", CREATE, COMMIT, deleting)
    yield case("DeleteGroups", "refuses a group with members", JOIN, SYNC, deleting)
    yield case("DeleteGroups", "of a group that is not there is GROUP_ID_NOT_FOUND", deleting)


def _handshakes() -> Iterator[Case]:
    yield case(
        "ApiVersions",
        "names the APIs with their versions",
        {"ClientSoftwareName": "frames", "ClientSoftwareVersion": "1"},
    )
    yield case("ApiVersions", "with an illegal client name is INVALID_REQUEST",
               {"ClientSoftwareName": "-no-", "ClientSoftwareVersion": "1"}, versions="3+")  # fmt: skip
    yield case("SaslHandshake", "on a listener without SASL is ILLEGAL_SASL_STATE", {"Mechanism": "PLAIN"})
    yield case("SaslAuthenticate", "on a listener without SASL is ILLEGAL_SASL_STATE", {"AuthBytes": "00"})


def _topics() -> Iterator[Case]:
    yield case("CreateTopics", "makes a topic", _new_topic())
    yield case("CreateTopics", "of a topic that exists is TOPIC_ALREADY_EXISTS",
               Step("CreateTopics", _new_topic(), 7), _new_topic())  # fmt: skip
    yield case("CreateTopics", "with a setting", _new_topic(Configs=[{"Name": "retention.ms", "Value": "1000"}]))
    yield case("CreateTopics", "with five replicas on one broker is INVALID_REPLICATION_FACTOR",
               _new_topic(ReplicationFactor=5))  # fmt: skip
    yield case("CreateTopics", "with no partitions is INVALID_PARTITIONS", _new_topic(NumPartitions=0))
    yield case("CreateTopics", "with the broker's defaults", _new_topic(NumPartitions=-1, ReplicationFactor=-1),
               versions="4+")  # fmt: skip
    yield case("CreateTopics", "with a setting that does not exist is INVALID_CONFIG",
               _new_topic(Configs=[{"Name": "no.such", "Value": "1"}]))  # fmt: skip
    yield case("CreateTopics", "with an illegal name is INVALID_TOPIC_EXCEPTION", _new_topic(Name="bad/name"))
    by_hand = [{"PartitionIndex": 0, "BrokerIds": [NODE]}, {"PartitionIndex": 1, "BrokerIds": [NODE]}]
    yield case("CreateTopics", "with replicas chosen by hand",
               _new_topic(NumPartitions=-1, ReplicationFactor=-1, Assignments=by_hand))  # fmt: skip
    both = _new_topic()
    both["Topics"] *= 2
    yield case("CreateTopics", "of one name twice is INVALID_REQUEST", both)
    yield case("CreateTopics", "only to be validated makes nothing",
               _new_topic() | {"ValidateOnly": True}, _new_topic() | {"ValidateOnly": True})  # fmt: skip
    deleting = {"TopicNames": ["$topic"], "Topics": [{"Name": "$topic"}], "TimeoutMs": 10_000}
    yield case("DeleteTopics", "deletes a topic", CREATE, deleting)
    yield case("DeleteTopics", "of a topic that is not there is UNKNOWN_TOPIC_OR_PARTITION", deleting)
    double = {"TopicNames": ["$topic"] * 2, "Topics": [{"Name": "$topic"}] * 2, "TimeoutMs": 10_000}
    yield case("DeleteTopics", "of one name twice", CREATE, double)
    by_id = {"Topics": [{"Name": None, "TopicId": "$topic_id"}], "TimeoutMs": 10_000}
    yield case("DeleteTopics", "by topic id", CREATE, by_id, versions="6+")
    unknown = {"Topics": [{"Name": None, "TopicId": NOWHERE}], "TimeoutMs": 10_000}
    yield case("DeleteTopics", "by an id of no topic is UNKNOWN_TOPIC_ID", unknown, versions="6+")
    yield case("DeleteRecords", "moves the beginning of the log", CREATE, PRODUCE, _delete_records(0, 1))
    yield case("DeleteRecords", "up to -1 deletes up to the end", CREATE, PRODUCE, _delete_records(0, -1))
    yield case("DeleteRecords", "behind the end is OFFSET_OUT_OF_RANGE", CREATE, PRODUCE, _delete_records(0, 9))
    yield case("DeleteRecords", "of a partition that is not there is an error", CREATE, _delete_records(5, 0))

    def growing(count: int, **changes: Any) -> dict[str, Any]:
        topic = {"Name": "$topic", "Count": count, "Assignments": None} | changes
        return {"Topics": [topic], "TimeoutMs": 10_000, "ValidateOnly": False}

    yield case("CreatePartitions", "adds partitions", CREATE, growing(3))
    yield case("CreatePartitions", "to as many as there are is INVALID_PARTITIONS", CREATE, growing(1))
    yield case("CreatePartitions", "of a topic that is not there is UNKNOWN_TOPIC_OR_PARTITION", growing(3))
    yield case("CreatePartitions", "on a broker that is not there is INVALID_REPLICA_ASSIGNMENT", CREATE,
               growing(2, Assignments=[{"BrokerIds": [99]}]))  # fmt: skip


def _delete_records(partition: int, offset: int) -> dict[str, Any]:
    topic = {"Name": "$topic", "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}
    return {"Topics": [topic], "TimeoutMs": 10_000}


TRANSACTION = {"TransactionalId": "$transaction"}
PRODUCER = {"ProducerId": "$producer_id", "ProducerEpoch": 0}
STRANGER = {"ProducerId": 999_999, "ProducerEpoch": 0}
INIT = Step("InitProducerId", TRANSACTION | {"TransactionTimeoutMs": 60_000}, 4)
WHERE = [{"Name": "$topic", "Partitions": [0]}]


def _add_partitions(producer: dict[str, Any]) -> dict[str, Any]:
    old = {
        "V3AndBelowTransactionalId": "$transaction", "V3AndBelowProducerId": producer["ProducerId"],
        "V3AndBelowProducerEpoch": 0, "V3AndBelowTopics": WHERE,
    }  # fmt: skip
    return old | {"Transactions": [TRANSACTION | producer | {"VerifyOnly": False, "Topics": WHERE}]}


ADD = Step("AddPartitionsToTxn", _add_partitions(PRODUCER), 3)


def _transactions() -> Iterator[Case]:
    yield case("InitProducerId", "gives an id to an idempotent producer",
               {"TransactionalId": None, "TransactionTimeoutMs": 60_000})  # fmt: skip
    yield case("InitProducerId", "gives an id to a transactional producer",
               TRANSACTION | {"TransactionTimeoutMs": 60_000})  # fmt: skip
    yield case("InitProducerId", "again raises the epoch", INIT, TRANSACTION | {"TransactionTimeoutMs": 60_000})
    yield case("InitProducerId", "with an empty transactional id is INVALID_REQUEST",
               {"TransactionalId": "", "TransactionTimeoutMs": 60_000})  # fmt: skip
    yield case("InitProducerId", "with a timeout of 0 is INVALID_TRANSACTION_TIMEOUT",
               TRANSACTION | {"TransactionTimeoutMs": 0})  # fmt: skip
    yield case("AddPartitionsToTxn", "takes partitions into the transaction", CREATE, INIT, _add_partitions(PRODUCER))
    yield case("AddPartitionsToTxn", "of a transaction that is not there is INVALID_PRODUCER_ID_MAPPING", CREATE,
               _add_partitions(STRANGER))  # fmt: skip
    offsets = TRANSACTION | {"GroupId": "$group"}
    yield case("AddOffsetsToTxn", "takes a group into the transaction", INIT, offsets | PRODUCER)
    yield case("AddOffsetsToTxn", "of a transaction that is not there is INVALID_PRODUCER_ID_MAPPING",
               offsets | STRANGER)  # fmt: skip
    ending = TRANSACTION | {"Committed": True}
    yield case("EndTxn", "commits", CREATE, INIT, ADD, ending | PRODUCER)
    yield case("EndTxn", "aborts", CREATE, INIT, ADD, ending | PRODUCER | {"Committed": False})
    yield case("EndTxn", "of a transaction without partitions", INIT, ending | PRODUCER)
    yield case("EndTxn", "of another epoch is an error", CREATE, INIT, ADD, ending | PRODUCER | {"ProducerEpoch": 7})
    yield case("EndTxn", "of a transaction that is not there is INVALID_PRODUCER_ID_MAPPING", ending | STRANGER)
    marker = STRANGER | {"TransactionResult": True, "CoordinatorEpoch": 0, "TransactionVersion": 1, "Topics": WHERE}
    marker["Topics"] = [{"Name": "$topic", "PartitionIndexes": [0]}]
    yield case("WriteTxnMarkers", "writes a marker", CREATE, {"Markers": [marker]})
    elsewhere = marker | {"Topics": [{"Name": "$topic", "PartitionIndexes": [5]}]}
    yield case("WriteTxnMarkers", "to a partition that is not there is an error", CREATE, {"Markers": [elsewhere]})
    partition = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": 0, "CommittedMetadata": "note"}
    commit = offsets | {"Topics": [{"Name": "$topic", "Partitions": [partition]}]}
    adding = Step("AddOffsetsToTxn", offsets | PRODUCER, 3)
    yield case("TxnOffsetCommit", "keeps offsets for the transaction", CREATE, INIT, adding, commit | PRODUCER)
    yield case("TxnOffsetCommit", "of a member that nobody knows is an error", CREATE, INIT, adding,
               commit | PRODUCER | {"GenerationId": 3, "MemberId": "nobody"}, versions="3+")  # fmt: skip
    asking = {"Topics": [{"Name": "$topic", "PartitionIndexes": [0]}]}
    yield case("DescribeProducers", "of a partition without producers", CREATE, asking)
    yield case("DescribeProducers", "of a topic that is not there is an error", asking)
    describing = {"TransactionalIds": ["$transaction"]}
    yield case("DescribeTransactions", "of an open transaction", CREATE, INIT, ADD, describing)
    yield case("DescribeTransactions", "of one that is not there is TRANSACTIONAL_ID_NOT_FOUND", describing)
    yield case("ListTransactions", "has the open transaction", CREATE, INIT, ADD, {"StateFilters": ["Ongoing"]})
    yield case("ListTransactions", "with a state that does not exist says so", {"StateFilters": ["NoSuchState"],
               "ProducerIdFilters": [999_999]})  # fmt: skip


def _security() -> Iterator[Case]:
    acl = {
        "ResourceType": 2,
        "ResourceName": "$topic",
        "ResourcePatternType": 3,
        "Principal": "User:frames",
        "Host": "*",
    }
    acl |= {"Operation": 3, "PermissionType": 3}
    named = {
        "ResourceTypeFilter": 2,
        "ResourceNameFilter": "$topic",
        "PatternTypeFilter": 3,
        "Operation": 1,
        "PermissionType": 1,
    }
    yield case("DescribeAcls", "without an authorizer is SECURITY_DISABLED", named)
    yield case("CreateAcls", "without an authorizer is SECURITY_DISABLED", {"Creations": [acl]})
    yield case("DeleteAcls", "without an authorizer is SECURITY_DISABLED", {"Filters": [named]})
    kind = {"EntityType": "client-id", "MatchType": 0, "Match": "$group"}
    quota = {"Entity": [{"EntityType": "client-id", "EntityName": "$group"}]}
    limit = [{"Key": "producer_byte_rate", "Value": 1000.0, "Remove": False}]
    yield case("AlterClientQuotas", "sets a quota of a client", {"Entries": [quota | {"Ops": limit}]})
    yield case("AlterClientQuotas", "refuses a quota that does not exist",
               {"Entries": [quota | {"Ops": [{"Key": "no_such", "Value": 1.0, "Remove": False}]}]})  # fmt: skip
    yield case("DescribeClientQuotas", "of a client without quotas", {"Components": [kind], "Strict": True})
    yield case("DescribeUserScramCredentials", "of a user that is not there is RESOURCE_NOT_FOUND",
               {"Users": [{"Name": "$group"}]})  # fmt: skip
    yield case("AlterUserScramCredentials", "that deletes what is not there is RESOURCE_NOT_FOUND",
               {"Deletions": [{"Name": "$group", "Mechanism": 1}], "Upsertions": []})  # fmt: skip


def _describe_configs(kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": list(keys)}
    return {"Resources": [resource], "IncludeSynonyms": True, "IncludeDocumentation": False}


def _resource(*configs: dict[str, Any], name: str = "$topic", kind: int = 2) -> dict[str, Any]:
    return {
        "Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": list(configs)}],
        "ValidateOnly": False,
    }


def _configs() -> Iterator[Case]:
    yield case(
        "DescribeConfigs", "of a topic, by keys", CREATE, _describe_configs(2, "$topic", "cleanup.policy", "flush.ms")
    )
    changed = Step("CreateTopics", _new_topic(Configs=[{"Name": "retention.ms", "Value": "1000"}]), 7)
    yield case("DescribeConfigs", "tells what was set from what is default", changed,
               _describe_configs(2, "$topic", "retention.ms"))  # fmt: skip
    yield case("DescribeConfigs", "of a topic that is not there is UNKNOWN_TOPIC_OR_PARTITION",
               _describe_configs(2, "$topic", "cleanup.policy"))  # fmt: skip
    yield case("DescribeConfigs", "of a broker", _describe_configs(4, "$node", "log.cleaner.threads"))
    retention = {"Name": "retention.ms", "Value": "5000"}
    yield case("AlterConfigs", "replaces a topic's settings", CREATE, _resource(retention))
    yield case(
        "AlterConfigs",
        "with a value that cannot be is INVALID_CONFIG",
        CREATE,
        _resource(retention | {"Value": "soon"}),
    )
    yield case("AlterConfigs", "of a topic that is not there is an error", _resource(retention))
    for what, operation in (("sets", 0), ("deletes", 1)):
        yield case(
            "IncrementalAlterConfigs", f"{what} a value", CREATE, _resource(retention | {"ConfigOperation": operation})
        )
    yield case("IncrementalAlterConfigs", "appends to a list", CREATE,
               _resource({"Name": "cleanup.policy", "ConfigOperation": 2, "Value": "compact"}))  # fmt: skip
    yield case("IncrementalAlterConfigs", "does not append to what is no list", CREATE,
               _resource(retention | {"ConfigOperation": 2}))  # fmt: skip
    yield case("ListConfigResources", "of client metrics", {"ResourceTypes": [16]})
    yield case("ListConfigResources", "of topics", CREATE, {"ResourceTypes": [2]}, versions="1+")


def _replicas() -> Iterator[Case]:
    moving = {"Dirs": [{"Path": "/no/such/folder", "Topics": WHERE}]}
    yield case("AlterReplicaLogDirs", "to a folder that is not there is LOG_DIR_NOT_FOUND", CREATE, moving)
    yield case("DescribeLogDirs", "has the size of a partition", CREATE, PRODUCE,
               {"Topics": [{"Topic": "$topic", "Partitions": [0]}]})  # fmt: skip
    electing = {"ElectionType": 0, "TopicPartitions": [{"Topic": "$topic", "Partitions": [0]}], "TimeoutMs": 10_000}
    yield case("ElectLeaders", "where the leader is the preferred one is ELECTION_NOT_NEEDED", CREATE, electing)
    yield case("ElectLeaders", "of a topic that is not there is UNKNOWN_TOPIC_OR_PARTITION", electing)
    yield case("ElectLeaders", "unclean where there is a leader is ELECTION_NOT_NEEDED", CREATE,
               electing | {"ElectionType": 1}, versions="1+")  # fmt: skip

    def reassigning(replicas: list[Any] | None) -> dict[str, Any]:
        topic = {"Name": "$topic", "Partitions": [{"PartitionIndex": 0, "Replicas": replicas}]}
        return {"TimeoutMs": 10_000, "Topics": [topic]}

    yield case("AlterPartitionReassignments", "to the same replicas does nothing", CREATE, reassigning([NODE]))
    yield case("AlterPartitionReassignments", "to a broker that is not there is INVALID_REPLICA_ASSIGNMENT", CREATE,
               reassigning([99]))  # fmt: skip
    yield case(
        "AlterPartitionReassignments", "that cancels none is NO_REASSIGNMENT_IN_PROGRESS", CREATE, reassigning(None)
    )
    listing = {"TimeoutMs": 10_000, "Topics": [{"Name": "$topic", "PartitionIndexes": [0]}]}
    yield case("ListPartitionReassignments", "of a topic without any", CREATE, listing)
    yield case("ListPartitionReassignments", "of all", {"TimeoutMs": 10_000, "Topics": None})


def _cluster() -> Iterator[Case]:
    quorum = {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]}
    yield case("DescribeQuorum", "names leader and voters", quorum)
    other = {"Topics": [{"TopicName": "$topic", "Partitions": [{"PartitionIndex": 0}]}]}
    yield case("DescribeQuorum", "of another topic is an error", other)
    update = {"Feature": "no.such.feature", "MaxVersionLevel": 1, "AllowDowngrade": False, "UpgradeType": 1}
    yield case(
        "UpdateFeatures",
        "of a feature that does not exist is an error",
        {"TimeoutMs": 10_000, "FeatureUpdates": [update]},
    )
    yield case("UnregisterBroker", "of a broker that is not there is BROKER_ID_NOT_REGISTERED", {"BrokerId": 999})
