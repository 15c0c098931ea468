"""Rules broken on purpose, one at a time: the simulation must find each. What it does not find it does not check.

A mutation replaces public functions of the running code, and none that a leading underscore marks as private: it says
which rule is broken, and not how the code keeps the rule. It fails when the function is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from pykbroker.controller import broker_session_commands
from pykbroker.controller.metadata import broker_elections, partition_changes
from pykbroker.controller.metadata.eligible_replicas import Eligibility
from pykbroker.controller.raft import election, leader
from pykbroker.controller.raft.log_view import LogView
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.controller.raft.roles import Role
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.coordination.replication_queue import ReplicationQueue
from pykbroker.coordination.transaction_marker import WrittenMarker
from pykbroker.groups import offset_commit
from pykbroker.groups.consumer import leaving, target
from pykbroker.groups.consumer import offsets as consumer_offsets
from pykbroker.groups.consumer.group import NO_OWNER_EPOCH, ConsumerGroup
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.consumer.target import ASSIGNORS
from pykbroker.groups.modern.timers import MemberTimers
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams import target as streams_target
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.groups import StreamsGroups
from pykbroker.handlers import produce
from pykbroker.logstore.loaded_log import LoadedLog
from pykbroker.logstore.log_directories import LogDirectories
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.producer_state import ProducerState
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps
from pykbroker.replication.leadership import Leadership
from pykbroker.replication.partition import Partition
from pykbroker.replication.partitions import Partitions
from pykbroker.replication.replica import FetchBound, Replica
from pykbroker.replication.transaction_markers import MarkerWriter
from pykbroker.share_partitions import acknowledgement
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker.share_state.persister import SharePersister
from pykbroker.share_state.shard import ShareStateShard
from pykbroker.share_state.state import AVAILABLE, PartitionState
from pykbroker.transactions.shard import TransactionShard

Patch = tuple[Any, str, Any]


class Mutation(NamedTuple):
    """A broken rule.

    Attributes:
        name: for the command line.
        rule: the rule that is broken.
        patches: (owner, attribute, what is put in its place) each; made anew for each run.
        kind: what the seeds begin with, where the rule matters in one kind of cluster only.
    """

    name: str
    rule: str
    patches: Callable[[], list[Patch]]
    kind: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the rule is broken."""
        with ExitStack() as stack:
            for owner, attribute, replacement in self.patches():
                if attribute in owner.__dict__:
                    stack.callback(setattr, owner, attribute, owner.__dict__[attribute])
                else:
                    getattr(owner, attribute)
                    stack.callback(delattr, owner, attribute)
                setattr(owner, attribute, replacement)
            yield


# Replication


def _no_divergence() -> list[Patch]:
    return [(Partition, "divergence", lambda self, offset, epoch: None)]


def _high_watermark_at_the_end() -> list[Patch]:
    return [(Leadership, "replicated_end", lambda self, end, minimum, now: end)]


def _acknowledged_at_once() -> list[Patch]:
    async def finish(*arguments: Any) -> None: ...

    return [(produce.AwaitedReplication, "finish", finish)]


def _beyond_the_high_watermark() -> list[Patch]:
    original = Partition.read

    def read(self: Any, offset: int, size_max: int, bound: int, **options: Any) -> Any:
        return original(self, offset, size_max, FetchBound.LOG_END, **options)

    return [(Partition, "read", read)]


def _shrinks_alone() -> list[Patch]:
    original = Leadership.propose_shrink

    def shrink(self: Any, log_end_offset: int, now: float) -> Any:
        proposal = original(self, log_end_offset, now)
        if proposal is not None:
            self.confirm(proposal.broker_ids)
        return proposal

    return [
        (Leadership, "propose_shrink", shrink),
        # What is left is enough, by itself.
        (Leadership, "min_isr", lambda self, configured: 1),
    ]


def _unclean_leader() -> list[Patch]:
    # Where it is called, not where it is defined.
    original = vars(broker_elections)["elect_leader"]

    def elect(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "allow_unclean": True})

    return [(module, "elect_leader", elect) for module in (broker_elections, partition_changes)]


def _always_eligible() -> list[Patch]:
    def eligible(self: Any, partition: Any, replicas: Any, isr: Any, unclean: Any = ()) -> Any:
        return tuple(sorted({*partition.eligible_leader_replicas, *partition.isr} - set(isr)))

    return [(Eligibility, "eligible", eligible)]


def _appends_are_not_synced() -> list[Patch]:
    return [(LoadedLog, "flush", lambda self: None)]


