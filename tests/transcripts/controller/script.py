"""A conversation with a controller's port: brokers of which nothing exists but their requests.

The script is a generator of steps and gets the answers, as it has to name the epochs that it is given. `plain` makes of
an answer or a metadata record what can be compared between two controllers: random ids and offsets have names there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pykbroker.protocol.fields import Message
from pykbroker.protocol.log_messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from pykbroker.protocol.messages import alter_partition as alter
from pykbroker.protocol.messages import alter_partition_reassignments as reassign
from pykbroker.protocol.messages import assign_replicas_to_dirs as assign
from pykbroker.protocol.messages import describe_cluster, describe_quorum, elect_leaders, unregister_broker, vote
from pykbroker.protocol.messages import list_partition_reassignments as listing
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pykbroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.envelope import EnvelopeRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.transcripts import to_json
from tests.transcripts.controller.raft_requests import Case, Quorum

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
NODE_ID = 100

SESSION_TIMEOUT_S = 3.0
UNCLEAN_INTERVAL_S = 1.0
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "unclean.leader.election.interval.ms": "1000",
    "auto.leader.rebalance.enable": "false",
}
"""Settings that both controllers are started with."""

FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}

NOT_COMPARED = ("configs", "host", "port", "high_watermark", "end_offset", "size", "unaligned_records")
"""The echo of a new topic's settings is the admin transcript's matter; logs and checkpoints are as long as they are."""

FAR = 1 << 40
"""An offset that no log has reached."""


class Ask(NamedTuple):
    """A request; the answer is sent into the script."""

    label: str
    version: int
    request: Message


class Wait(NamedTuple):
    """Time passes."""

    seconds: float


class Checkpoint(NamedTuple):
    """The controller takes a checkpoint, if it has none yet; end offset and epoch of the newest one are sent in."""


Step = Ask | Wait | Checkpoint
Steps = Generator[Step, Any, None]


class Names:
    """Names of what two controllers choose differently."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.epochs: dict[int, str] = {}

    def plain(self, value: Any, key: str = "") -> Any:
        """Data without ids and offsets of one controller's own."""
        if isinstance(value, dict):
            return {name: self.plain(content, name) for name, content in value.items() if name not in NOT_COMPARED}
        if isinstance(value, list):
            return [self.plain(member, key) for member in value]
        if key == "topic_id":
            return self.topics.get(value, value)
        if key in ("broker_epoch", "epoch"):
            return self.epochs.get(value, value)
        return value


def directory(number: int) -> bytes:
    return b"directory" + number.to_bytes(7, "big")


