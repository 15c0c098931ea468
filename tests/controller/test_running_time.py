"""Running time: the time of a stall does not count, so that sessions of brokers last longer by it."""

from __future__ import annotations

import random

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats
from pykbroker.controller.running_time import LATE_MIN_MS, RunningTime
from tests.controller.world import World

TICK_MS = 90
SESSION_MS = 750


def test_without_a_stall_it_goes_with_the_clock() -> None:
    time = RunningTime(TICK_MS)
    assert time.at(5000) == 5000
    for now_ms in range(5000, 6000, TICK_MS + LATE_MIN_MS):
        assert time.tick(now_ms) == 0
        assert time.at(now_ms + TICK_MS) == now_ms + TICK_MS


def test_a_stall_is_cut_out_from_where_the_tick_was_due() -> None:
    time = RunningTime(TICK_MS)
    time.tick(1000)
    assert time.tick(2000) == 910
    assert time.at(2000) == 1000 + TICK_MS
    assert time.at(2050) == 1000 + TICK_MS + 50, "it goes on"


def test_whoever_looks_first_after_a_stall_sees_it() -> None:
    """Tasks run in any order: a session must not end before the ticking task has run."""
    time = RunningTime(TICK_MS)
    time.tick(1000)
    assert time.at(1800) == 1000 + TICK_MS
    assert time.tick(1801) == 0, "it is not counted twice"
    assert time.lost_ms == 710


def test_it_never_goes_backwards() -> None:
    chance = random.Random(5)
    for _ in range(200):
        time, now_ms, seen_ms = RunningTime(TICK_MS), 0, 0
        for _ in range(50):
            now_ms += chance.choice((0, 1, 30, 95, 105, 111, 400, 3000))
            if chance.random() < 0.5:
                time.tick(now_ms)
            assert time.at(now_ms) >= seen_ms
            seen_ms = time.at(now_ms)


def test_brokers_live_through_a_stall_of_their_controller() -> None:
    """Stalls of 0.7 s at each point of a session: a broker that sends heartbeats in running time is never fenced."""
    for offset_ms in range(0, 300, 10):
        heartbeats, time = _watched(World([]))
        time.tick(0)
        heartbeats.contact(1, 7, time.at(0))
        now_ms = offset_ms
        for _ in range(5):
            time.tick(now_ms)
            now_ms += 700
            assert heartbeats.take_expired(time.at(now_ms)) is None
            # The broker waited for an answer, which leaves only now.
            now_ms += 60
            assert heartbeats.take_expired(time.at(now_ms)) is None
            heartbeats.contact(1, 7, time.at(now_ms))


def test_a_silent_broker_is_fenced_within_its_session_of_running_time() -> None:
    for stall_ms in (0, 100, 700, 60_000):
        heartbeats, time = _watched(World([]))
        time.tick(0)
        heartbeats.contact(1, 7, time.at(0))
        now_ms = stall_ms
        ran_ms = 0
        time.tick(now_ms)
        while heartbeats.take_expired(time.at(now_ms)) is None:
            now_ms, ran_ms = now_ms + 10, ran_ms + 10
            if ran_ms % TICK_MS == 0:
                time.tick(now_ms)
            assert ran_ms <= SESSION_MS + 10, f"after a stall of {stall_ms} ms"
        assert ran_ms >= SESSION_MS - TICK_MS - LATE_MIN_MS


def _watched(world: World) -> tuple[BrokerHeartbeats, RunningTime]:
    heartbeats = BrokerHeartbeats(SESSION_MS)
    heartbeats.begin(world.image, 0)
    return heartbeats, RunningTime(TICK_MS)
