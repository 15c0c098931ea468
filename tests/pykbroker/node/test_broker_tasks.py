"""Tasks and parts of a broker that depend on its settings: TLS, the end of a quorum."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.node import broker, certificates
from pykbroker.node.housekeeping import start_controller_housekeeping
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.security.tls import node_tls
from tests.support.admin import make_services
from tests.support.data_path import ManualClock


class Tls:
    """Notes the configurations that it is given, and the looks at its files."""

    def __init__(self, config: Any = None) -> None:
        self.applied: list[Any] = [config]
        self.looked_at: list[float] = []

    def apply(self, config: Any) -> None:
        self.applied.append(config)

    def take_changed_files(self) -> None:
        self.looked_at.append(trio.current_time())


def test_certificates_are_read_only_where_a_listener_has_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tls, "NodeTls", Tls)
    host: Any = SimpleNamespace(_replace=lambda tls: tls)
    plain = BrokerConfig.from_properties({})
    assert broker._with_tls(host, plain) is host
    encrypted = BrokerConfig.from_properties({"listeners": "SSL://localhost:9092", "inter.broker.listener.name": "SSL"})
    found: Any = broker._with_tls(host, encrypted)
    assert found.applied == [encrypted]


def test_certificates_follow_the_settings() -> None:
    tls: Any = Tls()
    metadata: Any = SimpleNamespace(settings=SimpleNamespace(under=lambda image: ("config of", image)))
    old, same, new = ClusterImage(), ClusterImage(), ClusterImage()
    same.configs = old.configs
    new.configs = {}
    certificates.apply_settings(tls, metadata, old, same)
    assert tls.applied == [None]
    certificates.apply_settings(tls, metadata, old, new)
    assert tls.applied == [None, ("config of", new)]


async def test_files_of_certificates_are_looked_at_again_and_again() -> None:
    tls: Any = Tls()
    with trio.move_on_after(3.5 * certificates.INTERVAL_S):
        await certificates.watch_files(tls)
    assert tls.looked_at == pytest.approx([number * certificates.INTERVAL_S for number in (1, 2, 3)])


async def test_a_stop_goes_on_when_too_few_controllers_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: Any = object()
    monkeypatch.setattr(broker, "is_quorum_gone", lambda parts: trio.current_time() >= 5)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker._cancel_when_alone, parts, scope)
            await trio.sleep(100)
    assert scope.cancelled_caught
    assert 5 <= trio.current_time() <= 5 + broker.CHECK_INTERVAL_S


async def test_tokens_that_cannot_be_removed_stay_until_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    services: Any = make_services(
        {"delegation.token.secret.key": "secret", "delegation.token.expiry.check.interval.ms": "5000"}
    ).replaced(clock=ManualClock())
    asked: list[float] = []

    async def refuse(command: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        raise CommandRefused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    services.controller.submit = refuse
    services.controller.is_leader = True
    async with trio.open_nursery() as nursery:
        start_controller_housekeeping(nursery, services, [])
        await trio.sleep(11)
        nursery.cancel_scope.cancel()
    assert asked == pytest.approx([5, 10])
    assert caplog.text.count("expired delegation tokens are not removed yet: ") == 2
