"""The rules of the in-sync set and of the high watermark, on values alone (P-79)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pykbroker.controller.metadata.image import BrokerImage, PartitionImage
from pykbroker.replication.leadership import Leadership, RegisteredBrokers

LAG_MAX_S = 30.0
NO_DIRECTORY = bytes(16)


def broker(broker_id: int, *, epoch: int = 0, is_fenced: bool = False, is_leaving: bool = False) -> BrokerImage:
    epoch = epoch or broker_id * 10
    return BrokerImage(broker_id, epoch, NO_DIRECTORY, (), {}, None, is_fenced, is_leaving, (NO_DIRECTORY,))


def image(isr: Sequence[int], *, leader_epoch: int = 1, partition_epoch: int = 1) -> PartitionImage:
    return PartitionImage(0, (1, 2, 3), tuple(isr), 1, leader_epoch, partition_epoch)


def leadership(isr: Sequence[int] = (1, 2, 3), *, log_end: int = 0, now: float = 0.0) -> Leadership:
    brokers = RegisteredBrokers(1, LAG_MAX_S)
    brokers.brokers = {number: broker(number) for number in (1, 2, 3)}
    led = Leadership(brokers)
    led.update(image(isr), log_end, now)
    return led


def fetch(led: Leadership, broker_id: int, offset: int, log_end: int, now: float = 0.0, *, epoch: int = -1) -> None:
    led.followers[broker_id].broker_epoch = epoch
    led.followers[broker_id].on_fetch(offset, 0, log_end, now)


def test_the_high_watermark_waits_for_everybody_in_sync() -> None:
    led = leadership()
    assert led.replicated_end(10, 1, 0.0) == -1  # nobody has fetched yet
    fetch(led, 2, 10, 10)
    assert led.replicated_end(10, 1, 0.0) == -1
    fetch(led, 3, 4, 10)
    assert led.replicated_end(10, 1, 0.0) == 4
    assert leadership(isr=(1,)).replicated_end(10, 1, 0.0) == 10


def test_below_min_isr_the_high_watermark_does_not_move() -> None:
    led = leadership(isr=(1,))
    assert led.replicated_end(10, 2, 0.0) == -1
    assert led.replicated_end(10, 1, 0.0) == 10
    # Never more than there are replicas.
    assert leadership().min_isr(9) == 3


def test_a_follower_that_caught_up_comes_into_the_set_and_counts_at_once() -> None:
    """KIP-497: until the controller has answered both the old and the new set count."""
    led = leadership(isr=(1, 2), log_end=5)
    fetch(led, 2, 8, 8)
    fetch(led, 3, 4, 8)
    assert led.propose_expansion(led.followers[3], 4) is None  # below the beginning of the leader epoch
    fetch(led, 3, 6, 8)
    assert led.propose_expansion(led.followers[3], 7) is None  # below the high watermark
    fetch(led, 3, 7, 8, epoch=30)
    proposal = led.propose_expansion(led.followers[3], 7)
    assert proposal is not None
    assert proposal.isr == ((1, 10), (2, -1), (3, 30))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (1, 1)
    assert led.isr == (1, 2)
    assert led.maximal_isr == {1, 2, 3}
    assert led.propose_expansion(led.followers[3], 7) is None  # one at a time
    assert led.replicated_end(8, 1, 100.0) == 7
    assert led.accept(proposal, (1, 2, 3), 1, 2)
    assert (led.isr, led.partition_epoch) == ((1, 2, 3), 2)


def test_proposed_sets_have_kafkas_order() -> None:
    """P-674: that of Scala's hash tables, and not that of the replicas or of their coming."""
    led = leadership(isr=(3, 1), log_end=5)
    fetch(led, 3, 8, 8)
    fetch(led, 2, 8, 8)
    proposal = led.propose_expansion(led.followers[2], 7)
    assert proposal is not None
    assert proposal.broker_ids == (1, 2, 3)
    led = leadership(isr=(3, 1, 2))
    fetch(led, 3, 10, 10, 1.0)
    fetch(led, 2, 5, 10, 1.0)
    shrunk = led.propose_shrink(10, LAG_MAX_S + 1)
    assert shrunk is not None
    assert shrunk.broker_ids == (1, 3)


