"""Sessions and states of brokers, as their heartbeats make them (Kafka's BrokerHeartbeatManager)."""

from __future__ import annotations

import pytest

from pykbroker.controller.broker_heartbeats import NEVER_MS, BrokerHeartbeats, BrokerState, Heartbeat
from pykbroker.controller.broker_session_commands import AdmitBroker, HeartbeatResult, ProcessHeartbeat
from pykbroker.controller.metadata.brokers import FenceBroker, RegisterBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import Endpoint
from pykbroker.controller.metadata.topics import CreatePartitions, CreateTopics, NewPartitions, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.world import World, directory_id

TIMEOUT_MS = 9000
FENCED, UNFENCED = BrokerState.FENCED, BrokerState.UNFENCED
STOPPING, STOP = BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW


class Cluster:
    """Brokers that send heartbeats, and the controller that gets them at once."""

    def __init__(self, *broker_ids: int, fenced: tuple[int, ...] = ()) -> None:
        self.world = World([])
        for broker_id in broker_ids:
            self.world.register(broker_id, is_fenced=broker_id in fenced)
        self.heartbeats = BrokerHeartbeats(TIMEOUT_MS)
        self.heartbeats.begin(self.world.image, 0)

    def epoch(self, broker_id: int) -> int:
        return self.world.image.brokers[broker_id].epoch

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        fence: bool = False,
        stop: bool = False,
        **directories: object,
    ) -> HeartbeatResult:
        reached = self.world.image.offset if offset is None else offset
        heartbeat = Heartbeat(broker_id, self.epoch(broker_id), reached, fence, stop)
        result = self.world.do(ProcessHeartbeat(self.heartbeats, heartbeat, **directories))  # type: ignore[arg-type]
        self.heartbeats.note(heartbeat, result.after, result.end_offset)
        return result

    def create(self, name: str, *replicas: int) -> None:
        (result,) = self.world.do(CreateTopics([NewTopic(name, assignments=[(0, replicas)])]))
        assert not result.error.is_failure, result

    def leader(self, name: str) -> int:
        return self.world.image.topics_by_name[name].partitions[0].leader


def test_a_session_lasts_its_timeout_and_no_longer() -> None:
    cluster = Cluster(1, 2)
    heartbeats, one, two = cluster.heartbeats, (1, cluster.epoch(1)), (2, cluster.epoch(2))
    assert heartbeats.next_expiry_ms() == TIMEOUT_MS
    heartbeats.contact(*one, 5000)
    assert heartbeats.next_expiry_ms() == TIMEOUT_MS
    assert heartbeats.take_expired(TIMEOUT_MS) is None
    assert heartbeats.has_session(*two, TIMEOUT_MS)
    assert not heartbeats.has_session(*two, TIMEOUT_MS + 1)
    assert heartbeats.take_expired(TIMEOUT_MS + 1) == two
    assert heartbeats.take_expired(TIMEOUT_MS + 1) is None
    assert heartbeats.next_expiry_ms() == 5000 + TIMEOUT_MS
    assert heartbeats.take_expired(5000 + TIMEOUT_MS + 1) == one
    assert heartbeats.next_expiry_ms() == NEVER_MS


def test_the_longest_silent_is_taken_first() -> None:
    cluster = Cluster(1, 2, 3)
    for broker_id, now_ms in ((1, 300), (2, 100), (3, 200)):
        cluster.heartbeats.contact(broker_id, cluster.epoch(broker_id), now_ms)
    taken = [cluster.heartbeats.take_expired(20_000) for _ in range(4)]
    assert [one and one[0] for one in taken] == [2, 3, 1, None]


def test_a_new_broker_serves_when_it_has_read_its_registration() -> None:
    cluster = Cluster(1, fenced=(1,))
    epoch = cluster.epoch(1)
    assert cluster.heartbeat(1, offset=epoch - 1) == (FENCED, FENCED, False, epoch)
    assert cluster.heartbeat(1, offset=epoch, fence=True) == (FENCED, FENCED, True, epoch)
    assert cluster.heartbeat(1, offset=epoch)[:3] == (FENCED, UNFENCED, True)
    assert not cluster.world.image.brokers[1].is_fenced
    written = len(cluster.world.records)
    assert cluster.heartbeat(1)[:2] == (UNFENCED, UNFENCED)
    assert len(cluster.world.records) == written


