"""Answers in the form that two brokers have in common: what must differ is replaced by what it stands for.

This is the whole list of what is not compared as it is:

* ids that a broker draws (topics, members, producers, fetch sessions): replaced by a name, in the order of appearance,
  wherever they turn up, so that the same id has to come back in the same places;
* ids of telemetry clients that a broker draws likewise, and their hash is taken out of the number of the subscription;
* host and port: compared in being the broker's own;
* times of day, sizes of disks and paths (`NOT_COMPARED`);
* what the internal topics hold;
* the order of lists that Kafka takes out of hash tables (`UNORDERED`).
"""

from __future__ import annotations

import re
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from pykbroker.protocol.records.batch import RecordBatch, iter_batches
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.uuids import ZERO_UUID, uuid_to_text
from pykbroker.requests.api_table import APIS

NOT_COMPARED: dict[str, str] = {
    "log_append_time_ms": "the broker's clock",
    "last_timestamp": "the broker's clock",
    "transaction_start_time_ms": "the broker's clock",
    "last_fetch_timestamp": "the broker's clock",
    "last_caught_up_timestamp": "the broker's clock",
    "total_bytes": "the size of the disk",
    "usable_bytes": "the space on the disk at that moment",
    "log_dir": "where the data lies",
    "documentation": "Kafka's prose is its own",
    "finalized_features_epoch": "how much metadata there is",
    "cluster_id": "drawn when the cluster was made",
    "replica_directory_id": "drawn when the data directory was made",
    "DescribeQuorumResponse.topics.partitions.leader_epoch": "how often the node was elected so far",
    "DescribeQuorumResponse.topics.partitions.high_watermark": "how much metadata there is",
    "DescribeQuorumResponse.topics.partitions.current_voters.log_end_offset": "how much metadata there is",
    "DescribeQuorumResponse.topics.partitions.observers.log_end_offset": "how much metadata there is",
}
"""Fields, by name or path, that are compared only in being negative, zero, positive, absent or empty."""

STARTED_WITH = frozenset(
    {
        "advertised.listeners",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
    }
)
"""Settings with which the two brokers are started in different ways: Kafka has listeners of its own between nodes."""

UNORDERED = {
    "ProduceResponse.responses",
    "ProduceResponse.responses.partition_responses",
    "TxnOffsetCommitResponse.topics",
    "ListOffsetsResponse.topics",
    "DeleteRecordsResponse.topics",
    "DeleteTopicsResponse.responses",
    "OffsetForLeaderEpochResponse.topics",
    "ListConfigResourcesResponse.config_resources",
    "MetadataResponse.topics",
    "ElectLeadersResponse.replica_election_results",
    "ElectLeadersResponse.replica_election_results.partition_result",
    "DescribeLogDirsResponse.results.topics",
    "DescribeLogDirsResponse.results.topics.partitions",
    "AlterReplicaLogDirsResponse.results",
    "AlterReplicaLogDirsResponse.results.partitions",
    "DescribeAclsResponse.resources",
    "DescribeAclsResponse.resources.acls",
    "DeleteAclsResponse.filter_results.matching_acls",
    "DescribeClientQuotasResponse.entries",
    "ListTransactionsResponse.transaction_states",
    "DescribeTransactionsResponse.transaction_states",
    "DescribeTransactionsResponse.transaction_states.topics",
    "AddPartitionsToTxnResponse.results_by_transaction",
    "AddPartitionsToTxnResponse.results_by_transaction.topic_results",
    "AddPartitionsToTxnResponse.results_by_topic_v3_and_below",
    "AddPartitionsToTxnResponse.results_by_topic_v3_and_below.results_by_partition",
    "AlterUserScramCredentialsResponse.results",
    "DescribeUserScramCredentialsResponse.results",
    "AlterClientQuotasResponse.entries",
    "AlterClientQuotasResponse.entries.entity",
    "DescribeClientQuotasResponse.entries.entity",
    "WriteTxnMarkersResponse.markers",
    "WriteTxnMarkersResponse.markers.topics",
    "DescribeProducersResponse.topics.partitions.active_producers",
    "JoinGroupResponse.members",
    "DescribeGroupsResponse.groups.members",
    "ListGroupsResponse.groups",
    "ConsumerGroupHeartbeatResponse.assignment.topic_partitions",
    "ConsumerGroupDescribeResponse.groups.members",
    "ConsumerGroupDescribeResponse.groups.members.subscribed_topic_names",
    "ConsumerGroupDescribeResponse.groups.members.assignment.topic_partitions",
    "ConsumerGroupDescribeResponse.groups.members.target_assignment.topic_partitions",
    "ShareGroupHeartbeatResponse.assignment.topic_partitions",
    "ShareGroupDescribeResponse.groups.members",
    "ShareGroupDescribeResponse.groups.members.subscribed_topic_names",
    "ShareGroupDescribeResponse.groups.members.assignment.topic_partitions",
    "InitializeShareGroupStateResponse.results",
    "ReadShareGroupStateResponse.results",
    "WriteShareGroupStateResponse.results",
    "DeleteShareGroupStateResponse.results",
    "ReadShareGroupStateSummaryResponse.results",
    "ShareFetchResponse.responses",
    "ShareFetchResponse.responses.partitions",
    "ShareAcknowledgeResponse.responses",
    "ShareAcknowledgeResponse.responses.partitions",
    "DescribeShareGroupOffsetsResponse.groups.topics",
    "DescribeShareGroupOffsetsResponse.groups.topics.partitions",
    "AlterShareGroupOffsetsResponse.responses",
    "DeleteShareGroupOffsetsResponse.responses",
    "StreamsGroupDescribeResponse.groups.members",
    "StreamsGroupDescribeResponse.groups.members.client_tags",
    "StreamsGroupHeartbeatResponse.partitions_by_user_endpoint",
    "StreamsGroupHeartbeatResponse.partitions_by_user_endpoint.active_partitions",
    "ApiVersionsResponse.supported_features",
    "ApiVersionsResponse.finalized_features",
}
"""Paths of lists whose order and grouping Kafka takes from hash tables: sorted, one topic's partitions joined."""

