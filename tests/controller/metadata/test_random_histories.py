"""Invariants of random histories: brokers come and go, in-sync sets change, administrators reassign and elect.

The most important one: no replica becomes leader that may lack acknowledged records, unless the topic allows it.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats, Heartbeat
from pykbroker.controller.broker_session_commands import AdmitBroker, ProcessHeartbeat
from pykbroker.controller.metadata.alter_partition import AlterPartition, InSyncReplica, IsrChange
from pykbroker.controller.metadata.broker_elections import has_its_directory
from pykbroker.controller.metadata.brokers import FenceBroker, RegisterBroker, UnregisterBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.elect_leaders import PREFERRED, UNCLEAN, ElectLeaders
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES, FeatureUpdate, UpdateFeatures
from pykbroker.controller.metadata.image import (
    EMPTY_IMAGE,
    TOPIC_RESOURCE,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.metadata_versions import (
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    METADATA_VERSION_MIN,
    NO_EPOCH_FOR_SHRINKS,
)
from pykbroker.controller.metadata.periodic_elections import ElectPreferredLeaders, ElectUncleanLeaders
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.record_framing import decode_record, encode_records
from pykbroker.controller.metadata.snapshot import image_to_records
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.world import World, directory_id

BROKERS = range(1, 6)
STEPS = 250
UNSAFE = "unsafe"
"""The topic that allows unclean elections, at times."""


class History:
    """One run. `proposed` has the in-sync sets of the step's AlterPartition, `is_forced` an unclean one by hand.

    `unfinished_count`: in-sync sets that `check` has seen accepted during a reassignment that went on.
    """

    def __init__(
        self, seed: int, metadata_version: int = METADATA_VERSION_LATEST, *, eligible_replicas: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.world = World([], seed=seed, metadata_version=metadata_version, eligible_replicas=eligible_replicas)
        self.heartbeats = BrokerHeartbeats(9000)
        self.incarnation = 0
        self.has_eligible_replicas = eligible_replicas
        self.unclean: set[int] = set()
        self.stopping: set[int] = set()
        self.proposed: dict[tuple[str, int], tuple[int, ...]] = {}
        self.is_forced = False
        self.unfinished_count = 0
        for broker_id in BROKERS:
            self.admit(broker_id)
            while self.image.brokers[broker_id].is_fenced:
                self.beat(broker_id)
        for name in ("a", "b", UNSAFE):
            self.world.do(CreateTopics([NewTopic(name, 3, 3)]))

    @property
    def image(self) -> ClusterImage:
        return self.world.image

    def step(self) -> None:
        self.proposed, self.is_forced = {}, False
        self.unclean.clear()
        actions = [
            *[self.beat_somebody] * 4,
            *[self.beat_everybody] * 5,
            *[self.propose] * 12,
            self.fence_somebody,
            self.stop_somebody,
            *[self.start_somebody] * 2,
            self.unregister_somebody,
            self.reassign,
            self.elect,
            self.elect_periodically,
            self.allow_or_forbid,
            self.assign_directory,
            self.change_min_isr,
        ]
        with suppress(CommandRefused):
            self.random.choice(actions)()

    # What happens

    def admit(self, broker_id: int) -> None:
        self.incarnation += 1
        existing = self.image.brokers.get(broker_id)
        is_clean = existing is not None and self.random.random() < 0.5
        if not is_clean:
            self.unclean.add(broker_id)
        registration = RegisterBroker(
            broker_id=broker_id,
            incarnation_id=self.incarnation.to_bytes(16, "big"),
            endpoints=[Endpoint("PLAINTEXT", "host", 9092, 0)],
            features=SUPPORTED_FEATURES,
            log_dirs=[directory_id(broker_id), directory_id(100 + broker_id)],
            previous_epoch=existing.epoch if is_clean and existing is not None else -1,
        )
        self.world.do(AdmitBroker(self.heartbeats, 0, registration))
        self.heartbeats.forget(broker_id)
        self.stopping.discard(broker_id)

    def beat(self, broker_id: int, *, fence: bool = False, stop: bool = False, lost: tuple[bytes, ...] = ()) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return
        offset = self.image.offset - self.random.choice((0, 0, 3, 30))
        if stop:
            self.stopping.add(broker_id)  # a broker in controlled shutdown requests nothing else
        heartbeat = Heartbeat(broker_id, broker.epoch, offset, fence, broker_id in self.stopping)
        result = self.world.do(ProcessHeartbeat(self.heartbeats, heartbeat, lost))
        self.heartbeats.note(heartbeat, result.after, result.end_offset)

    def somebody(self) -> int:
        return self.random.choice(BROKERS)

    def beat_somebody(self) -> None:
        broker_id = self.somebody()
        broker = self.image.brokers.get(broker_id)
        lost: tuple[bytes, ...] = ()
        if broker is not None and len(broker.log_dirs) > 1 and self.random.random() < 0.05:
            lost = (self.random.choice(broker.log_dirs),)  # a broker without a usable directory stops by itself
        self.beat(broker_id, fence=self.random.random() < 0.05, lost=lost)

    def beat_everybody(self) -> None:
        for broker_id in BROKERS:
            self.beat(broker_id)

    def stop_somebody(self) -> None:
        self.beat(self.somebody(), stop=True, fence=self.random.random() < 0.1)

    def start_somebody(self) -> None:
        down = [one for one in BROKERS if one not in self.image.brokers or one in self.stopping]
        self.admit(self.random.choice(down) if down and self.random.random() < 0.8 else self.somebody())

    def fence_somebody(self) -> None:
        broker_id = self.somebody()
        if broker_id in self.image.brokers:
            self.world.do(FenceBroker(broker_id, self.image.brokers[broker_id].epoch))

    def unregister_somebody(self) -> None:
        self.world.do(UnregisterBroker(self.somebody()))

    def a_partition(self) -> tuple[TopicImage, PartitionImage]:
        topic = self.random.choice(list(self.image.topics_by_name.values()))
        return topic, self.random.choice(list(topic.partitions.values()))

    def propose(self) -> None:
        """Sent by the leader or a former one that does not know its successor, on the newest state or an older one."""
        topic, partition = self.a_partition()
        by = partition.leader if self.random.random() < 0.9 else self.somebody()
        if by not in self.image.brokers:
            return
        chances = {one: 0.9 if broker.is_active else 0.05 for one, broker in self.image.brokers.items()}
        isr = [one for one in partition.replicas if one == by or self.random.random() < chances.get(one, 0.05)]
        replicas = [
            InSyncReplica(one, self.image.brokers[one].epoch if one in self.image.brokers else 0) for one in isr
        ]
        recovery = partition.leader_recovery_state if self.random.random() < 0.2 else 0
        change = IsrChange(
            partition.partition,
            partition.leader_epoch - self.random.choice((*[0] * 7, 1)),
            partition.partition_epoch - self.random.choice((*[0] * 7, 1)),
            replicas,
            recovery,
        )
        self.proposed = {(topic.name, partition.partition): tuple(isr)}
        command = AlterPartition(by, self.image.brokers[by].epoch, [(topic.topic_id, [change])])
        ((_, (result,)),) = self.world.do(command)
        if result.error == ErrorCode.NONE:
            founded_on = (by, change.leader_epoch, change.partition_epoch)
            assert founded_on == (partition.leader, partition.leader_epoch, partition.partition_epoch)

    def reassign(self) -> None:
        topic, partition = self.a_partition()
        replicas = self.random.sample(BROKERS, self.random.choice((1, 2, 3, 3)))
        wanted = None if self.random.random() < 0.3 else tuple(replicas)
        self.is_forced = wanted is None and topic.name == UNSAFE
        self.world.do(AlterPartitionReassignments([(topic.name, [Reassignment(partition.partition, wanted)])]))

    def elect(self) -> None:
        topic, partition = self.a_partition()
        self.is_forced = self.random.random() < 0.2
        kind = UNCLEAN if self.is_forced else PREFERRED
        self.world.do(ElectLeaders(kind, [(topic.name, [partition.partition])]))

    def elect_periodically(self) -> None:
        self.world.do(ElectPreferredLeaders())
        self.world.do(ElectUncleanLeaders())

    def allow_or_forbid(self) -> None:
        edit = ConfigEdit("unclean.leader.election.enable", SET, self.random.choice(("true", "false")))
        self.world.do(IncrementalAlterConfigs([ConfigResourceEdits(TOPIC_RESOURCE, UNSAFE, [edit])]))

    def change_min_isr(self) -> None:
        edit = ConfigEdit("min.insync.replicas", SET, self.random.choice("123"))
        topic = self.random.choice(("a", UNSAFE))
        self.world.do(IncrementalAlterConfigs([ConfigResourceEdits(TOPIC_RESOURCE, topic, [edit])]))

    def min_isr(self, topic: str) -> int:
        """The topic's setting, at most its number of replicas."""
        replicas = self.image.topics_by_name[topic].partitions[0].replicas
        return min(int(self.image.topic_config(topic).get("min.insync.replicas", "1")), len(replicas))

    def assign_directory(self) -> None:
        topic, partition = self.a_partition()
        broker_id = self.random.choice(partition.replicas)
        if broker_id in self.image.brokers:
            directory = directory_id(broker_id + self.random.choice((0, 100, 1000)))
            replicas = DirectoryReplicas(directory, [(topic.topic_id, partition.partition)])
            self.world.do(AssignReplicasToDirs(broker_id, self.image.brokers[broker_id].epoch, [replicas]))

    # What must hold

    def check(self, before: ClusterImage) -> None:
        for name, topic in self.image.topics_by_name.items():
            for number, partition in topic.partitions.items():
                if self.has_eligible_replicas:
                    self.check_eligible(name, before.topics_by_name[name].partitions[number], partition)
                else:
                    self.check_state(partition)
                self.check_change(name, before.topics_by_name[name].partitions[number], partition)

    def can_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and has_its_directory(self.image, partition, broker_id)

    def check_eligible(self, topic: str, old: PartitionImage, now: PartitionImage) -> None:
        """KIP-966: nobody is both, none who stopped uncleanly, and only while the set is below the minimum."""
        eligible = set(now.eligible_leader_replicas)
        assert len(eligible) == len(now.eligible_leader_replicas)
        assert not eligible & set(now.isr)
        assert eligible <= set(now.replicas)
        assert len(now.last_known_elr) <= 1
        if now.leader >= 0:
            assert now.leader in now.isr
            assert self.can_lead(now, now.leader)
            assert not now.last_known_elr
        elif now.isr:
            assert not any(self.can_lead(now, replica) for replica in now.isr), now
        else:
            assert not any(self.can_lead(now, replica) for replica in eligible), now
        if now != old:
            # One step may elect the last leader and take it out again.
            assert eligible <= ({*old.eligible_leader_replicas, *old.isr} or {*old.last_known_elr})
            if eligible and eligible != set(old.eligible_leader_replicas):
                assert len(now.isr) < self.min_isr(topic)
        assert not (eligible & self.unclean), "its logs may have lost records"

    def check_state(self, now: PartitionImage) -> None:
        assert now.isr
        assert len(set(now.isr)) == len(now.isr)
        assert len(set(now.replicas)) == len(now.replicas) == len(now.directories)
        assert set(now.isr) <= set(now.replicas)
        assert {*now.adding_replicas, *now.removing_replicas} <= set(now.replicas)
        assert not set(now.adding_replicas) & set(now.removing_replicas)
        if now.leader >= 0:
            assert now.leader in now.isr
            assert self.can_lead(now, now.leader)
        else:
            assert not any(self.can_lead(now, replica) for replica in now.isr), now
        # The last replica in sync stays in the set even if it is down; of several all are active.
        if len(now.isr) > 1:
            assert all(self.image.brokers[replica].is_active for replica in now.isr)

    def check_change(self, topic: str, old: PartitionImage, now: PartitionImage) -> None:
        if now == old:
            return
        assert now.partition_epoch > old.partition_epoch
        assert now.leader_epoch >= old.leader_epoch
        assert now.leader == old.leader or now.leader_epoch > old.leader_epoch
        if (topic, now.partition) in self.proposed and len(now.adding_replicas) >= max(1, len(now.removing_replicas)):
            self.unfinished_count += 1
            assert not set(now.adding_replicas) <= set(now.isr), "a reassignment that could have ended"
        if topic == UNSAFE or self.is_forced:
            return
        # The replicas with all acknowledged records: those of the set before, or those that its leader reports.
        whole = {*old.isr, *self.proposed.get((topic, now.partition), ())}
        whole |= {*old.eligible_leader_replicas}
        if self.has_eligible_replicas:
            whole -= self.unclean
        if not whole:
            # Without any of them the last leader is elected again, which its recovery state shows.
            assert now.leader < 0 or now.leader_recovery_state == 1
            whole = {*old.last_known_elr}
        assert set(now.isr) <= whole, (old, now)
        assert now.leader < 0 or now.leader in whole, (old, now)


