"""Expired delegation tokens are removed by the active controller, at the interval of the settings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.delegation_tokens import CreateDelegationToken, TokenSettings, tokens
from pykbroker.node.housekeeping import start_controller_housekeeping
from pykbroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from pykbroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.admin import make_services
from tests.support.whole_broker import TIMEOUT_S, WholeBroker

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


def test_a_single_node_removes_them_too(tmp_path: Path) -> None:
    """P-251: it has no controllers' port, with whose tasks the removal goes elsewhere."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="secret";'
        ),
        "delegation.token.secret.key": "secret",
        "delegation.token.expiry.check.interval.ms": "20",
    }
    with WholeBroker(tmp_path, settings) as broker:
        client = broker.client
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.call(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), 2).error_code == 0
        created = client.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1), 3)
        assert created.error_code == 0
        deadline = time.monotonic() + TIMEOUT_S
        while client.call(DescribeDelegationTokenRequest(owners=None), 3).tokens:
            assert time.monotonic() < deadline