SCRIPT_TIME_MAX = 1_790_001_000_000
"""Timestamps of scripts are below; others that come back are the broker's clock, those of markers for example."""

FOREIGN = re.compile(r"d\d{5}-")
"""Names of other runs; what a broker lists of them is left out."""

SHORT_MEMBER = re.compile(r"[\w-]{22}")
"""A member id that Kafka draws for a classic member of a consumer group."""

CLUSTER_ID = re.compile(r'the cluster id "[^"]*"')
"""AddRaftVoter and RemoveRaftVoter say what the id would have been."""

MEMBER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Names:
    """Plain names for the ids that one broker has given out."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.tilde = ""
        self.topic_ids: dict[bytes, str] = {}
        self.producers: dict[int, str] = {}
        self.sessions: dict[int, str] = {}
        self.clients: dict[bytes, str] = {}
        self._members: dict[str, str] = {}

    def add_topic(self, name: str, topic_id: bytes) -> None:
        """Names a topic's id; a topic that was deleted and created again has several."""
        if topic_id not in self.topic_ids:
            plain = name.replace(self.tilde, "~") if self.tilde else name
            lives = sum(known.partition(" ")[0] == plain for known in self.topic_ids.values())
            self.topic_ids[topic_id] = f"{plain} of life {lives + 1}" if lives else plain

    def plain(self, value: Any) -> Any:
        """The value with names in the place of ids, as dicts, lists and scalars."""
        return self._plain(value, "", "")

    def plain_text(self, value: str, name: str) -> str:
        """As `plain`, for the text of a field with this name."""
        return self._text(value, name)

    def _plain(self, value: Any, name: str, path: str) -> Any:
        if isinstance(value, Message):
            start = path or type(value).__name__
            plain = {
                field.name: self._field(field.kind, getattr(value, field.name), field.name, f"{start}.{field.name}")
                for field in value.FIELDS
            }
            if isinstance(value, GetTelemetrySubscriptionsResponse) and value.subscription_id:
                plain["subscription_id"] ^= _java_hash(value.client_instance_id)
            return plain
        if isinstance(value, list):
            items = [self._plain(item, name, path) for item in value]
            if path == "ApiVersionsResponse.api_keys":
                items = sorted(items, key=lambda item: item["api_key"])
                return [item for item in items if item["api_key"] in APIS]
            items = [item for item in items if not _is_foreign(item)]
            if path == "DescribeConfigsResponse.results.configs":
                items = [item for item in items if item["name"] not in STARTED_WITH]
            if path == "DescribeClientQuotasResponse.entries":
                items = [item for item in items if item["entity"]]
            if path in ("DescribeLogDirsResponse.results.topics", "DescribeProducersResponse.topics"):
                items = [item for item in items if not item["name"].startswith("__")]
            return _ordered(items) if path in UNORDERED else items
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(value, name)
        # NaN, a possible value of a quota, is not equal to itself.
        return "NaN" if value != value else value

    def _field(self, kind: str, value: Any, name: str, path: str) -> Any:
        if name in NOT_COMPARED or path in NOT_COMPARED:
            return _rough(value)
        if kind == "uuid":
            return self._uuid(value)
        if kind == "records":
            return self._records(value)
        return self._plain(value, name, path)

    def _text(self, value: str, name: str) -> str:
        if name == "host":
            return "<host>" if value in (self.address[0], "localhost") else value
        if self.tilde:
            value = value.replace(self.tilde, "~")
        if name == "error_message":
            value = CLUSTER_ID.sub("the cluster id <drawn>", value)
        for topic_id, topic in self.topic_ids.items():
            value = value.replace(uuid_to_text(topic_id), f"<id of {topic}>")
        if name in ("member_id", "leader") and SHORT_MEMBER.fullmatch(value):
            return self._members.setdefault(value, f"<short {len(self._members)}>")
        for producer_id, producer in self.producers.items():
            if name == "error_message" and "producer" in value.lower():
                value = re.sub(rf"\b{producer_id}\b", producer, value)
        return MEMBER.sub(lambda found: self._members.setdefault(found.group(), f"<{len(self._members)}>"), value)

    def _number(self, value: int, name: str) -> Any:
        if name == "port":
            return "<port>" if value == self.address[1] else value
        if name in ("producer_id", "ongoing_txn_producer_id"):
            return self.producers.get(value, value)
        if name == "timestamp" and value > SCRIPT_TIME_MAX:
            return "now"
        if name == "session_id":
            return self.sessions.get(value, value)
        return value

    def _uuid(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return ""
        topic = self.topic_ids.get(value)
        return f"<id of {topic}>" if topic else self.clients.get(value) or value.hex()

    def _records(self, value: Any) -> Any:
        if value is None:
            return None
        data = bytes(value)
        batches: list[Any] = []
        end = 0
        try:
            for batch in iter_batches(data):
                batches.append(self._batch(batch))
                end += batch.size_bytes
        except RecordError as error:
            batches.append(str(error))
        return batches if end == len(data) else [*batches, f"{len(data) - end} bytes"]

    def _batch(self, batch: RecordBatch) -> Any:
        # A control batch and a batch with the broker's time have the broker's clock in them.
        is_timed = batch.is_log_append_time or batch.is_control
        return {
            "offset": batch.base_offset,
            "last": batch.last_offset_delta,
            "count": batch.record_count,
            "epoch": batch.partition_leader_epoch,
            "magic": batch.magic,
            "attributes": batch.attributes,
            "producer": self.producers.get(batch.producer_id, batch.producer_id),
            "producer epoch": batch.producer_epoch,
            "sequence": batch.base_sequence,
            "time": "time" if is_timed else (batch.base_timestamp, batch.max_timestamp),
            "crc": batch.verify_crc(),
            "records": "" if batch.is_control else [(r.key, r.value, r.headers) for r in batch.records()],
        }


def _java_hash(uuid: bytes) -> int:
    """Kafka's hash of an id, with which the number of a client's subscription is mixed."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return int.from_bytes(((mixed >> 32) ^ (mixed & 0xFFFFFFFF)).to_bytes(4, "big"), "big", signed=True)


def _is_foreign(item: Any) -> bool:
    texts = item.values() if isinstance(item, dict) else (item,)
    return any(isinstance(text, str) and FOREIGN.match(text) for text in texts)


def _ordered(items: list[Any]) -> list[Any]:
    """Sorted, after joining those that differ in their one list only."""
    joined: dict[str, Any] = {}
    alone: list[Any] = []
    for item in items:
        lists = [name for name, value in item.items() if isinstance(value, list)] if isinstance(item, dict) else []
        if len(lists) != 1 or "partition" not in lists[0]:
            alone.append(item)
            continue
        rest = repr({name: value for name, value in item.items() if name != lists[0]})
        if rest in joined:
            joined[rest][lists[0]] += item[lists[0]]
        else:
            joined[rest] = item
    for item in joined.values():
        for value in item.values():
            if isinstance(value, list):
                value.sort(key=repr)
    # What is about the same thing, as a topic deleted by name and by id, comes in any order.
    return sorted([*alone, *joined.values()], key=lambda item: (_identity(item), repr(item)))


def _identity(item: Any) -> str:
    """Fields that identify an element of a list, without its error fields."""
    if not isinstance(item, dict):
        return repr(item)
    return repr({name: value for name, value in item.items() if not name.startswith("error")})


def _rough(value: Any) -> Any:
    if isinstance(value, int):
        return "<0" if value < 0 else ">0" if value else 0
    return value if value is None else "something" if value else "nothing"


def differences(kafka: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Differences between two plain answers: (path, Kafka's value, our value)."""
    if isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys():
        return [found for key in kafka for found in differences(kafka[key], ours[key], f"{path}.{key}")]
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        pairs = enumerate(zip(kafka, ours, strict=True))
        return [found for n, (left, right) in pairs for found in differences(left, right, f"{path}[{n}]")]
    if isinstance(kafka, list) and isinstance(ours, list):
        only = [item for item in kafka if item not in ours], [item for item in ours if item not in kafka]
        return [(f"{path} (of {len(kafka)} and {len(ours)})", *(only if any(only) else (kafka, ours)))]
    return [] if kafka == ours else [(path, kafka, ours)]