@pytest.mark.parametrize("seed", range(40))
def test_what_always_holds(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        before = history.image
        history.step()
        history.check(before)


@pytest.mark.parametrize("seed", range(40))
def test_what_always_holds_with_eligible_replicas(seed: int) -> None:
    """P-200."""
    history = History(seed, eligible_replicas=True)
    for _ in range(STEPS):
        before = history.image
        history.step()
        history.check(before)


@pytest.mark.parametrize("level", range(METADATA_VERSION_MIN, METADATA_VERSION_LATEST))
def test_what_always_holds_at_older_levels(level: int) -> None:
    """Also from one level to the next, and for snapshots, which are written at the level of the moment."""
    history = History(level, level)
    for number in range(STEPS):
        before = history.image
        history.step()
        history.check(before)
        check_epochs_of_shrinks(before, history.image)
        if number == STEPS // 2:
            assert not history.world.do(UpdateFeatures([FeatureUpdate(METADATA_VERSION, level + 1)])).is_failure
        if number % 10 == 0:
            image = history.image
            values = encode_records(image_to_records(image), image.metadata_version)
            assert (
                apply_records(
                    EMPTY_IMAGE,
                    map(decode_record, values),
                    offset=image.offset,
                    epoch=image.epoch,
                    timestamp_ms=image.timestamp_ms,
                )
                == image
            )


def check_epochs_of_shrinks(before: ClusterImage, after: ClusterImage) -> None:
    """A replica that leaves the in-sync set starts a leader epoch below 3.6-IV0 (KAFKA-15021)."""
    if before.metadata_version >= NO_EPOCH_FOR_SHRINKS:
        return
    for name, topic in after.topics_by_name.items():
        for number, now in topic.partitions.items():
            old = before.topics_by_name[name].partitions[number]
            assert set(old.isr) <= set(now.isr) or now.leader_epoch > old.leader_epoch, (old, now)


def test_the_histories_are_rich() -> None:
    """The invariants are tested by many events of each kind."""
    leaderless = reassigned = recovering = shrunk = unfinished = 0
    for seed in range(10):
        history = History(seed)
        for _ in range(STEPS):
            before = history.image
            history.step()
            history.check(before)
            partitions = [one for topic in history.image.topics_by_name.values() for one in topic.partitions.values()]
            leaderless += any(one.leader < 0 for one in partitions)
            reassigned += any(one.adding_replicas for one in partitions)
            recovering += any(one.leader_recovery_state for one in partitions)
            shrunk += any(1 < len(one.isr) < len(one.replicas) for one in partitions)
        unfinished += history.unfinished_count
    assert min(leaderless, reassigned, recovering, shrunk) > 100
    assert unfinished > 5


def test_the_histories_with_eligible_replicas_are_rich() -> None:
    eligible = remembered = empty = 0
    for seed in range(10):
        history = History(seed, eligible_replicas=True)
        for _ in range(STEPS):
            history.step()
            partitions = [one for topic in history.image.topics_by_name.values() for one in topic.partitions.values()]
            eligible += any(one.eligible_leader_replicas for one in partitions)
            remembered += any(one.last_known_elr for one in partitions)
            empty += any(not one.isr for one in partitions)
    assert min(eligible, remembered, empty) > 100