class Script:
    """Scenes of requests, with the ids, epochs and partition states that earlier responses contained.

    `with_eligible_replicas`: for a cluster with eligible.leader.replicas.version 1; there is one more scene then.
    """

    def __init__(self, *, with_eligible_replicas: bool = False) -> None:
        self.with_eligible_replicas = with_eligible_replicas
        self.names = Names()
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.states: dict[str, tuple[int, int, int]] = {}

    def run(self) -> Steps:
        yield from self._registrations()
        yield from self._heartbeats()
        yield from self._in_sync_sets()
        yield from self._reassignments()
        yield from self._directories()
        yield from self._controlled_shutdown()
        yield from self._sessions()
        yield from self._unclean()
        if self.with_eligible_replicas:
            yield from self._eligible()
        yield from self._end()
        yield from self._quorum()
        yield from self._envelope()
        yield from self._raft()

    # Requests

    def register(
        self, label: str, broker_id: int, /, *, version: int = 4, incarnation: int = 1, **fields: Any
    ) -> Steps:
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": bytes([broker_id]) * 15 + bytes([incarnation]),
            "listeners": [Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092)],
            "features": features(FEATURES),
            "rack": f"rack-{broker_id % 2}",
            "log_dirs": [directory(broker_id)],
        }
        answer = yield Ask(label, version, BrokerRegistrationRequest(**{**values, **fields}))
        if answer.error_code == 0:
            self.epochs[broker_id] = answer.broker_epoch
            self.names.epochs.setdefault(answer.broker_epoch, f"epoch {len(self.names.epochs)} of broker {broker_id}")

    def beat(self, label: str, broker_id: int, /, *, version: int = 1, offset: int = FAR, **fields: Any) -> Steps:
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": self.epochs[broker_id],
            "current_metadata_offset": offset,
        }
        yield Ask(label, version, BrokerHeartbeatRequest(**{**values, **fields}))

    def create(self, name: str, *replicas: int) -> Steps:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
        )
        answer = yield Ask(f"create {name}", 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        self.topic_ids[name] = answer.topics[0].topic_id
        self.names.topics[answer.topics[0].topic_id.hex()] = name
        self.states[name] = (replicas[0], 0, 0)

    def alter(self, label: str, name: str, isr: Sequence[int], *, version: int = 3, **changes: Any) -> Steps:
        """AlterPartition by the leader on the newest state that the answers told, unless changed."""
        leader, leader_epoch, partition_epoch = self.states[name]
        leader = changes.pop("by", leader)
        epochs = {**self.epochs, **changes.pop("epochs", {})}
        partition = alter.PartitionData(
            partition_index=changes.pop("partition", 0),
            leader_epoch=changes.pop("leader_epoch", leader_epoch),
            partition_epoch=changes.pop("partition_epoch", partition_epoch),
            leader_recovery_state=changes.pop("recovery", 0),
        )
        if version >= 3:
            partition.new_isr_with_epochs = [
                alter.BrokerState(broker_id=broker_id, broker_epoch=epochs.get(broker_id, 7)) for broker_id in isr
            ]
        else:
            partition.new_isr = list(isr)
        topic = alter.TopicData(
            topic_id=changes.pop("topic_id", self.topic_ids.get(name, bytes(16))), partitions=[partition]
        )
        epoch = changes.pop("broker_epoch", self.epochs.get(leader, 7))
        request = alter.AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, topics=[topic])
        answer = yield Ask(f"{name}: {label}", version, request)
        if answer.error_code == 0:
            got = answer.topics[0].partitions[0]
            if got.error_code == 0:
                self.states[name] = (got.leader_id, got.leader_epoch, got.partition_epoch)

    # Scenes

    def _registrations(self) -> Steps:
        yield from self.register("of another cluster", 1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        yield from self.register("from ZooKeeper", 1, is_migrating_zk_broker=True)
        yield from self.register("without directories", 1, log_dirs=[])
        yield from self.register("before directories were told", 1, version=1, log_dirs=[])
        yield from self.register("reserved directory", 1, log_dirs=[bytes(15) + b"\x07"])
        yield from self.register("directory twice", 1, log_dirs=[directory(1), directory(1)])
        yield from self.register("no metadata.version", 1, features=features({"group.version": (0, 1)}))
        yield from self.register("too old", 1, features=features({"metadata.version": (7, 20)}))
        for broker_id, version in ((1, 4), (2, 3), (3, 2)):
            yield from self.register(f"version {version}", broker_id, version=version)
        yield from self.register("the same again", 1)
        yield from self.register("another's directory", 4, log_dirs=[directory(2)])
        yield from self.register("fourth", 4)

    def _heartbeats(self) -> Steps:
        yield from self.beat("unknown broker", 1, broker_id=77)
        yield from self.beat("wrong epoch", 1, broker_epoch=self.epochs[1] + 1)
        yield from self.beat("not caught up", 1, offset=0)
        yield from self.beat("wants to stay fenced", 1, want_fence=True)
        yield from self.beat("wants to serve", 1, version=0)
        yield from self.beat("serves", 1, version=2)
        yield from self.beat("wants to be fenced", 1, want_fence=True)
        for broker_id in (1, 2, 3, 4):
            yield from self.beat("serves", broker_id)
        yield from self.register("another process while the first lives", 1, incarnation=2)
        yield Ask("producer ids", 0, AllocateProducerIdsRequest(broker_id=1, broker_epoch=self.epochs[1]))
        yield Ask("more", 0, AllocateProducerIdsRequest(broker_id=2, broker_epoch=self.epochs[2]))
        yield Ask("for nobody", 0, AllocateProducerIdsRequest(broker_id=9, broker_epoch=1))

    def _in_sync_sets(self) -> Steps:
        yield from self.create("t", 1, 2, 3)
        yield from self.alter("shrink", "t", [1, 3])
        yield from self.alter("shrink with version 2", "t", [1], version=2)
        yield from self.alter("expand", "t", [1, 2])
        yield from self.alter("the same", "t", [1, 2])
        yield from self.alter("leader epoch ahead", "t", [1], leader_epoch=1)
        yield from self.alter("partition epoch ahead", "t", [1], partition_epoch=99)
        yield from self.alter("partition epoch behind", "t", [1], partition_epoch=0)
        yield from self.alter("by another", "t", [1], by=2)
        yield from self.alter("without the leader", "t", [2])
        yield from self.alter("nobody", "t", [])
        yield from self.alter("no replica", "t", [1, 4])
        yield from self.alter("twice", "t", [1, 1])
        yield from self.alter("recovering", "t", [1], recovery=1)
        yield from self.alter("recovering with others", "t", [1, 2], recovery=1)
        yield from self.alter("unknown topic", "t", [1], topic_id=b"0123456789abcdef")
        yield from self.alter("no topic id", "t", [1], topic_id=bytes(16))
        yield from self.alter("unknown partition", "t", [1], partition=4)
        yield from self.alter("stale leader", "t", [1], broker_epoch=1)
        yield from self.alter("unknown leader", "t", [9], by=9)
        yield from self.alter("another process of a replica", "t", [1, 2, 3], epochs={3: 12345})
        yield from self.alter("epoch not told", "t", [1, 2, 3], epochs={3: -1})
        yield from self.beat("is fenced", 3, want_fence=True)
        yield from self.alter("stale", "t", [1, 2, 3])
        self.states["t"] = (1, 0, self.states["t"][2] + 1)
        yield from self.alter("fenced replica", "t", [1, 2, 3])
        yield from self.alter("fenced replica, version 2", "t", [1, 2, 3], version=2)
        yield from self.beat("serves again", 3)
        yield from self.alter("expand again", "t", [3, 2, 1])
        for election_type in (0, 1, 2):
            yield from self.elect(election_type, "t")

    def elect(self, election_type: int, name: str) -> Steps:
        topics = [elect_leaders.TopicPartitions(topic=name, partitions=[0, 1])]
        yield Ask(
            f"elect {name} by {election_type}",
            2,
            elect_leaders.ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=10_000),
        )

    def reassign(self, label: str, name: str, replicas: Sequence[int] | None) -> Steps:
        partition = reassign.ReassignablePartition(
            partition_index=0, replicas=None if replicas is None else list(replicas)
        )
        topic = reassign.ReassignableTopic(name=name, partitions=[partition])
        yield Ask(f"{name}: {label}", 1, reassign.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000))
        yield Ask(f"after {label}", 0, listing.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None))

    def _reassignments(self) -> Steps:
        yield from self.create("r", 1, 2)
        yield from self.reassign("to 3 and 4", "r", (3, 4))
        self.states["r"] = (1, 0, 1)
        yield from self.alter("one is in sync", "r", [1, 2, 3])
        yield from self.alter("both are in sync, so the leader goes", "r", [1, 2, 3, 4])
        self.states["r"] = (3, 1, 3)
        yield from self.alter("the new leader", "r", [3, 4])
        yield from self.reassign("add 1", "r", (3, 4, 1))
        self.states["r"] = (3, 1, 4)
        yield from self.reassign("cancel", "r", None)
        yield from self.reassign("cancel again", "r", None)
        self.states["r"] = (3, 2, 5)
        yield from self.alter("after the cancel", "r", [3, 4])
        yield from self.reassign("fewer", "r", (4,))
        self.states["r"] = (4, 3, 6)
        yield from self.alter("alone", "r", [4])
        yield from self.reassign("another order and one more", "r", (2, 4))
        self.states["r"] = (4, 3, 7)
        yield from self.alter("in sync, so it ends", "r", [4, 2])
        yield from self.reassign("unknown broker", "r", (9,))
        yield from self.reassign("nobody", "r", ())
        yield from self.elect(0, "r")

    def _directories(self) -> Steps:
        yield from self.register("two directories", 5, log_dirs=[directory(5), directory(105)])
        yield from self.beat("serves", 5)
        yield from self.create("d", 5, 1)
        for label, chosen in (("the second", directory(105)), ("none of its own", directory(999))):
            partitions = [assign.PartitionData(partition_index=index) for index in (0, 3)]
            topics = [
                assign.TopicData(topic_id=self.topic_ids["d"], partitions=partitions),
                assign.TopicData(topic_id=b"0123456789abcdef", partitions=partitions),
                assign.TopicData(topic_id=self.topic_ids["t"], partitions=partitions[:1]),
            ]
            request = assign.AssignReplicasToDirsRequest(
                broker_id=5,
                broker_epoch=self.epochs[5],
                directories=[assign.DirectoryData(id=chosen, topics=topics)],
            )
            yield Ask(label, 0, request)
        yield from self.create("e", 5, 2)
        yield from self.beat("lost a directory", 5, offline_log_dirs=[directory(5)])
        yield from self.beat("cordoned the other", 5, version=2, cordoned_log_dirs=[directory(105)])
        # By hand a broker may get replicas all the same.
        yield from self.create("cordoned", 5, 2)
        yield from self.beat("opened it", 5, version=2, cordoned_log_dirs=[])

    def _controlled_shutdown(self) -> Steps:
        yield from self.create("c", 1, 2, 3)
        for broker_id in (1, 2, 3, 4, 5):
            yield from self.beat("serves", broker_id)
        yield from self.beat("reads slowly", 2, offset=self.epochs[5])
        yield from self.beat("wants to stop", 1, want_shut_down=True)
        yield from self.beat("still wants to stop", 1, want_shut_down=True)
        self.states["c"] = (2, 1, 1)
        yield from self.alter("who stops cannot be in sync", "c", [2, 3, 1])
        yield from self.beat("has read all", 2)
        yield from self.beat("may stop", 1, want_shut_down=True)
        yield from self.beat("is fenced, wants to stop", 1, want_shut_down=True)
        yield from self.beat("leads a partition and wants to stop", 5, want_shut_down=True)
        yield from self.beat("wants both", 4, want_shut_down=True, want_fence=True)
        # Or two would fall silent at the same moment, and be fenced in any order.
        yield Ask("forget 5", 0, unregister_broker.UnregisterBrokerRequest(broker_id=5))

    def _sessions(self) -> Steps:
        """Brokers 2 and 3 beat, 4 came back and falls silent, 1 comes back as another process."""
        yield from self.beat("serves", 4)
        yield from self.create("s", 4, 2)
        for _ in range(8):
            yield from self.beat("serves", 2)
            yield from self.beat("serves", 3)
            yield Wait(SESSION_TIMEOUT_S / 5)
        self.states["s"] = (2, 1, 1)
        yield from self.alter("fenced for its silence", "s", [2, 4])
        yield from self.alter("the new leader", "s", [2])
        yield from self.register("another process", 1, incarnation=2, previous_broker_epoch=self.epochs[1])
        yield from self.beat("serves", 1)
        yield from self.beat("speaks again", 4)

    def _unclean(self) -> Steps:
        yield from self.beat("serves", 2)
        yield from self.beat("serves", 3)
        yield from self.create("u", 2, 3)
        yield from self.beat("is fenced", 3, want_fence=True)
        yield from self.beat("is fenced", 2, want_fence=True)
        yield from self.elect(1, "nobody")
        yield from self.elect(1, "u")
        yield from self.beat("serves", 3)
        config = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
        resource = AlterConfigsResource(resource_type=2, resource_name="u", configs=[config])
        yield Ask("allow unclean", 1, IncrementalAlterConfigsRequest(resources=[resource]))
        yield Wait(UNCLEAN_INTERVAL_S + 0.5)
        yield from self.beat("serves", 3)
        self.states["u"] = (3, 2, 3)
        yield from self.alter("recovering with another", "u", [3, 1], recovery=1)
        yield from self.alter("still recovering", "u", [3], recovery=1)
        yield from self.alter("recovered", "u", [3])
        yield from self.beat("serves", 2)
        yield from self.alter("the other comes", "u", [3, 2])
        yield from self.beat("is fenced", 3, want_fence=True)
        yield from self.beat("is fenced", 2, want_fence=True)

    def _eligible(self) -> Steps:
        """KIP-966: brokers 2 and 3, in order and not, around a minimum of two in sync."""
        for broker_id in (1, 4, 2, 3):
            yield from self.beat("serves", broker_id)
        for name in ("e1", "e2", "e3"):
            yield from self.create(name, 2, 3)
            yield from self.min_isr(f"two of {name}", 2, name, "2")
        yield from self.beat("is fenced", 3, want_fence=True)
        yield from self.register("in order", 3, incarnation=20, previous_broker_epoch=self.epochs[3])
        yield from self.beat("serves", 3)
        self.states["e1"] = (2, 0, 1)
        yield from self.alter("in sync again", "e1", [2, 3])
        yield from self.min_isr("one of e2", 2, "e2", "1")
        yield from self.beat("is fenced", 3, want_fence=True)
        yield from self.register("not in order", 3, incarnation=21)
        yield from self.beat("serves", 3)
        yield from self.alter("in sync for a while", "e1", [2, 3])
        self.states["e1"] = (2, 0, 4)
        yield from self.alter("in sync once more", "e1", [2, 3])
        yield from self.min_isr("no broker's own", 4, "2", "2")
        yield from self.min_isr("not without", 4, "", None)
        yield from self.min_isr("of all", 4, "", "1")
        for broker_id in (3, 2):
            yield from self.beat("is fenced", broker_id, want_fence=True)
        yield from self.register("the last leader, not in order", 2, incarnation=20)
        yield from self.beat("serves", 2)
        yield from self.beat("serves", 3)
        for broker_id in (3, 2):
            yield from self.beat("is fenced", broker_id, want_fence=True)
        for broker_id in (2, 3):
            yield from self.register("nobody in order", broker_id, incarnation=30)
        yield from self.elect(0, "e1")
        yield from self.beat("serves", 2)
        yield from self.elect(1, "e2")
        yield from self.beat("serves", 3)

    def min_isr(self, label: str, resource_type: int, name: str, value: str | None) -> Steps:
        operation = 1 if value is None else 0
        config = AlterableConfig(name="min.insync.replicas", config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])
        yield Ask(label, 1, IncrementalAlterConfigsRequest(resources=[resource]))

    def _end(self) -> Steps:
        yield from self.beat("serves", 2)
        yield from self.beat("serves", 3)
        for broker_id in (3, 3, 9):
            yield Ask(f"forget {broker_id}", 0, unregister_broker.UnregisterBrokerRequest(broker_id=broker_id))
        yield from self.beat("forgotten", 3)
        yield from self.register("comes back", 3, incarnation=3)

    def _quorum(self) -> Steps:
        """Errors that the state machine of the quorum does not see."""
        for cluster_id in ("AAAAAAAAAAAAAAAAAAAAAA", CLUSTER_ID):
            yield Ask("vote about nothing", 2, vote.VoteRequest(cluster_id=cluster_id, voter_id=NODE_ID))
        for endpoint_type in (1, 2, 3):
            yield Ask(
                f"endpoints {endpoint_type}",
                1,
                describe_cluster.DescribeClusterRequest(
                    endpoint_type=endpoint_type, include_cluster_authorized_operations=True
                ),
            )
        yield Ask("endpoints of old", 0, describe_cluster.DescribeClusterRequest())
        topic = describe_quorum.TopicData(topic_name="t", partitions=[describe_quorum.PartitionData()])
        yield Ask("no quorum", 2, describe_quorum.DescribeQuorumRequest(topics=[topic]))

    def _envelope(self) -> Steps:
        inside = CreateTopicsRequest(topics=[CreatableTopic(name="bad name", num_partitions=1, replication_factor=1)])
        for label, request in envelopes(inside):
            yield Ask(label, 0, request)

    def _raft(self) -> Steps:
        """To the leader; to a controller that has voted, then follows a node that is not there, then leads again."""

        def ask(cases: Iterable[Case], where: str = "") -> Steps:
            for label, version, request in cases:
                yield Ask(f"{label}{where}", version, request)

        checkpoint: tuple[int, int] = yield Checkpoint()
        quorum = Quorum(CLUSTER_ID, NODE_ID, epoch=1)
        yield from ask(quorum.harmless())
        yield from ask(quorum.pre_votes())
        yield from ask(quorum.snapshots(*checkpoint))
        yield from ask(quorum.voters())
        later = quorum._replace(epoch=5)
        yield Ask("vote of a later epoch for another", 2, later.vote(voter_id=7))
        yield Ask("vote of a later epoch", 2, later.vote())
        yield Ask("vote once more", 2, later.vote())
        yield Ask("vote for a second candidate", 2, later.vote(replica_id=8))
        yield Ask("vote of an old epoch", 1, quorum.vote())
        yield from ask(later.pre_votes(), " without a leader")
        yield Ask("fetch without a leader", 17, later.fetch())
        yield Ask("snapshot without a leader", 1, later.snapshot(*checkpoint))
        yield Ask("begin by another", 1, later.begin(leader_id=7, voter_id=8))
        yield Ask("begin by another once more", 1, later.begin(leader_id=7))
        yield Ask("vote of a follower", 2, later.vote(replica_id=8))
        yield from ask(later.pre_votes(), " of a follower")
        yield Ask("fetch of a follower", 17, later.fetch())
        yield Ask("fetch of a follower in another epoch", 17, quorum.fetch())
        yield Ask("snapshot of a follower", 1, later.snapshot(*checkpoint))
        yield from ask(((label, version, request) for label, version, request in quorum.voters()), " of a follower")
        yield Ask("end of an epoch", 1, later.end(leader_id=7))
        yield Ask("end of an epoch once more", 0, later.end(leader_id=7))
        yield Wait(1.5)
        yield from ask(later.pre_votes(), " after an election")
        yield Ask("end of an old epoch", 1, later.end(leader_id=7))


