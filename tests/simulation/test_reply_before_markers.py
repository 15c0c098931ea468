"""A broker that is killed between the reply to EndTxn and the markers of the transaction: its next life writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import trio

from pykbroker.security.connection_info import ConnectionInfo
from tests.simulation import scenario
from tests.simulation.network import SimulatedStream
from tests.simulation.timeline import NODE
from tests.simulation.world import World


class KillsAfterReplies:
    """In the place of `Faults`: every third time the broker is killed in place of what follows its reply.

    Attributes:
        kills: the number of kills.
        replied, not_replied: what followed a reply that was under way to the client; and one that was not sent yet.
    """

    kills = replied = not_replied = 0

    def __init__(self, world: World, *, may_lose_power: bool, has_directories: bool) -> None:
        self._world = world
        KillsAfterReplies.kills = KillsAfterReplies.replied = KillsAfterReplies.not_replied = 0

    async def run(self) -> None:
        sends = Counter[trio.lowlevel.Task]()
        send_at_once, after_reply = SimulatedStream.send_at_once, ConnectionInfo.after_reply

        def send_and_count(stream: SimulatedStream, data: bytes) -> bool:
            is_sent = send_at_once(stream, data)
            sends[trio.lowlevel.current_task()] += is_sent
            return is_sent

        def after_reply_or_never(info: ConnectionInfo, work: Callable[[], None]) -> None:
            before = sends[trio.lowlevel.current_task()]
            after_reply(info, lambda: self._follow(work, is_sent=sends[trio.lowlevel.current_task()] > before))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedStream, "send_at_once", send_and_count)
            patch.setattr(ConnectionInfo, "after_reply", after_reply_or_never)
            await trio.sleep_forever()

    def _follow(self, work: Callable[[], None], *, is_sent: bool) -> None:
        if not is_sent:
            KillsAfterReplies.not_replied += 1
            work()
            return
        KillsAfterReplies.replied += 1
        if KillsAfterReplies.replied % 3:
            work()
        else:
            KillsAfterReplies.kills += 1
            self._world.machines[NODE.get()].kill()
            self._world.timeline.call_later(0.5, self.heal)

    def heal(self) -> None:
        for machine in self._world.machines.values():
            if not machine.is_up:
                machine.start()


def test_p142_a_transaction_is_completed_whose_broker_ends_after_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "Faults", KillsAfterReplies)
    outcome = scenario.run_seed("one-1")
    assert KillsAfterReplies.kills >= 3
    assert KillsAfterReplies.not_replied == 0
    assert outcome.counts["transactions committed"] >= 10
