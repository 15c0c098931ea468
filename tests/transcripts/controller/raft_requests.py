"""Requests of the quorum at a controller's port, most of them wrong.

They are for other clusters, logs and voters, of epochs that are over or not there yet, from positions out of range.
Some are left out, as Apache Kafka 4.3.1 ends itself on them: a FetchSnapshot of no log or by the leader's own id, a
BeginQuorumEpoch of a second leader in an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from pykbroker.protocol.messages.fetch import FetchRequest
from pykbroker.protocol.uuids import METADATA_TOPIC_ID

TOPIC = "__cluster_metadata"
OTHER = 7
"""A node that does not exist."""

DIRECTORY = b"some directory !"
FAR = 1 << 40
CLOSED_PORT = 9

Case = tuple[str, int, Message]
"""A label, the version and the request."""

R = TypeVar("R", bound=Message)


class Quorum(NamedTuple):
    """The quorum under test, and builders of requests to it that are correct except for the given changes."""

    cluster_id: str
    node_id: int
    epoch: int

    # Requests that are right but for what is given

    def vote(self, **changes: Any) -> vote.VoteRequest:
        values: dict[str, Any] = {
            "replica_epoch": self.epoch,
            "replica_id": OTHER,
            "replica_directory_id": DIRECTORY,
            "last_offset_epoch": self.epoch - 1,
            "last_offset": FAR,
        }
        request = vote.VoteRequest(cluster_id=self.cluster_id, voter_id=self.node_id)
        return self._filled(request, vote, values, changes)

    def begin(self, **changes: Any) -> begin_quorum_epoch.BeginQuorumEpochRequest:
        values = {"leader_id": self.node_id, "leader_epoch": self.epoch}
        request = begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=self.node_id,
            leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=CLOSED_PORT)],
        )
        return self._filled(request, begin_quorum_epoch, values, changes)

    def end(self, **changes: Any) -> end_quorum_epoch.EndQuorumEpochRequest:
        candidates = [
            end_quorum_epoch.ReplicaInfo(candidate_id=node_id, candidate_directory_id=bytes(16))
            for node_id in (OTHER + 1, self.node_id)
        ]
        values = {
            "leader_id": self.node_id,
            "leader_epoch": self.epoch,
            "preferred_candidates": candidates,
            "preferred_successors": [OTHER + 1, self.node_id],
        }
        request = end_quorum_epoch.EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=CLOSED_PORT)],
        )
        return self._filled(request, end_quorum_epoch, values, changes)

    def fetch(self, **changes: Any) -> fetch.FetchRequest:
        values: dict[str, Any] = {
            "current_leader_epoch": self.epoch,
            "fetch_offset": FAR,
            "last_fetched_epoch": self.epoch,
            "partition_max_bytes": 1 << 20,
            "replica_directory_id": DIRECTORY,
        }
        topic = {"topic": changes.pop("topic_name", TOPIC), "topic_id": changes.pop("topic_id", METADATA_TOPIC_ID)}
        request = fetch.FetchRequest(
            cluster_id=changes.pop("cluster_id", self.cluster_id),
            replica_state=fetch.ReplicaState(replica_id=changes.pop("replica_id", OTHER)),
            max_wait_ms=changes.pop("max_wait_ms", 0),
            max_bytes=1 << 20,
        )
        request.topics = [fetch.FetchTopic(partitions=[fetch.FetchPartition(**{**values, **changes})], **topic)]
        return request

    def snapshot(self, end_offset: int, epoch: int, **changes: Any) -> fetch_snapshot.FetchSnapshotRequest:
        request = fetch_snapshot.FetchSnapshotRequest(
            cluster_id=changes.pop("cluster_id", self.cluster_id),
            replica_id=OTHER,
            max_bytes=changes.pop("max_bytes", 10),
        )
        name = changes.pop("topic_name", TOPIC)
        values: dict[str, Any] = {
            "current_leader_epoch": self.epoch,
            "snapshot_id": fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        }
        partition = fetch_snapshot.PartitionSnapshot(**{**values, **changes})
        request.topics = [fetch_snapshot.TopicSnapshot(name=name, partitions=[partition])]
        return request

    def _filled(self, request: R, module: Any, values: dict[str, Any], changes: dict[str, Any]) -> R:
        for name in ("cluster_id", "voter_id"):
            if name in changes:
                setattr(request, name, changes.pop(name))
        topic = module.TopicData(topic_name=changes.pop("topic_name", TOPIC))
        topic.partitions = [module.PartitionData(**{**values, **changes})]
        setattr(request, "topics", [topic])  # noqa: B010  of three classes, which have it in common
        return request

    # Requests to whoever leads: none of them changes anything

    def harmless(self) -> Iterator[Case]:
        """To a leader, or with FENCED_LEADER_EPOCH to anybody."""
        for version in range(3):
            for label, request in self._votes():
                yield f"vote {label}", version, request
        for version in range(2):
            for label, request in self._epochs(self.begin):
                yield f"begin {label}", version, request
            for label, request in self._epochs(self.end):
                yield f"end {label}", version, request
        yield "begin for another", 1, self.begin(voter_id=OTHER)
        yield "begin for another directory", 1, self.begin(voter_directory_id=DIRECTORY)
        for version in (12, 13, 16, 17):
            for label, request in self._fetches():
                yield f"fetch {label}", version, as_of(request, version)

    def _votes(self) -> Iterator[tuple[str, Message]]:
        yield from self._elsewhere(self.vote)
        yield "from a candidate", self.vote()
        yield "of the last epoch", self.vote(last_offset_epoch=self.epoch)
        yield "of a later last epoch", self.vote(last_offset_epoch=self.epoch + 1)
        yield "before the beginning", self.vote(last_offset=-1)
        yield "before the first epoch", self.vote(last_offset_epoch=-1)
        yield "from nobody", self.vote(replica_id=-1)
        yield "for another", self.vote(voter_id=OTHER)
        yield "for anybody", self.vote(voter_id=-1)
        yield "for another directory", self.vote(voter_directory_id=DIRECTORY)

    def pre_votes(self) -> Iterator[Case]:
        """Requests for pre-votes."""
        yield "pre-vote", 2, self.vote(pre_vote=True)
        yield "pre-vote of the last epoch", 2, self.vote(pre_vote=True, last_offset_epoch=self.epoch)
        yield "pre-vote of a later last epoch", 2, self.vote(pre_vote=True, last_offset_epoch=self.epoch + 1)
        yield "pre-vote of an old epoch", 2, self.vote(pre_vote=True, replica_epoch=self.epoch - 1)
        yield "pre-vote for another", 2, self.vote(pre_vote=True, voter_id=OTHER)
        yield "pre-vote from nobody", 2, self.vote(pre_vote=True, replica_id=-1)
        old = self.vote(pre_vote=True, replica_id=-1, replica_epoch=self.epoch - 1)
        yield "pre-vote from nobody of an old epoch", 2, old

    def _epochs(self, make: Any) -> Iterator[tuple[str, Message]]:
        yield from self._elsewhere(make)
        yield "by itself", make()
        yield "of an old epoch", make(leader_id=OTHER, leader_epoch=self.epoch - 1)
        yield "from nobody", make(leader_id=-1)
        yield "from nobody of an old epoch", make(leader_id=-1, leader_epoch=self.epoch - 1)

    def _fetches(self) -> Iterator[tuple[str, FetchRequest]]:
        yield "of another cluster", self.fetch(cluster_id="another")
        yield "of another log", self.fetch(topic_name="t", topic_id=b"x" * 16)
        yield "of another partition", self.fetch(partition=1)
        nothing = self.fetch()
        nothing.topics = []
        yield "of nothing", nothing
        yield "that waits for the past", self.fetch(max_wait_ms=-1)
        yield "before the beginning", self.fetch(fetch_offset=-1)
        yield "before the first epoch", self.fetch(last_fetched_epoch=-1)
        yield "of a later last epoch", self.fetch(last_fetched_epoch=self.epoch + 1)
        yield "of an old epoch", self.fetch(current_leader_epoch=self.epoch - 1, last_fetched_epoch=0)
        yield "of a later epoch", self.fetch(current_leader_epoch=self.epoch + 1)
        yield "that diverges", self.fetch()
        yield "by its own id", self.fetch(replica_id=self.node_id, fetch_offset=1)

    def _elsewhere(self, make: Any) -> Iterator[tuple[str, Message]]:
        yield "of another cluster", make(cluster_id="another")
        yield "of any cluster", make(cluster_id=None)
        yield "of another log", make(topic_name="t")
        yield "of another partition", make(partition_index=1)
        twice = make()
        twice.topics = twice.topics * 2
        yield "of two logs", twice
        nothing = make()
        nothing.topics = []
        yield "of nothing", nothing

    def snapshots(self, end_offset: int, epoch: int) -> Iterator[Case]:
        """Pieces of a checkpoint that is there, and of others."""

        def make(**changes: Any) -> Message:
            return self.snapshot(changes.pop("end_offset", end_offset), changes.pop("epoch", epoch), **changes)

        for version in range(2):
            for label, request in (
                ("", make()),
                ("further on", make(position=5)),
                ("of no size", make(max_bytes=0)),
                ("of another cluster", make(cluster_id="another")),
                ("of any cluster", make(cluster_id=None)),
                ("of another log", make(topic_name="t")),
                ("of another partition", make(partition=1)),
                ("of an old epoch", make(current_leader_epoch=self.epoch - 1)),
                ("of a later epoch", make(current_leader_epoch=self.epoch + 1)),
                ("that is not there", make(end_offset=FAR)),
                ("with another epoch", make(epoch=FAR >> 20)),
                ("of the format step", make(end_offset=0, epoch=0)),
                ("before the beginning", make(position=-1)),
                ("behind the end", make(position=FAR)),
            ):
                yield f"snapshot {label}".rstrip(), version, request

    def voters(self) -> Iterator[Case]:
        """Changes of voters, while kraft.version is 0."""
        listener = add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=CLOSED_PORT)
        good: dict[str, Any] = {
            "cluster_id": self.cluster_id,
            "timeout_ms": 1000,
            "voter_id": OTHER,
            "voter_directory_id": DIRECTORY,
            "listeners": [listener],
        }
        elsewhere = add_raft_voter.Listener(name="ELSEWHERE", host="127.0.0.1", port=CLOSED_PORT)
        for version in range(2):
            for label, changes in (
                ("", {}),
                ("of another cluster", {"cluster_id": "another"}),
                ("nobody", {"voter_id": -1}),
                ("without a directory", {"voter_directory_id": bytes(16)}),
                ("elsewhere", {"listeners": [elsewhere]}),
                ("that is there", {"voter_id": self.node_id}),
            ):
                request = add_raft_voter.AddRaftVoterRequest(**{**good, **changes})
                yield f"add {label}".rstrip(), version, request
        known = {name: good[name] for name in ("cluster_id", "voter_id", "voter_directory_id")}
        for label, changes in (
            ("", {}),
            ("of another cluster", {"cluster_id": "another"}),
            ("nobody", {"voter_id": -1}),
            ("without a directory", {"voter_directory_id": bytes(16)}),
        ):
            removal = remove_raft_voter.RemoveRaftVoterRequest(**{**known, **changes})
            yield f"remove {label}".rstrip(), 0, removal
        described = {
            **known,
            "current_leader_epoch": self.epoch,
            "listeners": [add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=CLOSED_PORT)],
            "kraft_version_feature": update_raft_voter.KRaftVersionFeature(max_supported_version=1),
        }
        odd = update_raft_voter.KRaftVersionFeature(min_supported_version=1, max_supported_version=0)
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ("of another cluster", {"cluster_id": "another"}),
            ("of an old epoch", {"current_leader_epoch": self.epoch - 1}),
            ("of a later epoch", {"current_leader_epoch": self.epoch + 1}),
            ("of nobody", {"voter_id": -1}),
            ("without a directory", {"voter_directory_id": bytes(16)}),
            ("without versions", {"kraft_version_feature": odd}),
            ("without a listener", {"listeners": []}),
        )
        for label, changes in cases:
            update = update_raft_voter.UpdateRaftVoterRequest(**{**described, **changes})
            yield f"update {label}", 0, update


def as_of(request: fetch.FetchRequest, version: int) -> fetch.FetchRequest:
    """The same in the fields that an old version has for it."""
    if version < 15:
        request.replica_id = request.replica_state.replica_id
        request.replica_state = fetch.ReplicaState()
    for topic in request.topics:
        if version < 13:
            topic.topic_id = bytes(16)
        else:
            topic.topic = ""
    return request
