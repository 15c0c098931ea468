"""Expired delegation tokens are removed by the active controller, at the interval of the settings."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.delegation_tokens import CreateDelegationToken, TokenSettings, tokens
from pykbroker.node.housekeeping import start_controller_housekeeping
from tests.support.admin import make_services

SETTINGS = TokenSettings("secret", 10_000, 1000)


class TrioClock:
    """The time of day is trio's."""

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)


@pytest.mark.parametrize("is_leader", [True, False])
async def test_expired_tokens_are_removed(is_leader: bool) -> None:
    """P-251."""
    properties = {
        "delegation.token.secret.key": "secret",
        "delegation.token.expiry.check.interval.ms": "5000",
    }
    services: Any = make_services(properties).replaced(clock=TrioClock())
    services.controller.is_leader = is_leader
    command = CreateDelegationToken(SETTINGS, "User:a", "User:a", [], -1, TrioClock().now_ms())
    services.controller.submit_now(command)
    async with trio.open_nursery() as nursery:
        start_controller_housekeeping(nursery, services, [])
        await trio.sleep(4.9)
        assert len(list(tokens(services.metadata.image))) == 1
        await trio.sleep(0.2)
        assert len(list(tokens(services.metadata.image))) == (0 if is_leader else 1)
        nursery.cancel_scope.cancel()