# The quorum


def _a_minority_elects() -> list[Patch]:
    return [(VoterSet, "majority", property(lambda self: 1))]


def _a_stranger_votes() -> list[Patch]:
    original = election.Nominee.count

    def count(self: Any) -> None:
        self.granted.add(999)
        original(self)

    return [(election.Nominee, "count", count)]


def _votes_twice() -> list[Patch]:
    def may_grant(replica: Any, request: Any) -> bool:
        return replica.role is not Role.LEADER and election.is_not_behind(request.log_end, replica.log.end)

    return [(election, "may_grant", may_grant)]


def _vote_is_not_written() -> list[Patch]:
    original = RaftStorage.persist

    def persist(self: Any, output: Any, *arguments: Any) -> int:
        output.quorum_state, state = None, output.quorum_state
        end = original(self, output, *arguments)
        if state is not None:
            self.state = state
        return end

    return [(RaftStorage, "persist", persist), (election, "is_not_behind", lambda candidate, own: True)]


def _old_logs_win() -> list[Patch]:
    return [(election, "is_not_behind", lambda candidate, own: True)]


def _one_log_is_enough() -> list[Patch]:
    return [(leader, "offset_of_majority", max)]


def _metadata_is_not_synced() -> list[Patch]:
    return [(RaftStorage, "sync_records", lambda self: None)]


def _metadata_does_not_diverge() -> list[Patch]:
    return [(LogView, "divergence", lambda self, offset, epoch: None)]


# Coordinators and transactions


def _loads_nothing() -> list[Patch]:
    def load(self: Any, logged: Any, now_ms: int) -> Steps[None]:
        yield from ()

    return [(GroupShard, "load", load), (TransactionShard, "load", load)]


def _coordinators_answer_at_once() -> list[Patch]:
    def push(self: Any, waiting: Any) -> bool:
        waiting.on_replicated()
        waiting.answer(ErrorCode.NONE)
        return False

    return [(ReplicationQueue, "push", push)]


def _marker_is_dropped() -> list[Patch]:
    original = MarkerWriter.write

    def write(self: Any, marker: Any, topic: str, partition: int) -> Any:
        if partition == 1 and topic == "copies":
            return WrittenMarker(ErrorCode.NONE)
        return original(self, marker, topic, partition)

    return [(MarkerWriter, "write", write)]


def _abort_is_commit() -> list[Patch]:
    original = MarkerWriter.write

    def write(self: Any, marker: Any, topic: str, partition: int) -> Any:
        return original(self, marker._replace(is_commit=True) if partition == 1 else marker, topic, partition)

    return [(MarkerWriter, "write", write)]


def _aborted_are_not_told() -> list[Patch]:
    return [(PartitionLog, "aborted_transactions_in", lambda self, offset, records: [])]


def _open_transactions_are_read() -> list[Patch]:
    return [(Replica, "last_stable_offset", property(lambda self: self.high_watermark))]


def _duplicates_are_appended() -> list[Patch]:
    original = ProducerState.check_append

    def check(self: Any, *arguments: Any, **options: Any) -> Any:
        entry = self.producers.get(arguments[0])
        if entry is not None and arguments[2] <= entry.last_sequence and arguments[1] == entry.epoch:
            return None
        return original(self, *arguments, **options)

    return [(ProducerState, "check_append", check)]


def _old_members_commit() -> list[Patch]:
    return [(offset_commit, "check_commit", lambda shard, request, version, now_ms: ErrorCode.NONE)]


# Consumer groups (KIP-848)


def _every_partition_is_free() -> list[Patch]:
    return [(ConsumerGroup, "owner_epoch", lambda self, topic_id, partition: NO_OWNER_EPOCH)]


def _sessions_are_not_prolonged() -> list[Patch]:
    return [(MemberTimers, "schedule", MemberTimers.schedule_if_absent)]


def _fenced_members_commit() -> list[Patch]:
    return [
        (consumer_offsets, "check_commit", lambda group, request, version: ErrorCode.NONE),
        (consumer_offsets, "check_partitions", lambda group, request, **options: ErrorCode.NONE),
    ]


def _silent_members_stay() -> list[Patch]:
    def expire_due(self: Any, group_id: str, now_ms: int) -> None:
        if group_id in self.by_id:
            self.by_id[group_id].timers.pop_due(now_ms)

    return [(ConsumerGroups, "expire_due", expire_due)]


