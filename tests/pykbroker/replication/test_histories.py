"""Random histories of three replicas: what was acknowledged stays, logs agree below every high watermark.

Messages are lost and late, metadata comes to each broker when it comes, leaders change, brokers are killed and start
again on what they have written. The oracle knows nothing of how replication works: it looks at what producers were told
and at what readers could see.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, PartitionImage
from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from pykbroker.replication.leadership import Leadership, Proposal
from tests.support.replicas import TOPIC, ReplicaBroker, broker_image, image_of

REPLICAS = (1, 2, 3)
SETTINGS = {"min.insync.replicas": "2"}
STEPS = 1000
CALM = {
    "produce": 20,
    "fetch": 40,
    "deliver": 40,
    "learn": 20,
    "alter": 10,
    "tick": 2,
    "shrink": 2,
    "elect": 1.5,
    "kill": 0.7,
    "delete": 1,
    "checkpoint": 2,
}
# Followers that lag, leave the in-sync set and come back, while leaders change.
CHURN = CALM | {"tick": 12, "shrink": 12, "alter": 25, "elect": 5, "kill": 0.3, "produce": 12, "delete": 0.3}
# Metadata that comes late, and answers of the controller that do not come.
LATE = CALM | {"learn": 6, "alter": 4, "tick": 8, "shrink": 12, "elect": 6, "kill": 0.3, "delete": 0.3}


class Controller:
    """The metadata: what the real controller decides, reduced to one partition."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerImage] = {n: broker_image(n, n) for n in REPLICAS}
        self.partition = PartitionImage(0, REPLICAS, REPLICAS, 1, 0, 0)
        self.next_epoch = 10
        self.images: list[ClusterImage] = []
        self._publish()

    def _publish(self) -> None:
        self.images.append(image_of(self.partition, dict(self.brokers)))

    def _change(self, isr: tuple[int, ...], leader: int) -> None:
        old = self.partition
        epoch = old.leader_epoch + (leader != old.leader)
        self.partition = old._replace(
            isr=isr, leader=leader, leader_epoch=epoch, partition_epoch=old.partition_epoch + 1
        )
        self._publish()

    def alter(self, sender: int, proposal: Proposal) -> ErrorCode:
        """AlterPartition; the state after it is in `partition`."""
        old = self.partition
        if sender != old.leader or proposal.leader_epoch != old.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != old.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for broker_id, epoch in proposal.isr:
            broker = self.brokers[broker_id]
            if broker.is_fenced or epoch not in (-1, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        self._change(proposal.broker_ids, old.leader)
        return ErrorCode.NONE

    def elect(self, leader: int) -> None:
        """Another in-sync replica leads, or the same one under a new epoch if it had lost leadership."""
        if leader in self.partition.isr and not self.brokers[leader].is_fenced and leader != self.partition.leader:
            self._change(self.partition.isr, leader)

    def fence(self, broker_id: int) -> None:
        self.brokers[broker_id] = self.brokers[broker_id]._replace(is_fenced=True)
        isr = tuple(n for n in self.partition.isr if n != broker_id) or self.partition.isr
        leader = self.partition.leader
        if leader == broker_id:
            leader = next((n for n in isr if not self.brokers[n].is_fenced), -1)
        self._change(isr, leader)

    def register(self, broker_id: int) -> None:
        self.next_epoch += 1
        self.brokers[broker_id] = broker_image(broker_id, self.next_epoch)
        leader = self.partition.leader
        if leader < 0 and broker_id in self.partition.isr:
            leader = broker_id
        self._change(self.partition.isr, leader)


class History:
    """One run. Every choice comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.weights: dict[str, float] = (CALM, CHURN, LATE)[seed % 3]
        self.controller = Controller()
        self.brokers = {n: ReplicaBroker(n, SETTINGS) for n in REPLICAS}
        self.alive = set(REPLICAS)
        # How many images each broker knows.
        self.known = dict.fromkeys(REPLICAS, 0)
        # Answers on their way to a follower: (its session, the answer).
        self.answers: dict[int, Any] = {}
        self.waiting: list[tuple[int, Leadership, int, str]] = []
        self.acknowledged: dict[int, str] = {}
        self.seen: dict[int, str] = {}
        self.high_watermarks: dict[int, tuple[Any, int]] = {}
        self.log_start = 0
        self.value = 0
        for n in REPLICAS:
            self.learn(n)

    # What may happen

    def learn(self, n: int) -> None:
        if self.known[n] < len(self.controller.images):
            image = self.controller.images[self.known[n]]
            # Each broker is given an image of its own: the delta is against what that broker knew.
            self.brokers[n].apply(image_of(image.topics_by_name[TOPIC].partitions[0], dict(image.brokers)))
            self.known[n] += 1

    def produce(self, n: int) -> None:
        partition = self.brokers[n].partition
        try:
            partition.check_enough_replicas()
        except KafkaError:
            return
        self.value += 1
        value = f"v{self.value}"
        count = self.chance.randint(1, 3)
        batch = build_batch([Record(i, 1000, None, f"{value}.{i}".encode(), ()) for i in range(count)])
        result = partition.append_as_leader(batch, 1000)
        assert partition.leadership is not None
        self.waiting.append((n, partition.leadership, result.last_offset + 1, value))

    def send_fetch(self, n: int) -> None:
        """The follower's request reaches the leader, or not; the answer is on its way then."""
        broker = self.brokers[n]
        if n in self.answers or broker.leader_id < 0:
            return
        request = finished(broker.session.next_request(broker.now, broker.clock.now_ms(), broker.broker_epoch()))
        if request is None:
            return
        if broker.leader_id not in self.alive or self.chance.random() < 0.03:
            broker.session.on_failure(broker.now)
            return
        self.answers[n] = (broker.session, broker.leader_id, self.brokers[broker.leader_id].serve(request))

    def deliver(self, n: int) -> None:
        if n not in self.answers:
            return
        session, leader, answer = self.answers.pop(n)
        broker = self.brokers[n]
        if session is not broker.session:
            return
        if self.chance.random() < 0.03:
            session.on_failure(broker.now)
            return
        for followed in finished(session.on_response(answer, broker.now, broker.clock.now_ms())):
            start, end = (self.offset(leader, followed.leader_epoch, t) for t in (-2, -1))
            if start is None or end is None:
                session.delay(followed, broker.now)
            else:
                followed.on_offsets(start, end, broker.clock.now_ms())

    def offset(self, leader: int, epoch: int, timestamp: int) -> Any:
        if leader not in self.alive:
            return None
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=9, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
        answer = self.brokers[leader].serve(request).topics[0].partitions[0]
        return answer.offset if answer.error_code == 0 else None

    def alter(self, n: int) -> None:
        broker = self.brokers[n]
        if not broker.proposals:
            return
        proposal = broker.proposals.pop(0)
        code = self.controller.alter(n, proposal)
        if self.chance.random() < 0.2:
            broker.proposals.append(proposal)  # the answer is lost: it asks again
        elif code == ErrorCode.NONE:
            state = self.controller.partition
            broker.partition.on_proposal_accepted(proposal, state.isr, state.leader_epoch, state.partition_epoch)
        elif code == ErrorCode.INELIGIBLE_REPLICA:
            broker.partition.on_proposal_rejected(proposal)

    def kill(self, n: int) -> None:
        if len(self.alive) > 1:
            self.brokers[n].directory.abandon()
            self.alive.discard(n)
            self.answers.pop(n, None)

    def start(self, n: int) -> None:
        """It comes back, whether or not the controller had noticed that it was away."""
        broker = self.brokers[n]
        broker.open()
        self.alive.add(n)
        self.controller.register(n)
        # A broker serves when it knows of its own registration.
        self.known[n] = len(self.controller.images) - 1
        self.learn(n)

    def delete_records(self, n: int) -> None:
        partition = self.brokers[n].partition
        self.log_start = max(self.log_start, self.chance.randint(0, partition.high_watermark))
        if self.log_start <= partition.high_watermark:
            partition.advance_log_start(self.log_start)

    def step(self) -> None:
        for broker in self.brokers.values():
            broker.clock.time_ms += 100
        n = self.chance.choice(REPLICAS)
        if n not in self.alive:
            choice = self.chance.random()
            if choice < 0.1:
                self.start(n)
            elif choice < 0.4 and not self.controller.brokers[n].is_fenced:
                self.controller.fence(n)
            return
        broker = self.brokers[n]
        kind = self.chance.choices(list(self.weights), list(self.weights.values()))[0]
        if kind == "produce" and broker.partition.is_leader:
            self.produce(n)
        elif kind == "fetch":
            self.send_fetch(n)
        elif kind == "deliver":
            self.deliver(n)
        elif kind == "learn":
            self.learn(n)
        elif kind == "alter":
            self.alter(n)
        elif kind == "tick":
            broker.clock.time_ms += self.chance.choice((500, 2000, 20_000))
        elif kind == "shrink":
            broker.partition.shrink_isr()
        elif kind == "elect":
            self.controller.elect(n)
        elif kind == "kill":
            self.kill(n)
        elif kind == "delete" and broker.partition.is_leader:
            self.delete_records(n)
        elif kind == "checkpoint":
            broker.directory.checkpoint_high_watermarks({(TOPIC, 0): broker.partition.high_watermark})

    # What must hold

    def values(self, n: int) -> dict[int, str]:
        log = self.brokers[n].partition.log
        found: dict[int, str] = {}
        for batch in log.iter_batches():
            for record in batch.records():
                if record.offset >= log.log_start_offset:
                    found[record.offset] = (record.value or b"").decode()
        return found

    def epochs(self, n: int, start: int) -> list[tuple[int, int]]:
        """The leader epochs of a log in which there are records; a leader also notes its own, before the first one."""
        log = self.brokers[n].partition.log
        return [entry for entry in log.leader_epochs.entries if start < entry[1] < log.log_end_offset]

    def look(self) -> None:
        """Note acknowledgements, and check the records and the high watermark that readers see at each broker."""
        for item in list(self.waiting):
            n, leadership, end, value = item
            if n not in self.alive or self.brokers[n].partition.leadership is not leadership:
                self.waiting.remove(item)
            elif self.brokers[n].partition.high_watermark >= end and len(leadership.maximal_isr) >= 2:
                self.waiting.remove(item)
                self.acknowledged[end - 1] = value
        for n in sorted(self.alive):
            partition = self.brokers[n].partition
            before, high_watermark = self.high_watermarks.get(n, (None, 0))
            assert before is not partition or partition.high_watermark >= high_watermark, f"{n} goes back"
            self.high_watermarks[n] = (partition, partition.high_watermark)
            values = self.values(n)
            for offset, value in values.items():
                if offset < partition.high_watermark:
                    assert self.seen.setdefault(offset, value) == value, f"{n} shows another record at {offset}"
            if partition.leader_epoch == self.controller.partition.leader_epoch and partition.is_leader:
                for offset, value in self.acknowledged.items():
                    if offset >= partition.log.log_start_offset:
                        assert values.get(offset, "").startswith(f"{value}."), f"{n} leads without {value}@{offset}"

    def heal(self) -> None:
        """Everybody comes back and hears everything."""
        for n in REPLICAS:
            if n not in self.alive:
                self.start(n)
        for _ in range(60):
            for n in REPLICAS:
                self.brokers[n].clock.time_ms += 2000
                while self.known[n] < len(self.controller.images):
                    self.learn(n)
                self.send_fetch(n)
                self.deliver(n)
                self.alter(n)
                self.look()


@pytest.mark.parametrize("seed", range(30))
async def test_nothing_that_was_acknowledged_is_lost(seed: int) -> None:
    history = History(seed)
    for number in range(STEPS):
        history.step()
        if number % 4 == 0:
            history.look()
    history.heal()
    assert sorted(history.controller.partition.isr) == [1, 2, 3]
    leader = history.controller.partition.leader
    logs = {n: history.values(n) for n in REPLICAS}
    start = max(history.log_start, *(history.brokers[n].partition.log.log_start_offset for n in REPLICAS))
    wanted = {offset: value for offset, value in logs[leader].items() if offset >= start}
    for n in REPLICAS:
        assert {offset: value for offset, value in logs[n].items() if offset >= start} == wanted
        assert history.brokers[n].partition.high_watermark == history.brokers[leader].partition.log.log_end_offset
        assert history.epochs(n, start) == history.epochs(leader, start)


async def test_the_histories_are_worth_it() -> None:
    """Most runs acknowledge much, change leaders and cut logs."""
    acknowledged = elections = 0
    for seed in range(10):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
            history.look()
        acknowledged += len(history.acknowledged)
        elections += history.controller.partition.leader_epoch
    assert acknowledged > 100
    assert elections > 20
