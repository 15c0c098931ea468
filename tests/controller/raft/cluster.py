"""Several RaftCores in one thread, with a network, disks that survive crashes, and a clock under the test's control."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import LogView, OffsetAndEpoch
from pykbroker.controller.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Entries,
    FetchRequest,
    FetchResponse,
    Message,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from pykbroker.controller.raft.output import Envelope, Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft.roles import RaftSettings, Role
from pykbroker.controller.raft.voter_history import ControlRecord, KRaftVersion, LeaderChange
from pykbroker.protocol.error_codes import ErrorCode


class Disk:
    """State of a node that survives a crash."""

    def __init__(self) -> None:
        self.state = QuorumState()
        self.log: list[Entries] = []
        self.snapshot = OffsetAndEpoch(0, 0)
        self.snapshot_content: tuple[Any, ...] = ()
        self.snapshot_control: tuple[ControlRecord, ...] = ()

    def control(self) -> list[tuple[int, ControlRecord]]:
        """The control records of snapshot and log, by offset."""
        found = [(self.snapshot.offset - 1, record) for record in self.snapshot_control]
        for entries in self.log:
            numbered = enumerate(entries.control, entries.base_offset)
            found += [(offset, record) for offset, record in numbered if record is not None]
        return found

    @property
    def end_offset(self) -> int:
        last = self.log[-1] if self.log else None
        return self.snapshot.offset if last is None else last.base_offset + last.record_count

    def view(self) -> LogView:
        epochs: list[tuple[int, int]] = []
        for entries in self.log:
            if not epochs or epochs[-1][0] != entries.epoch:
                epochs.append((entries.epoch, entries.base_offset))
        return LogView(epochs, self.end_offset, self.snapshot)


class Member:
    """One node: its disk, its core while it is up, and what was applied (payloads by offset)."""

    def __init__(self, cluster: Cluster, key: ReplicaKey) -> None:
        self.cluster = cluster
        self.key = key
        self.disk = Disk()
        self.core: RaftCore | None = None
        self.applied: list[Any] = []

    def start(self) -> None:
        cluster = self.cluster
        self.core = RaftCore(
            self.key,
            cluster.voters,
            self.disk.view(),
            self.disk.state,
            cluster.settings,
            cluster.random,
            control=self.disk.control(),
            itself=voter_of(self.key.node_id),
            bootstrap_ids=[-2 - node_id for node_id in cluster.members] if cluster.is_dynamic else (),
        )
        self.applied = list(self.disk.snapshot_content)
        self.perform(self.core.tick(cluster.now_ms))

    def crash(self) -> None:
        self.core = None
        if self.cluster.refuses:  # its connections break too
            for member in self.cluster.members.values():
                if member.core is not None and not {self.key.node_id, member.key.node_id} & self.cluster.cut_off:
                    member.step(local.Unreachable(self.key.node_id, False))

    def step(self, message: Message | local.LocalMessage) -> None:
        assert self.core is not None
        self.perform(self.core.step(message, self.cluster.now_ms))

    def perform(self, output: Output) -> None:
        """The driver's part, in the order that output.py asks for."""
        cluster, disk, node_id = self.cluster, self.disk, self.key.node_id
        while True:
            core = self.core
            assert core is not None
            for answer in output.answers:
                cluster.on_answer(node_id, answer)
            if output.quorum_state is not None:
                disk.state = output.quorum_state
                cluster.say(f"{node_id} remembers {show_state(output.quorum_state)}")
            if output.truncate_to is not None:
                disk.log = [e for e in disk.log if e.base_offset < output.truncate_to]
                assert disk.end_offset == output.truncate_to
                cluster.say(f"{node_id} cuts its log to {output.truncate_to}")
            for entries in output.entries:
                assert entries.base_offset == disk.end_offset
                disk.log.append(entries)
                cluster.say(f"{node_id} appends {show_entries(entries)}")
            for voter in output.probes:
                cluster.network.append((voter.key.node_id, node_id, Probed()))
            for envelope in output.send:
                cluster.post(node_id, self.fill(envelope))
            if output.leadership is not None:
                cluster.on_leadership(self, output.leadership.epoch, output.leadership.leader_id)
            if output.high_watermark is not None:
                self.apply(output.high_watermark)
            if output.fetch_snapshot is not None:
                self.download(*output.fetch_snapshot)
                output = core.step(local.SnapshotInstalled(disk.snapshot, disk.snapshot_control), cluster.now_ms)
            elif output.entries:
                output = core.step(local.Persisted(disk.end_offset), cluster.now_ms)
            else:
                return

    def fill(self, envelope: Envelope) -> Envelope:
        message = envelope.message
        if isinstance(message, FetchResponse) and message.offset >= 0 and not (message.diverging or message.snapshot):
            entries = [e for e in self.disk.log if e.base_offset >= message.offset][:3]
            return envelope._replace(message=message._replace(entries=entries))
        return envelope

    def apply(self, high_watermark: int) -> None:
        first = len(self.applied)
        for entries in self.disk.log:
            if len(self.applied) <= entries.base_offset < high_watermark:
                self.applied += entries.control or entries.payload
        assert len(self.applied) == high_watermark, (self.applied, high_watermark)
        cluster = self.cluster
        cluster.say(f"{self.key.node_id} commits up to {high_watermark}{show_applied(self.applied[first:])}")
        cluster.on_applied(self)

    def download(self, leader_id: int, snapshot: OffsetAndEpoch) -> None:
        source = self.cluster.members[leader_id].disk
        self.disk.log = []
        self.disk.snapshot, self.disk.snapshot_content = source.snapshot, source.snapshot_content
        self.disk.snapshot_control = source.snapshot_control
        self.applied = list(source.snapshot_content)
        self.cluster.say(f"{self.key.node_id} downloads the snapshot at {source.snapshot.offset} from {leader_id}")

    def take_snapshot(self) -> None:
        """Replaces all that is committed by a snapshot."""
        core, disk = self.core, self.disk
        assert core is not None
        offset = core.high_watermark
        kept = [e for e in disk.log if e.base_offset < offset]
        disk.snapshot = OffsetAndEpoch(offset, kept[-1].epoch if kept else disk.snapshot.epoch)
        disk.snapshot_content = tuple(self.applied)
        disk.snapshot_control = core.history.records_at(offset)
        disk.log = [e for e in disk.log if e.base_offset >= offset]
        core.step(local.SnapshotTaken(disk.snapshot), self.cluster.now_ms)