def envelopes(inside: Any) -> Iterable[tuple[str, EnvelopeRequest]]:
    """A good Envelope and bad ones."""
    from pykbroker.protocol.codec import encode

    frame = inside.KEY.to_bytes(2, "big") + b"\0\7\0\0\0\x2a\0\4test\0" + encode(inside, 7)
    good: dict[str, Any] = {
        "request_data": frame,
        "request_principal": b"\0\0\5User\6alice\0\0",
        "client_host_address": bytes((127, 0, 0, 1)),
    }
    yield "good", EnvelopeRequest(**good)
    yield "address", EnvelopeRequest(**{**good, "client_host_address": b"abc"})
    yield "principal", EnvelopeRequest(**{**good, "request_principal": b"\0\0\5U"})
    yield "no principal", EnvelopeRequest(**{**good, "request_principal": None})
    yield "not forwardable", EnvelopeRequest(**{**good, "request_data": b"\0\3\0\x0c" + frame[4:]})
    yield "unknown version", EnvelopeRequest(**{**good, "request_data": frame[:2] + b"\0\x63" + frame[4:]})
    yield "unknown API", EnvelopeRequest(**{**good, "request_data": b"\3\xe7" + frame[2:]})
    yield "cut off", EnvelopeRequest(**{**good, "request_data": frame[:-4]})
    yield "nothing", EnvelopeRequest(**{**good, "request_data": b""})