def _a_leave_does_not_raise_the_epoch() -> list[Patch]:
    original = vars(leaving)["epoch_record"]
    return [(leaving, "epoch_record", lambda group_id, epoch, found: original(group_id, epoch - 1, found))]


def _a_partition_is_left_out() -> list[Patch]:
    original = ASSIGNORS["uniform"]

    def assign(group: Any, partition_counts: Any) -> Any:
        targets = yield from original(group, partition_counts)
        return {
            member_id: {topic_id: partitions - {0} for topic_id, partitions in found.items()}
            for member_id, found in targets.items()
        }

    return [(target, "ASSIGNORS", {**ASSIGNORS, "uniform": assign})]


def _leaving_members_are_kept() -> list[Patch]:
    return [(leaving, "member_tombstones", lambda group_id, member_id: [])]


def _targets_are_not_stored() -> list[Patch]:
    original = vars(target)["target_record"]
    return [(target, "target_record", lambda group_id, member_id, found: original(group_id, member_id, {}))]


def _acceptances_are_not_stored() -> list[Patch]:
    return [(SharePersister, "begin_write", lambda self, key, write: None)]


def _share_locks_never_expire() -> list[Patch]:
    return [(SharePartition, "expire_locks", lambda self, now_ms: list(self.locks.pop_due(now_ms))[:0])]


def _accepted_records_are_released() -> list[Patch]:
    types = {**acknowledgement.STATE_OF_TYPE, acknowledgement.ACCEPT: AVAILABLE}
    return [(acknowledgement, "STATE_OF_TYPE", types)]


def _stored_batches_are_not_read() -> list[Patch]:
    original = ShareStateShard.read

    def read(self: Any, now_ms: int, key: Any, leader_epoch: int) -> Any:
        result = original(self, now_ms, key, leader_epoch)
        if isinstance(result.response, PartitionState):
            result.response = result.response._replace(batches=())
        return result

    return [(ShareStateShard, "read", read)]


# Streams groups (KIP-1071)


def _every_task_is_free() -> list[Patch]:
    return [(StreamsGroup, "active_process", lambda self, subtopology_id, number: None)]


def _silent_streams_members_stay() -> list[Patch]:
    def expire_due(self: Any, group_id: str, now_ms: int) -> None:
        if group_id in self.by_id:
            self.by_id[group_id].timers.pop_due(now_ms)

    return [(StreamsGroups, "expire_due", expire_due)]


def _streams_epochs_begin_again() -> list[Patch]:
    original = StreamsGroups.schedule_loaded

    def schedule_loaded(self: Any, now_ms: int) -> None:
        for group in self.by_id.values():
            group.epoch = group.assignment_epoch = 1
        original(self, now_ms)

    return [(StreamsGroups, "schedule_loaded", schedule_loaded)]


def _streams_targets_are_not_stored() -> list[Patch]:
    original = vars(streams_target)["target_record"]
    nothing = vars(streams_target)["EMPTY_TASKS"]
    return [
        (streams_target, "target_record", lambda group_id, member_id, found: original(group_id, member_id, nothing))
    ]


# Log directories (KIP-858)


def _a_failure_changes_no_leader() -> list[Patch]:
    original = vars(broker_session_commands)["changes_when_broker_leaves"]

    def changes(image: Any, context: Any, broker_id: int, lost: Any = None) -> Any:
        yield
        return [] if lost else (yield from original(image, context, broker_id))

    return [(broker_session_commands, "changes_when_broker_leaves", changes)]


def _a_failure_takes_all_replicas() -> list[Patch]:
    original = Partitions.take_offline

    def take_offline(self: Any, keys: Any) -> None:
        original(self, [(each.topic, each.partition) for each in self.all()])

    return [(Partitions, "take_offline", take_offline)]


def _failed_directories_are_forgotten() -> list[Patch]:
    return [(LogDirectories, "has_failed", property(lambda self: False))]