class Probed(NamedTuple):
    """Response of a node to a request for the kraft.versions that it supports."""


def voter_of(node_id: int) -> Voter:
    """A node as a VotersRecord has it."""
    key = ReplicaKey(node_id, bytes([node_id]) * 16)
    return Voter(key, (VoterEndpoint("CONTROLLER", "host", node_id),), (0, 1))


class Cluster:
    """Members by node id and the messages between them, which stay in `network` until they are delivered."""

    def __init__(
        self,
        voter_ids: Iterable[int],
        observer_ids: Iterable[int] = (),
        *,
        seed: int = 0,
        is_silent: bool = False,
        is_dynamic: bool = False,
    ) -> None:
        """`is_dynamic`: the voters stand in the checkpoint that their disks are formatted with, not in the settings."""
        voter_ids = list(voter_ids)
        self.random = random.Random(seed)
        self.settings = RaftSettings()
        self.now_ms = 0
        self.voters = VoterSet(ReplicaKey(n, bytes([n]) * 16) for n in voter_ids)
        self.members = {n: Member(self, ReplicaKey(n, bytes([n]) * 16)) for n in (*voter_ids, *observer_ids)}
        self.is_dynamic = is_dynamic
        if is_dynamic:
            for node_id in voter_ids:
                first = (KRaftVersion(1), VoterSet(map(voter_of, voter_ids)))
                self.members[node_id].disk.snapshot_control = first
            self.voters = VoterSet(())
        self.network: list[tuple[int, int, Message | Probed]] = []
        self.cut_off: set[int] = set()
        self.lines: list[str] = []
        self.is_silent = is_silent
        # True if a node that is down refuses connections at once, as its machine does while it runs.
        self.refuses = False
        self.leaders: dict[int, int] = {}
        self.committed: list[Any] = []

    def say(self, line: str) -> None:
        if not self.is_silent:
            self.lines.append(line)

    # Safety, checked at every step

    def on_leadership(self, member: Member, epoch: int, leader_id: int) -> None:
        if leader_id == -1:
            self.say(f"{member.key.node_id} knows no leader of epoch {epoch}")
            return
        assert self.leaders.setdefault(epoch, leader_id) == leader_id, f"two leaders in epoch {epoch}"
        role = "leads" if leader_id == member.key.node_id else f"follows {leader_id} in"
        self.say(f"{member.key.node_id} {role} epoch {epoch}")

    def on_answer(self, node_id: int, answer: local.ChangeAnswer) -> None:
        core = self.members[node_id].core
        assert core is not None
        if isinstance(answer.change_id, tuple):  # an UpdateRaftVoter of another node
            is_done = answer.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
            response = UpdateVoterResponse(node_id, core.epoch, core.leader_id, is_done)
            self.post(node_id, Envelope(answer.change_id[0], response))
        elif answer.change_id is not None:
            self.say(f"{node_id} answers {answer.change_id}: {answer.error.name}")

    def on_applied(self, member: Member) -> None:
        known = len(self.committed)
        assert member.applied[:known] == self.committed[: len(member.applied)], "committed logs differ"
        self.committed += member.applied[known:]

    def on_told(self, node_id: int, response: FetchResponse) -> None:
        """Asserts that no follower gets a high watermark below its own: Kafka's FollowerState would throw."""
        core, told = self.members[node_id].core, response.high_watermark
        if core is not None and (core.epoch, core.leader_id) == (response.epoch, response.source) and told >= 0:
            assert told >= core.high_watermark, f"{node_id} knows {core.high_watermark} and is told {told}"

    # The network

    def post(self, source: int, envelope: Envelope) -> None:
        if envelope.destination < -1:  # a bootstrap server, known by its address
            envelope = envelope._replace(destination=-2 - envelope.destination)
            if envelope.destination == source:
                return
        if isinstance(envelope.message, FetchResponse):
            self.on_told(envelope.destination, envelope.message)
        self.say(f"{source} -> {envelope.destination} {show_message(envelope.message)}")
        self.network.append((source, envelope.destination, envelope.message))

    def deliver(self, source: int, destination: int, message: Message | Probed) -> None:
        core = self.members[destination].core
        if {source, destination} & self.cut_off:
            return
        if isinstance(message, Probed):
            if core is not None and self.members[source].core is not None:
                self.members[destination].step(local.VersionsReceived(source, (0, 1)))
            return
        if core is None:
            sender = self.members[source]
            if self.refuses and sender.core is not None:
                sender.step(local.Unreachable(destination, True))
            return
        asked: Message | local.LocalMessage = message
        match message:
            case UpdateVoterRequest():
                asked = local.UpdateVoter((source, message), message.voter)
            case AddVoterRequest():
                asked = local.AddVoter(None, message.voter, acks_commit=False)
            case RemoveVoterRequest():
                asked = local.RemoveVoter(None, message.voter)
        self.members[destination].step(asked)

    def settle(self, message_count_max: int = 500) -> None:
        """Delivers messages in the order they were sent until there are none."""
        for _ in range(message_count_max):
            if not self.network:
                return
            self.deliver(*self.network.pop(0))
        raise AssertionError("the network does not come to rest")

    # Time

    def advance(self, duration_ms: int, *, is_settling: bool = True) -> None:
        """Lets time pass, waking each node when it asked for."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = [
                (member.core.next_deadline_ms, node_id)
                for node_id, member in self.members.items()
                if member.core is not None
            ]
            deadline_ms, node_id = min(due, default=(end_ms + 1, 0))
            if deadline_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, deadline_ms)
            member = self.members[node_id]
            assert member.core is not None
            member.perform(member.core.tick(self.now_ms))
            assert member.core.next_deadline_ms > self.now_ms, f"{node_id} asks for the same moment again"
            if is_settling:
                self.settle()

    @property
    def leader(self) -> Member | None:
        """The member that leads the latest epoch, if it is up."""
        leading = [m for m in self.members.values() if m.core is not None and m.core.role is Role.LEADER]
        return max(leading, key=lambda m: m.core.epoch if m.core else -1, default=None)

    def propose(self, node_id: int, values: Sequence[str]) -> None:
        self.members[node_id].step(local.Propose(tuple(values), len(values)))

    def add_voter(self, node_id: int, other: int) -> None:
        """Asks one node to make another a voter."""
        self.members[node_id].step(local.AddVoter(f"add {other}", voter_of(other)))

    def remove_voter(self, node_id: int, other: int) -> None:
        """Asks one node to remove a voter."""
        self.members[node_id].step(local.RemoveVoter(f"remove {other}", voter_of(other).key))


def show_state(state: QuorumState) -> str:
    voted = "" if state.voted is None else f" voted {state.voted.node_id}"
    leader = "" if state.leader_id == -1 else f" leader {state.leader_id}"
    return f"epoch {state.epoch}{leader}{voted}"


def show_entries(entries: Entries) -> str:
    what = " ".join(map(show_control, entries.control)) if entries.control else " ".join(entries.payload)
    return f"{entries.base_offset} e{entries.epoch}: {what}"


def show_control(record: ControlRecord | None) -> str:
    match record:
        case LeaderChange():
            granted = " ".join(str(key.node_id) for key in record.granting_voters)
            return f"LeaderChange(leader {record.leader_id}, granted by {granted})"
        case VoterSet():
            return f"Voters({' '.join(map(str, record.ids))})"
        case KRaftVersion():
            return f"KRaftVersion({record.level})"
    return "?"


def show_applied(payloads: Sequence[Any]) -> str:
    values = [payload for payload in payloads if isinstance(payload, str)]
    return f": {' '.join(values)}" if values else ""


def show_message(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "PreVote?" if message.is_pre_vote else "Vote?"
            return f"{kind} e{message.epoch} log {message.log_end.offset}/e{message.log_end.epoch}"
        case VoteResponse():
            kind = "PreVote" if message.is_pre_vote else "Vote"
            word = "yes" if message.is_granted else "no"
            return f"{kind} {word} e{message.epoch}{_leader(message.leader_id)}{_error(message.error)}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch? e{message.epoch}"
        case BeginQuorumEpochResponse():
            return f"BeginQuorumEpoch e{message.epoch}{_leader(message.leader_id)}{_error(message.error)}"
        case EndQuorumEpochRequest():
            successors = " ".join(str(key.node_id) for key in message.successors)
            return f"EndQuorumEpoch? e{message.epoch} successors {successors}".rstrip()
        case EndQuorumEpochResponse():
            return f"EndQuorumEpoch e{message.epoch}{_leader(message.leader_id)}{_error(message.error)}"
        case FetchRequest():
            end, known = message.log_end, message.high_watermark
            return f"Fetch? e{message.epoch} from {end.offset}/e{end.epoch} hw {known}"
        case FetchResponse():
            parts = [f"Fetch e{message.epoch}{_leader(message.leader_id)}{_error(message.error)}"]
            if message.offset >= 0:
                parts.append(f"hw {message.high_watermark}")
            if message.diverging is not None:
                parts.append(f"diverging at {message.diverging.end_offset}/e{message.diverging.epoch}")
            if message.snapshot is not None:
                parts.append(f"snapshot {message.snapshot.offset}/e{message.snapshot.epoch}")
            parts += [show_entries(entries) for entries in message.entries]
            return ", ".join(parts)
        case UpdateVoterRequest():
            return f"UpdateVoter? e{message.epoch}"
        case UpdateVoterResponse():
            return f"UpdateVoter {'yes' if message.is_done else 'no'} e{message.epoch}{_leader(message.leader_id)}"
        case AddVoterRequest():
            return "AddVoter?"
        case RemoveVoterRequest():
            return "RemoveVoter?"
    raise AssertionError(message)


def _error(error: ErrorCode) -> str:
    return f" {error.name}" if error else ""


def _leader(leader_id: int) -> str:
    return "" if leader_id == -1 else f" leader {leader_id}"
