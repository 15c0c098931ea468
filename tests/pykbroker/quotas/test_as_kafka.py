"""Random histories of quotas, played by Apache Kafka's own quota managers and by ours: equal throttle times."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.quotas.limits import DEFAULT, ClientLimits
from pykbroker.quotas.measured import MeasuredRates, MutationQuotas
from pykbroker.quotas.rates import QuotaWindows
from tests.support.java_programs import ask

pytestmark = pytest.mark.java

USERS = ("alice", "bob", "<default>")
CLIENTS = ("app", "other", "")
START_MS = 1_700_000_000_000
HISTORIES = 150
STEPS = 120


def random_history(seed: int) -> dict[str, Any]:
    """Limits that are set first, and then requests and a few changes at random times."""
    chance = random.Random(seed)
    steps: list[dict[str, Any]] = []
    now_ms = START_MS
    is_slow = chance.random() < 0.5
    kinds = ["record", "record", "fetch", "most", "strict", "permissive"]

    def set_one() -> None:
        step: dict[str, Any] = {"do": "set", "at_ms": now_ms, "value": chance.choice((0, 1, 10, 2.5, 500))}
        parts = chance.choice((("user",), ("client",), ("user", "client")))
        for part in parts:
            step[part] = chance.choice((None, *(USERS if part == "user" else CLIENTS[:-1])))
        steps.append(step)

    for _ in range(chance.randrange(1, 6)):
        set_one()
    for number in range(STEPS):
        now_ms += chance.choice((0, 1, 30, 400, 999, 1000, 1001, 5000, 12_000 if is_slow else 7))
        if number == STEPS // 2 and chance.random() < 0.5:
            # After all windows have passed: Kafka measures clients without a limit too, we do not. Tokens of a bucket
            # that was not used meanwhile come, in Kafka, at the new limit for the time before it was set.
            now_ms += 10_000_000
            kinds = kinds[:4]
            set_one()
        steps.append(
            {
                "do": chance.choice(kinds),
                "at_ms": now_ms,
                "user": chance.choice(USERS),
                "client": chance.choice(CLIENTS),
                "value": chance.choice((0, 1, 3, 25, 400, 7000)),
            }
        )
    return {"windows": chance.choice((1, 2, 11)), "seconds": chance.choice((1, 1, 3)), "steps": steps}


class Ours:
    """Plays a history with our classes."""

    def __init__(self, history: dict[str, Any]) -> None:
        windows = QuotaWindows(history["windows"], history["seconds"] * 1000)
        self._rates = MeasuredRates(windows)
        self._mutations = MutationQuotas(windows)
        self._set: dict[tuple[Any, Any], float] = {}
        self.throttles = [throttle for step in history["steps"] if (throttle := self._play(step)) is not None]

    def _play(self, step: dict[str, Any]) -> int | None:
        kind, value, now_ms = step["do"], step["value"], step["at_ms"]
        if kind == "set":
            self._change(step)
            return None
        client = step["user"], step["client"]
        if kind in ("strict", "permissive"):
            return self._mutations.charge(*client, value, now_ms, is_strict=kind == "strict")
        if kind == "most":
            return self._rates.most_at_once(*client)
        throttle_ms = self._rates.record(*client, value, now_ms)
        if kind == "fetch" and throttle_ms:
            self._rates.count(*client, -value, now_ms)
        return throttle_ms

    def _change(self, step: dict[str, Any]) -> None:
        user, client_id = (
            None if part not in step else DEFAULT if step[part] is None else step[part] for part in ("user", "client")
        )
        self._set.pop((user, client_id), None)
        if step["value"]:
            self._set[user, client_id] = step["value"]
        limits = ClientLimits()
        for entity, limit in self._set.items():
            limits.set(*entity, limit)
        self._rates.limits = self._mutations.limits = limits


def test_throttle_times_are_kafkas() -> None:
    """P-266, P-267, P-271 to P-273."""
    histories = [random_history(seed) for seed in range(HISTORIES)]
    kafkas = ask("QuotaCheck", histories)
    throttled = 0
    for seed, (history, expected) in enumerate(zip(histories, kafkas, strict=True)):
        requests = [step for step in history["steps"] if step["do"] != "set"]
        for number, (ours, theirs) in enumerate(zip(Ours(history).throttles, expected, strict=True)):
            # Sums of doubles in another order differ by less than the rounding to a millisecond.
            assert abs(ours - theirs) <= 1, f"history {seed}, request {number}: {requests[number]}"
            throttled += bool(theirs)
    assert throttled > 1000


def always_busy(kind: str, size: int, limit: int, seconds: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Requests of a client that sends the next one when a throttle is over, and our throttle times of them."""
    user, client_id = "alice", "app"
    steps: list[dict[str, Any]] = [{"do": "set", "at_ms": START_MS, "user": user, "value": limit}]
    limits = ClientLimits()
    limits.set(user, None, limit)
    rates, now_ms, throttles = MeasuredRates(QuotaWindows(11, 1000)), START_MS, list[int]()
    rates.limits = limits
    while now_ms < START_MS + seconds * 1000:
        steps.append({"do": kind, "at_ms": now_ms, "value": size, "user": user, "client": client_id})
        throttles.append(rates.record(user, client_id, size, now_ms))
        if kind == "fetch" and throttles[-1]:
            rates.count(user, client_id, -size, now_ms)
        now_ms += 3 + throttles[-1]
    return steps, throttles


def test_a_client_that_always_has_more_is_throttled_at_kafkas_times() -> None:
    """P-267, P-271: over two minutes, with requests of 20 kB to half of the burst of ten seconds."""
    cases = [(kind, size) for kind in ("record", "fetch") for size in (20_000, 200_000, 1_000_000, 2_000_000)]
    played = [always_busy(kind, size, 400_000, 120) for kind, size in cases]
    kafkas = ask("QuotaCheck", [{"windows": 11, "seconds": 1, "steps": steps} for steps, _ in played])
    for case, (_, ours), theirs in zip(cases, played, kafkas, strict=True):
        assert sum(map(bool, theirs)) > 10, case
        assert max(abs(one - other) for one, other in zip(ours, theirs, strict=True)) <= 1, case