def features(ranges: Mapping[str, tuple[int, int]]) -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in ranges.items()
    ]


COMPARED_RECORDS = (
    TopicRecord,
    PartitionRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    BrokerRegistrationChangeRecord,
)


def plain_records(records: Iterable[Any], names: Names) -> list[dict[str, Any]]:
    """Records in the form in which both controllers must agree: consecutive partition changes sorted by partition."""
    found: list[dict[str, Any]] = []
    run: list[dict[str, Any]] = []
    fenced: set[int] = set()
    for record in records:
        # Kafka fences brokers that are fenced, when they stop or fall silent.
        if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced:
            if record.fenced == 1 and record.broker_id in fenced:
                continue
            (fenced.add if record.fenced == 1 else fenced.discard)(record.broker_id)
        if isinstance(record, TopicRecord):
            names.topics.setdefault(record.topic_id.hex(), record.name)
        data = {"record": type(record).__name__, **names.plain(to_json(record))}
        if isinstance(record, PartitionChangeRecord):
            # Kafka repeats the directories in every change.
            data.pop("directories", None)
            run.append(data)
            continue
        found += sorted(run, key=lambda one: (one["topic_id"], one.get("partition_id", 0)))
        run = []
        if isinstance(record, COMPARED_RECORDS):
            found.append(data)
    return found + sorted(run, key=lambda one: (one["topic_id"], one.get("partition_id", 0)))