def test_a_broker_of_another_epoch_is_refused() -> None:
    cluster = Cluster(1)
    for broker_id, epoch in ((1, cluster.epoch(1) - 1), (7, 0)):
        with pytest.raises(CommandRefused) as refused:
            cluster.world.do(ProcessHeartbeat(cluster.heartbeats, Heartbeat(broker_id, epoch, 5)))
        assert refused.value.error.code == ErrorCode.STALE_BROKER_EPOCH


def test_who_wants_to_be_fenced_is() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    assert cluster.heartbeat(1, fence=True).after is FENCED
    assert cluster.leader("t") == 2
    assert cluster.heartbeat(2, fence=True, stop=True).after is STOP


def test_who_leads_nothing_stops_at_once() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 2, 1)
    assert cluster.heartbeat(1, stop=True)[:2] == (UNFENCED, STOP)
    broker = cluster.world.image.brokers[1]
    assert broker.is_fenced
    assert cluster.world.image.topics_by_name["t"].partitions[0].isr == (2,)
    # It has announced its end, so another process may register at once.
    assert not cluster.heartbeats.has_session(1, broker.epoch, 1)


def test_a_fenced_broker_stops_at_once() -> None:
    cluster = Cluster(1, fenced=(1,))
    written = len(cluster.world.records)
    assert cluster.heartbeat(1, stop=True)[:2] == (FENCED, STOP)
    assert len(cluster.world.records) == written


def test_a_leader_stops_when_all_that_serve_know_the_new_one() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", 1, 2)
    before = cluster.world.image.offset
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    first = cluster.heartbeat(1, stop=True)
    assert first[:2] == (UNFENCED, STOPPING)
    assert first.end_offset == cluster.world.image.offset > before
    assert cluster.leader("t") == 2
    assert cluster.world.image.brokers[1].in_controlled_shutdown
    assert cluster.heartbeat(1, stop=True).after is STOPPING
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, stop=True).after is STOPPING
    cluster.heartbeat(3, offset=first.end_offset - 1)
    assert cluster.heartbeat(1, stop=True).after is STOPPING
    # Records that come later are not waited for.
    cluster.create("later", 2, 3)
    cluster.heartbeat(3, offset=first.end_offset)
    assert cluster.heartbeat(1, stop=True).after is STOP
    assert cluster.world.image.brokers[1].is_fenced