MUTATIONS = (
    Mutation("no-divergence", "a follower whose log parts from the leader's cuts its own", _no_divergence),
    Mutation("early-high-watermark", "the high watermark waits for the in-sync set", _high_watermark_at_the_end),
    Mutation(
        "early-acks", "acks=all is answered when the record is replicated", _acknowledged_at_once, "three-isolate"
    ),
    Mutation("beyond-high-watermark", "nobody reads beyond the high watermark", _beyond_the_high_watermark),
    Mutation("shrink-alone", "the in-sync set changes when the controller says so", _shrinks_alone, "three-isolate"),
    Mutation("unclean-leader", "a leader comes from the in-sync set", _unclean_leader, "three-one_by_one"),
    Mutation(
        "always-eligible",
        "a replica that leaves a large enough in-sync set is not eligible",
        _always_eligible,
        "three-one_by_one",
    ),
    Mutation("no-sync", "flush.messages=1 syncs each append", _appends_are_not_synced, "three-power-cut_power"),
    Mutation("minority", "a majority elects", _a_minority_elects, "three-split"),
    Mutation("stranger", "only voters' votes count", _a_stranger_votes, "three-split"),
    Mutation("two-votes", "one vote in an epoch", _votes_twice, "three-kill-split"),
    Mutation(
        "forgotten-vote",
        "a vote is on disk before it is given, and only the newest log wins",
        _vote_is_not_written,
        "three-kill",
    ),
    Mutation("old-log-wins", "who is behind is not elected", _old_logs_win, "three-kill-isolate"),
    Mutation("one-log", "what a majority has is committed", _one_log_is_enough, "three-split-isolate"),
    Mutation(
        "metadata-not-synced",
        "a voter answers for what is on its disk",
        _metadata_is_not_synced,
        "three-power-cut_power",
    ),
    Mutation(
        "metadata-no-divergence",
        "a voter whose log parts from the leader's cuts its own",
        _metadata_does_not_diverge,
        "three-isolate-split-kill",
    ),
    Mutation("loads-nothing", "a coordinator reads its partition before it serves", _loads_nothing),
    Mutation(
        "early-coordinators", "coordinators answer when their records are replicated", _coordinators_answer_at_once
    ),
    Mutation("dropped-marker", "each partition of a transaction gets its marker", _marker_is_dropped),
    Mutation("abort-is-commit", "all partitions get the same marker", _abort_is_commit),
    Mutation("aborted-not-told", "readers of committed records hear of aborted ones", _aborted_are_not_told),
    Mutation("open-read", "readers of committed records wait for open transactions", _open_transactions_are_read),
    Mutation("duplicates", "a batch that was appended is not appended again", _duplicates_are_appended),
    Mutation("old-members", "only the present generation commits offsets", _old_members_commit, "three-pause_client"),
    Mutation("two-owners", "a partition has one owner", _every_partition_is_free),
    Mutation("short-sessions", "each heartbeat prolongs the session", _sessions_are_not_prolonged),
    Mutation(
        "fenced-commit", "only the owner of a partition commits for it", _fenced_members_commit, "three-pause_client"
    ),
    Mutation("silent-members", "a member that is silent loses its partitions", _silent_members_stay),
    Mutation("same-epoch", "a member that leaves raises the group epoch", _a_leave_does_not_raise_the_epoch),
    Mutation("left-out", "the target assignment has every partition", _a_partition_is_left_out),
    Mutation("kept-members", "a member that leaves is removed", _leaving_members_are_kept),
    Mutation("lost-targets", "the target assignment is stored", _targets_are_not_stored),
    Mutation("acceptance-not-stored", "an acceptance is stored before it is confirmed", _acceptances_are_not_stored),
    Mutation("share-locks-stay", "records of a member that forgets them go to others", _share_locks_never_expire),
    Mutation("accept-is-release", "what is accepted is not delivered again", _accepted_records_are_released),
    Mutation("batches-not-read", "a new leader reads all that was stored", _stored_batches_are_not_read),
    Mutation("two-task-owners", "an active task has one owner", _every_task_is_free, "streams"),
    Mutation(
        "silent-streams-members",
        "a Streams member that is silent loses its tasks",
        _silent_streams_members_stay,
        "streams",
    ),
    Mutation(
        "streams-epochs",
        "a new coordinator knows the epochs of a Streams group",
        _streams_epochs_begin_again,
        "streams",
    ),
    Mutation(
        "failure-without-election",
        "what was led from a failed log directory gets other leaders",
        _a_failure_changes_no_leader,
        "three-directories-failing_directory",
    ),
    Mutation(
        "failure-of-all",
        "a failed log directory takes its replicas offline and nothing else",
        _a_failure_takes_all_replicas,
        "three-directories-failing_directory",
    ),
    Mutation(
        "made-elsewhere",
        "a log whose directory is offline is not made anew in another one",
        _failed_directories_are_forgotten,
        "three-directories-failing_directory",
    ),
    Mutation(
        "lost-task-targets", "the target assignment of tasks is stored", _streams_targets_are_not_stored, "streams"
    ),
)
