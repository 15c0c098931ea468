"""One broker as scripts see it: their names and references become its ids, its answers are noted in plain form."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.uuids import ZERO_UUID
from tests.differential.barrier import Barrier
from tests.differential.members_told import MembersTold
from tests.differential.plain import Names
from tests.differential.script import GUEST_HOST, GUESTS, HOST, Records, Ref, Step, batch_bytes
from tests.differential.wire import CLOSED, SILENCE, SOMETIMES_SILENT, Connection, api_of, message_type
from tests.pykbroker.groups.driver import subscription

CHANGES = {
    "create_topics",
    "delete_topics",
    "create_partitions",
    "alter_configs",
    "incremental_alter_configs",
    "alter_client_quotas",
    "alter_user_scram_credentials",
    "create_acls",
    "delete_acls",
    "update_features",
    "elect_leaders",
    "alter_partition_reassignments",
}
"""APIs after which Kafka's broker follows its controller some milliseconds later."""

MAY_WAIT = {"join_group", "sync_group"}
"""APIs whose answer can depend on other connections' requests."""

GROUP_APIS = MAY_WAIT | {"leave_group", "heartbeat", "delete_groups"}
PATIENCE_S = 0.4
"""After this long an answer that may wait for others is taken to do so."""

ANSWER_TIMEOUT_S = 120.0
"""Longest wait for what must come; only a broker that is at fault takes so long."""
SILENCE_S = 4.0
"""After this long a request is taken to get no answer, if it may be one that gets none."""
RETRIES = {
    # errors that tell of a change which is still going on inside the broker
    14,  # COORDINATOR_LOAD_IN_PROGRESS
    15,  # COORDINATOR_NOT_AVAILABLE
    51,  # CONCURRENT_TRANSACTIONS
}
RETRY_S = 1.0
MISSING_TOPIC = {3, 5}
"""UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE: Metadata may have asked for the topic to be created."""

GROUP_RESOURCE, CLIENT_METRICS_RESOURCE = 32, 16
CLIENT_METRICS_CONFIGS = ("interval.ms", "match", "metrics")
DELETE_CONFIG = 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
BACKGROUND_S = 1.0
"""Time for what a heartbeat has started in the background: states of share partitions, internal topics."""
REGEX_S = 0.3
"""Time for the resolution of a regular expression, which begins after the answer to a heartbeat."""
MARKERS_S = 5.0
"""Time for the markers of an ended transaction; a partition with a marker of a later coordinator epoch refuses them."""
RELEASE_S = 0.3
"""Kafka answers the end of a share session before the records of its member are released."""
MISSING_INTERNAL_TOPICS = 3
"""Status of a Streams group."""