def test_a_broker_that_stopped_in_order_counts_for_new_topics() -> None:
    """While it is stopping it gets no replica; once it is fenced it does, as one that was killed."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", 3, 1)
    three = CreateTopics([NewTopic("three", 4, 3)])
    assert cluster.heartbeat(3, stop=True).after is STOPPING
    (refused,) = cluster.world.do(three)
    assert refused.error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s) are registered" in str(refused.error.message)
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id)
    assert cluster.heartbeat(3, stop=True).after is STOP
    assert cluster.world.image.brokers[3].is_fenced
    (made,) = cluster.world.do(three)
    assert not made.error.is_failure, made
    for partition in cluster.world.image.topics_by_name["three"].partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.replicas[0] != 3
        assert sorted(partition.isr) == [1, 2]
    (grown,) = cluster.world.do(CreatePartitions([NewPartitions("three", 6)]))
    assert not grown.error.is_failure, grown


def test_who_alone_is_in_sync_leaves_its_partition_without_a_leader() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    cluster.heartbeat(2)
    cluster.world.do(FenceBroker(2, cluster.epoch(2)))
    assert cluster.heartbeat(1, stop=True).after is STOPPING
    # No other replica is in sync: the partition has no leader any more, and no broker has to apply that first.
    assert cluster.leader("t") == -1
    assert cluster.heartbeat(1, stop=True).after is STOP


def test_a_shutdown_that_began_under_another_controller_begins_again() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    assert cluster.heartbeat(1, stop=True).after is STOPPING
    cluster.heartbeats = BrokerHeartbeats(TIMEOUT_MS)
    assert cluster.heartbeat(1, stop=True)[:2] == (UNFENCED, STOP)


def test_a_fenced_broker_leaves_its_shutdown() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    cluster.heartbeat(1, stop=True)
    cluster.world.do(FenceBroker(1, cluster.epoch(1)))
    assert cluster.heartbeat(1, stop=True)[:2] == (FENCED, STOP)


def test_a_lost_log_directory_takes_its_replicas_out() -> None:
    """KIP-858: the broker serves on with those that are left."""
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    assert cluster.heartbeat(1, offline_log_dirs=[directory_id(1), directory_id(9)]).after is UNFENCED
    assert cluster.leader("t") == 2
    assert cluster.world.image.topics_by_name["t"].partitions[0].isr == (2,)


def test_cordoned_log_directories_are_written_when_they_change() -> None:
    cluster = Cluster(1)
    written = len(cluster.world.records)
    cluster.heartbeat(1, cordoned_log_dirs=None)
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert len(cluster.world.records) == written
    cluster.heartbeat(1, cordoned_log_dirs=[directory_id(1)])
    assert cluster.world.image.brokers[1].cordoned_log_dirs == (directory_id(1),)
    cluster.heartbeat(1, cordoned_log_dirs=[directory_id(1)])
    assert len(cluster.world.records) == written + 1
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert cluster.world.image.brokers[1].cordoned_log_dirs == ()


def registration(broker_id: int, incarnation: int) -> RegisterBroker:
    return RegisterBroker(
        broker_id=broker_id,
        incarnation_id=bytes([incarnation]) * 16,
        endpoints=[Endpoint("PLAINTEXT", "host", 9092, 0)],
        features=SUPPORTED_FEATURES,
        log_dirs=[directory_id(broker_id)],
    )


def test_another_process_waits_for_the_end_of_the_session() -> None:
    cluster = Cluster(1)
    cluster.create("t", 1)
    cluster.heartbeats.contact(1, cluster.epoch(1), 1000)
    with pytest.raises(CommandRefused) as refused:
        cluster.world.do(AdmitBroker(cluster.heartbeats, 1000 + TIMEOUT_MS, registration(1, 2)))
    assert refused.value.error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    # The same process may change its registration.
    epoch, is_new = cluster.world.do(AdmitBroker(cluster.heartbeats, 1000 + TIMEOUT_MS, registration(1, 1)))
    assert (epoch, is_new) == (cluster.epoch(1), False)
    epoch, is_new = cluster.world.do(AdmitBroker(cluster.heartbeats, 1001 + TIMEOUT_MS, registration(1, 2)))
    assert (epoch, is_new) == (cluster.epoch(1), True)
    assert cluster.world.image.brokers[1].is_fenced
    assert cluster.leader("t") == -1


def test_a_broker_that_begins_to_serve_does_not_lead_from_a_directory_that_it_reports_lost() -> None:
    cluster = Cluster(2)
    cluster.world.register(1, log_dirs=[directory_id(1), directory_id(101)])
    cluster.create("t", 1)
    replicas = [(cluster.world.image.topics_by_name["t"].topic_id, 0)]
    assigned = AssignReplicasToDirs(1, cluster.epoch(1), [DirectoryReplicas(directory_id(101), replicas)])
    cluster.world.do(assigned)
    cluster.world.do(FenceBroker(1, cluster.epoch(1)))
    assert cluster.heartbeat(1, offline_log_dirs=[directory_id(101)]).after is UNFENCED
    assert cluster.leader("t") == -1


def test_a_broker_whose_leaderships_have_not_moved_yet_waits() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", 1, 2)
    heartbeat = Heartbeat(1, cluster.epoch(1), cluster.world.image.offset, False, True)
    cluster.heartbeats.note(heartbeat, STOPPING, cluster.world.image.offset)
    assert cluster.leader("t") == 1
    assert cluster.heartbeats.next_state(cluster.world.image, heartbeat) is STOPPING