@pytest.mark.parametrize(
    "three", [broker(3, is_fenced=True), broker(3, is_leaving=True), broker(3, epoch=31), None], ids=str
)
def test_who_may_not_join(three: BrokerImage | None) -> None:
    """KIP-841, KIP-903: fenced, about to leave, not the process that fetched, not registered."""
    led = leadership(isr=(1, 2))
    fetch(led, 3, 8, 8, epoch=30)
    known = {1: broker(1), 2: broker(2), **({3: three} if three is not None else {})}
    led._brokers.brokers = known
    assert led.propose_expansion(led.followers[3], 0) is None


def test_who_lags_too_long_is_taken_out_when_the_controller_agrees() -> None:
    led = leadership()
    fetch(led, 2, 10, 10, 1.0)
    fetch(led, 3, 5, 10, 1.0)
    assert led.propose_shrink(10, LAG_MAX_S) is None
    # Log ends that are the same are in sync, however long ago the last fetch was.
    proposal = led.propose_shrink(10, LAG_MAX_S + 1)
    assert proposal is not None
    assert proposal.broker_ids == (1, 2)
    assert led.replicated_end(10, 1, LAG_MAX_S + 1) == 5  # a shrink may fail
    led.reject(proposal)
    again = led.propose_shrink(10, LAG_MAX_S + 1)
    assert again is not None
    assert not led.accept(proposal, (1, 2), 1, 2)  # an answer to an earlier one
    assert led.accept(again, (1, 2), 1, 2)
    assert led.replicated_end(10, 1, LAG_MAX_S + 1) == 10


def test_a_follower_one_fetch_behind_a_busy_leader_is_in_sync() -> None:
    led = leadership()
    for second in range(100):
        fetch(led, 2, second * 10, second * 10 + 10, float(second))
        fetch(led, 3, 0, second * 10 + 10, float(second))
    proposal = led.propose_shrink(1000, 99.0)
    assert proposal is not None
    assert proposal.broker_ids == (1, 2)


def test_the_high_watermark_waits_for_who_is_about_to_join() -> None:
    """Or a follower would chase a high watermark that always is ahead of it."""
    led = leadership(isr=(1,))
    fetch(led, 2, 8, 8, 1.0)
    fetch(led, 3, 3, 8, 1.0)
    assert led.replicated_end(9, 1, 2.0) == 8
    assert led.replicated_end(9, 1, 2.0 + LAG_MAX_S) == 9


def test_metadata_overrules_what_was_proposed() -> None:
    led = leadership()
    proposal = led.propose_shrink(10, LAG_MAX_S + 1)
    assert proposal is not None
    assert not led.update(image((1, 2), partition_epoch=2), 10, 40.0)
    assert led.pending is None
    assert not led.accept(proposal, (1,), 1, 2)
    assert led.isr == (1, 2)
    # What comes late is not taken over.
    assert not led.update(image((1, 2, 3), partition_epoch=1), 10, 40.0)
    assert led.isr == (1, 2)


def test_the_answer_may_come_before_the_metadata() -> None:
    led = leadership()
    proposal = led.propose_shrink(10, LAG_MAX_S + 1)
    assert proposal is not None
    assert led.accept(proposal, (1,), 1, 2)
    fetch(led, 2, 10, 10, 50.0)
    second = led.propose_expansion(led.followers[2], 10)
    assert second is not None
    led.update(image((1,), partition_epoch=2), 10, 50.0)
    assert led.pending is second


def test_a_new_leader_epoch_resets_progress() -> None:
    led = leadership(log_end=5)
    fetch(led, 2, 5, 5, 1.0)
    assert led.update(image((1, 2), leader_epoch=2, partition_epoch=2), 9, 50.0)
    assert led.epoch_start_offset == 9
    assert led.followers[2].log_end_offset == 5
    assert led.followers[2].is_caught_up(9, 60.0, LAG_MAX_S)
    assert not led.followers[3].is_caught_up(9, 60.0, LAG_MAX_S)


def test_the_low_watermark_asks_only_who_is_alive() -> None:
    """KIP-107."""
    led = leadership()
    led.followers[2].on_fetch(5, 3, 5, 0.0)
    assert led.low_watermark(4) == -1
    led.followers[3].on_fetch(5, 4, 5, 0.0)
    assert led.low_watermark(4) == 3
    led._brokers.brokers = {1: broker(1), 2: broker(2, is_fenced=True), 3: broker(3)}
    assert led.low_watermark(4) == 4


def test_replicas_come_and_go_with_the_metadata() -> None:
    led = leadership()
    fetch(led, 2, 7, 7)
    led.update(PartitionImage(0, (1, 2, 4), (1, 2), 1, 1, 2), 7, 0.0)
    assert list(led.followers) == [2, 4]
    assert led.followers[2].log_end_offset == 7