class World:
    """A broker, and what a script has learned of it.

    Attributes:
        answers: (label, plain answer) of every request, in the order of the requests.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.answers: list[tuple[str, Any]] = []
        self.names = Names(address)
        self._connections: dict[int, Connection] = {}
        self._control = Connection(address)
        self._barrier = Barrier(self.ask)
        self._forget()

    def _forget(self) -> None:
        self._topics: dict[str, bytes] = {}
        self._members: dict[str, list[str]] = {}
        self._generations: dict[str, int] = {}
        self._producers: dict[str, list[tuple[int, int]]] = {}
        self._sequences: dict[tuple[int, int, str, int], int] = {}
        self._sessions: list[int] = []
        self._requests: dict[int, Message] = {}
        self._sent: dict[int, list[tuple[tuple[int, int, str, int], int]]] = {}
        self._client_metrics: set[str] = set()
        self._endless_transactions: set[str] = set()
        self._has_guests = False
        self._members_told = MembersTold()

    def begin(self, tilde: str) -> None:
        """Starts a run: `tilde` takes the place of "~" in all names."""
        self._hang_up()
        self.answers = []
        self.names = Names(self.address)
        self.names.tilde = tilde
        self._forget()
        self._learn_topics(INTERNAL_TOPICS)

    def end(self) -> None:
        """Hangs up and deletes the run's topics, so that thousands of runs do not fill the broker."""
        self._hang_up()
        names = sorted(name for name in self._topics if name.startswith(self.names.tilde))
        self.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), 5)
        if self._has_guests:
            # The entries for guests are about everybody's cluster and topics; those for the control connection go last.
            for host in (GUEST_HOST, HOST):
                entries = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, host_filter=host)
                entries.operation = entries.permission_type = 1
                self.ask(DeleteAclsRequest(filters=[entries]), 3)
        if self._client_metrics:
            # These are about every client, those of other scripts too.
            gone = [AlterableConfig(name=key, config_operation=DELETE_CONFIG) for key in CLIENT_METRICS_CONFIGS]
            resources = [
                AlterConfigsResource(resource_type=CLIENT_METRICS_RESOURCE, resource_name=name, configs=gone)
                for name in sorted(self._client_metrics)
            ]
            self.ask(IncrementalAlterConfigsRequest(resources=resources), 1)

    def close(self) -> None:
        """Closes all connections."""
        self.hang_up()

    def hang_up(self) -> None:
        """Closes all connections; the next requests open them again."""
        self._hang_up()
        self._control.close()

    def ask(self, request: Message, version: int) -> Any:
        """One request on the control connection, whose answer is not noted."""
        self._control.send(api_of(request), version, request, -1)
        answer = self._control.receive(ANSWER_TIMEOUT_S)
        assert isinstance(answer, Message), f"{request}: {answer}"
        return answer

    def _hang_up(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    @property
    def session_count(self) -> int:
        """Number of fetch sessions that were asked for so far, which is the number of the next one."""
        return len(self._sessions)

    def call(self, request: Message, version: int, connection: int = 0) -> Any:
        """One request with its answer, noted; the answer as it came."""
        return self.run(Step(connection, api_of(request), version, request))

    def run(self, step: Step) -> Any:
        """Sends the step's request and notes what comes back, if it does not wait for others."""
        connection = self._connection(step.connection)
        if connection.waiting is not None and self._collect(connection, PATIENCE_S) is SILENCE:
            connection.close()
        self._has_guests = self._has_guests or step.connection >= GUESTS
        number = len(self.answers)
        self.answers.append((str(step), SILENCE))
        request = self._resolved(step.request, number)
        self._requests[number] = request
        deadline = time.monotonic() + RETRY_S
        while True:
            connection.send(step.api, step.version, request, number, step.damage)
            if getattr(request, "acks", 1) == 0 and not step.damage:
                # Nothing is answered to this; whether the connection lives shows the next request.
                connection.receive_nothing()
                connection.send("api_versions", 0, message_type("api_versions", "Request")(), number)
                answer = connection.receive(SILENCE_S)
                self.answers[number] = (str(step), CLOSED if answer is CLOSED else "the connection stays")
                self._advance(number)
                break
            answer = self._collect(connection, _patience_s(step))
            if time.monotonic() > deadline or not _has_error(answer, RETRIES):
                break
            time.sleep(0.02)
        if step.api in CHANGES or (step.api == "metadata" and _has_error(answer, MISSING_TOPIC)):
            self.settle(_texts(request))
        if step.api == "end_txn":
            self._await_markers(getattr(request, "transactional_id", ""))
        if step.api in GROUP_APIS:
            self.collect_waiting(0.06)
        self._await_background(step.api, request, answer)
        return answer

    def _connection(self, number: int) -> Connection:
        if number not in self._connections:
            self._connections[number] = Connection(self.address, GUEST_HOST if number >= GUESTS else HOST)
        return self._connections[number]

    def collect_waiting(self, timeout_s: float) -> None:
        """Takes the answers that came on connections whose request had to wait."""
        for connection in self._connections.values():
            if connection.waiting is not None:
                self._collect(connection, timeout_s)

    def settle(self, texts: set[str]) -> None:
        """Returns when the broker goes by all metadata that was written so far; learns the ids of the named topics."""
        self._barrier.pass_through()
        if self.names.tilde:
            self._learn_topics(sorted(text for text in texts if text.startswith(self.names.tilde)))

    def _learn_topics(self, names: Iterable[str]) -> None:
        asked = [MetadataRequestTopic(name=name) for name in names]
        found = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
        for topic in found.topics:
            known = self._topics.get(topic.name)
            if topic.error_code == 0 and known != topic.topic_id:
                self._topics[topic.name] = topic.topic_id
                self.names.add_topic(topic.name, topic.topic_id)

    def _await_markers(self, transactional_id: str) -> None:
        """Waits until a transaction that was ended has its markers: the coordinator answers before.

        A transaction that does not end is noted once, so that both brokers must have it, in the same state.
        """
        deadline = time.monotonic() + MARKERS_S
        while transactional_id not in self._endless_transactions:
            answer = self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
            state = answer.transaction_states[0].transaction_state
            if not state.startswith("Prepare"):
                return
            if time.monotonic() > deadline:
                self._endless_transactions.add(transactional_id)
                self.answers.append(("a transaction does not end", state))
            time.sleep(0.01)

    def _await_background(self, api: str, request: Any, answer: Any) -> None:
        """Waits for what the answer to a request of the new groups has come before."""
        told = self._members_told
        if api in ("alter_configs", "incremental_alter_configs"):
            named = {r.resource_name for r in request.resources if r.resource_type == CLIENT_METRICS_RESOURCE}
            self._client_metrics |= {name for name in named if name.startswith(self.names.tilde)}
        if told.has_share_sessions and (answer is CLOSED or getattr(request, "share_session_epoch", 0) == -1):
            time.sleep(RELEASE_S)
        if api == "consumer_group_heartbeat" and getattr(request, "subscribed_topic_regex", None):
            time.sleep(REGEX_S)
        if api == "share_group_heartbeat" and getattr(answer, "error_code", 1) == 0:
            self._await_share_states(request.group_id, told.share_topics(request))
        if api == "streams_group_heartbeat" and isinstance(answer, Message):
            names = told.internal_topics(request)
            if any(status.status_code == MISSING_INTERNAL_TOPICS for status in getattr(answer, "status", None) or ()):
                self._await_topics(names)

    def _await_share_states(self, group_id: str, names: set[str]) -> None:
        """Waits until the group has a state for each partition of the topics that exist."""
        asked = [MetadataRequestTopic(name=name) for name in sorted(names)]
        found = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics if asked else ()
        counts = {topic.name: len(topic.partitions) for topic in found if topic.error_code == 0}
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        deadline = time.monotonic() + BACKGROUND_S
        while counts and time.monotonic() < deadline:
            described = self.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 0).groups[0].topics
            have = {topic.topic_name: len(topic.partitions) for topic in described}
            counts = {name: count for name, count in counts.items() if have.get(name, 0) < count}
            time.sleep(0.01)

    def _await_topics(self, names: set[str]) -> None:
        """Waits for topics that may be about to be created."""
        asked = [MetadataRequestTopic(name=name) for name in sorted(names)]
        deadline = time.monotonic() + BACKGROUND_S
        missing = bool(asked)
        while missing and time.monotonic() < deadline:
            found = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
            missing = any(topic.error_code == 3 for topic in found)
            time.sleep(0.02)
        self.settle(names)

    def _collect(self, connection: Connection, timeout_s: float) -> Any:
        waiting = connection.waiting
        assert waiting is not None
        answer = connection.receive(timeout_s)
        if answer is not SILENCE:
            self._learn(waiting.api, self._requests[waiting.step], answer, waiting.step)
            self.answers[waiting.step] = (self.answers[waiting.step][0], self.names.plain(answer))
        return answer

    # What a script's requests say, for this broker

    def _resolved(self, value: Any, number: int, place: tuple[str, int] = ("", 0)) -> Any:
        if isinstance(value, Ref):
            return self._known(value)
        if isinstance(value, Records):
            return self._batches(value, number, place)
        if isinstance(value, Message):
            topic = getattr(value, "name", None) or getattr(value, "topic_id", None)
            place = (str(topic) if topic else place[0], getattr(value, "index", place[1]))
            fields = {f.name: self._resolved(getattr(value, f.name), number, place) for f in value.FIELDS}
            return type(value)(**fields)
        if isinstance(value, list):
            return [self._resolved(item, number, place) for item in value]
        return value.replace("~", self.names.tilde) if isinstance(value, str) else value

    def _known(self, ref: Ref) -> Any:
        name = ref.name.replace("~", self.names.tilde)
        if ref.kind in MembersTold.KINDS:
            return self._members_told.known(ref._replace(name=name), self.names.tilde)
        if ref.kind == "topic_id":
            return self._topics.get(name, ref.name.encode().rjust(16, b"\x7e")[-16:])
        if ref.kind == "member":
            members = self._members.get(name, [])
            return members[ref.number] if members and ref.number < len(members) else f"nobody-{ref.number}"
        if ref.kind == "subscribed":
            return subscription(*name.split())
        if ref.kind == "generation":
            return self._generations.get(name, 1) + ref.shift
        if ref.kind in ("producer_id", "producer_epoch"):
            producers = self._producers.get(name, [])
            known = producers[ref.number] if ref.number < len(producers) else (987_654_321 + ref.number, 0)
            return known[0] + ref.shift if ref.kind == "producer_id" else max(known[1] + ref.shift, -1)
        assert ref.kind == "session_id"
        return self._sessions[ref.number] if ref.number < len(self._sessions) else 77 + ref.number

    def _batches(self, records: Records, number: int, place: tuple[str, int]) -> bytes:
        data = b""
        for batch in records.batches:
            producer_id, epoch, sequence = -1, -1, -1
            if batch.producer is not None or batch.producer_index >= 0:
                name, index = batch.producer or "", max(batch.producer_index, 0)
                producer_id = self._known(Ref("producer_id", name, index))
                epoch = self._known(Ref("producer_epoch", name, index, batch.epoch_shift))
                key = (producer_id, epoch, *place)
                sequence = self._sequences.get(key, 0) if batch.sequence is None else batch.sequence
                self._sent.setdefault(number, []).append((key, (sequence + batch.record_count) & 0x7FFFFFFF))
            data += batch_bytes(batch, producer_id, epoch, sequence)
        return data + records.tail

    # What its answers tell

    def _learn(self, api: str, request: Any, answer: Any, number: int) -> None:
        if not isinstance(answer, Message):
            return
        learn = getattr(self, f"_learn_{api}", None)
        if learn is not None:
            learn(request, answer, number)

    def _learn_share_group_heartbeat(self, request: Any, answer: Any, number: int) -> None:
        self._members_told.learn_heartbeat(request, answer)

    def _learn_consumer_group_heartbeat(self, request: Any, answer: Any, number: int) -> None:
        self._members_told.learn_heartbeat(request, answer)
        self._members_told.learn_assigned(request, answer)

    def _learn_streams_group_heartbeat(self, request: Any, answer: Any, number: int) -> None:
        self._members_told.learn_heartbeat(request, answer)
        self._members_told.learn_tasks(request, answer)

    def _learn_share_fetch(self, request: Any, answer: Any, number: int) -> None:
        self._members_told.learn_share_session(request, answer)
        names = {topic_id: name for name, topic_id in self._topics.items()}
        self._members_told.learn_acquired(request, answer, names)

    def _learn_share_acknowledge(self, request: Any, answer: Any, number: int) -> None:
        self._members_told.learn_share_session(request, answer)

    def _learn_get_telemetry_subscriptions(self, request: Any, answer: Any, number: int) -> None:
        is_drawn = request.client_instance_id == ZERO_UUID
        self._members_told.learn_subscription(answer, is_drawn=is_drawn)
        if is_drawn:
            self.names.clients.setdefault(answer.client_instance_id, f"<client {len(self.names.clients)}>")

    def _learn_create_topics(self, request: Any, answer: Any, number: int) -> None:
        for topic in answer.topics:
            if any(topic.topic_id):
                self.names.add_topic(topic.name, topic.topic_id)

    def _learn_join_group(self, request: Any, answer: Any, number: int) -> None:
        group_id = request.group_id.replace("~", self.names.tilde)
        members = self._members.setdefault(group_id, [])
        if answer.member_id and answer.error_code in (0, 79) and answer.member_id not in members:
            members.append(answer.member_id)
            self.names.plain(answer.member_id)  # gives it its name
        if answer.error_code == 0:
            self._generations[group_id] = answer.generation_id

    def _learn_init_producer_id(self, request: Any, answer: Any, number: int) -> None:
        if answer.error_code == 0:
            self._learn_producer(request.transactional_id or "", answer.producer_id, answer.producer_epoch)

    def _learn_end_txn(self, request: Any, answer: Any, number: int) -> None:
        if answer.error_code == 0 and answer.producer_id >= 0:
            self._learn_producer(request.transactional_id, answer.producer_id, answer.producer_epoch)

    def _learn_producer(self, name: str, producer_id: int, epoch: int) -> None:
        name = name.replace("~", self.names.tilde)
        producers = self._producers.setdefault(name, [])
        if name:
            producers[:] = []
        known = [index for index, (other, _) in enumerate(producers) if other == producer_id]
        if known:
            producers[known[0]] = (producer_id, epoch)
        else:
            producers.append((producer_id, epoch))
        self.names.producers.setdefault(producer_id, f"<producer {len(self.names.producers)}>")

    def _learn_fetch(self, request: Any, answer: Any, number: int) -> None:
        # Every request for a session counts, so that one that fails for a listed reason does not shift the others.
        if request.session_epoch == 0:
            self.names.sessions.setdefault(answer.session_id or -1, f"session {len(self._sessions)}")
            self._sessions.append(answer.session_id)

    def _learn_produce(self, request: Any, answer: Any, number: int) -> None:
        if all(part.error_code == 0 for topic in answer.responses for part in topic.partition_responses):
            self._advance(number)

    def _advance(self, number: int) -> None:
        for key, following in self._sent.get(number, ()):
            self._sequences[key] = following


def _patience_s(step: Step) -> float:
    """Seconds after which no answer to a step is taken for its result."""
    if step.api in MAY_WAIT:
        return PATIENCE_S
    return SILENCE_S if step.damage or step.api in SOMETIMES_SILENT else ANSWER_TIMEOUT_S


def _has_error(answer: Any, codes: set[int]) -> bool:
    """True if an answer contains one of these error codes at any depth."""
    if isinstance(answer, list):
        return any(_has_error(item, codes) for item in answer)
    if not isinstance(answer, Message):
        return False
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            if value in codes:
                return True
        elif field.kind in ("array", "struct") and _has_error(value, codes):
            return True
    return False


def _texts(value: Any) -> set[str]:
    """All texts in a message."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Message):
        return set().union(*(_texts(getattr(value, field.name)) for field in value.FIELDS))
    return set().union(*map(_texts, value)) if isinstance(value, list) else set()
