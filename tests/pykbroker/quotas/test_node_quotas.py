"""Quotas of a node: taken over from the metadata, measured, purged."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.image_publisher import LARGE, ImagePublisher
from pykbroker.controller.metadata.client_quotas import AlterClientQuotas, Entity, QuotaAlteration
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord, EntityData
from pykbroker.protocol.steps import PIECE, finished
from pykbroker.quotas import node_quotas
from pykbroker.quotas.limits import ClientLimits
from pykbroker.quotas.measured import UNLIMITED_BYTES, MeasuredRates, MutationQuotas
from pykbroker.quotas.node_quotas import NodeQuotas
from pykbroker.quotas.rates import QuotaWindows
from pykbroker.quotas.switch import QuotaSwitch
from tests.support.admin import apply_records, make_services

NOW_MS = 5_000_000
WINDOWS = QuotaWindows(11, 1000)


def record_of(key: str, value: float, **entity: str | None) -> ClientQuotaRecord:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


def quotas_of(*records: ClientQuotaRecord, **settings: str) -> NodeQuotas:
    config = BrokerConfig.from_properties({key.replace("_", "."): text for key, text in settings.items()})
    quotas = NodeQuotas(config, lambda name, use: None)
    quotas.use(finished(node_quotas.quotas_of(records)))
    return quotas


def altered(image: ClusterImage, entity: Entity, **quotas: float | None) -> ClusterImage:
    context = make_services().controller.plan_context()  # type: ignore[attr-defined]
    plan = finished(AlterClientQuotas([QuotaAlteration(entity, list(quotas.items()))]).plan_in_steps(image, context))
    assert not any(error.is_failure for error in plan.result.values())
    return apply_records(image, plan.records)


def test_without_quotas_nothing_is_active_or_imported() -> None:
    """P-265: one attribute is all that a request of a node without quotas reads."""
    switch = QuotaSwitch(BrokerConfig.from_properties({}))
    switch.apply(None, EMPTY_IMAGE)
    assert switch.active is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pykbroker.quotas.node_quotas", None)
        switch.apply(None, make_services().metadata.image)
    assert switch.active is None


def test_quotas_come_and_go_with_the_metadata() -> None:
    """P-265: rates that were measured stay when a limit changes."""
    switch = QuotaSwitch(BrokerConfig.from_properties({}))
    entity: Entity = (("client-id", "app"),)
    first = altered(EMPTY_IMAGE, entity, producer_byte_rate=1000.0)
    switch.apply(EMPTY_IMAGE, first)
    quotas = switch.active
    assert quotas is not None
    assert quotas.produce.record("alice", "app", 15_000, NOW_MS) == 5000
    second = altered(first, entity, producer_byte_rate=2000.0)
    switch.apply(first, second)
    assert switch.active is quotas
    assert quotas.produce.record("alice", "app", 0, NOW_MS) == 0
    assert quotas.produce.record("alice", "app", 10_000, NOW_MS) == 2500
    switch.apply(second, altered(second, entity, producer_byte_rate=None))
    assert switch.active is None


def test_each_key_limits_its_own() -> None:
    """P-266."""
    quotas = quotas_of(
        record_of("producer_byte_rate", 1.0, user="alice"),
        record_of("consumer_byte_rate", 2.0, client_id=None),
        record_of("request_percentage", 3.0, user=None, client_id="app"),
        record_of("controller_mutation_rate", 4.0, user=None),
    )
    found = [
        kind.limits.find("alice", "app") for kind in (quotas.produce, quotas.fetch, quotas.request, quotas.mutations)
    ]
    assert [limit for _, limit in filter(None, found)] == [1.0, 2.0, 3.0, 4.0]
    assert quotas.produce.limits.find("bob", "app") is None


def test_an_unknown_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        quotas_of(record_of("remote_byte_rate", 1.0, user="alice"))
    assert "remote_byte_rate" in caplog.text


def of_many(count: int) -> ClusterImage:
    """An image in which so many users have a quota."""
    context = make_services().controller.plan_context()  # type: ignore[attr-defined]
    alterations = [QuotaAlteration((("user", f"u{number}"),), [("producer_byte_rate", 5.0)]) for number in range(count)]
    return apply_records(
        EMPTY_IMAGE, finished(AlterClientQuotas(alterations).plan_in_steps(EMPTY_IMAGE, context)).records
    )


def limit_of(switch: QuotaSwitch, user: str) -> float | None:
    assert switch.active is not None
    found = switch.active.produce.limits.find(user, "c")
    return None if found is None else found[1]


def test_many_quotas_are_made_in_steps_before_the_image_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = QuotaSwitch(BrokerConfig.from_properties({}))
    image = of_many(10 * PIECE)
    assert sum(1 for _ in switch.prepare(EMPTY_IMAGE, image)) == 10
    assert switch.active is None
    with monkeypatch.context() as patch:
        patch.setattr(node_quotas, "quotas_of", None)  # nothing is left to do
        switch.apply(EMPTY_IMAGE, image)
    assert limit_of(switch, "u7") == 5.0
    for _ in switch.prepare(image, altered(image, (("user", "u7"),), producer_byte_rate=6.0)):
        pass
    snapshot = altered(image, (("user", "u7"),), producer_byte_rate=7.0)
    switch.apply(image, snapshot)
    assert limit_of(switch, "u7") == 7.0
    assert list(switch.prepare(snapshot, apply_records(snapshot, ()))) == []


def test_a_change_of_one_among_many_quotas_is_prepared() -> None:
    publisher = ImagePublisher(100)
    publisher.subscribe(lambda old, new: None, lambda old, new: ())
    for count, is_prepared in ((LARGE - 1, False), (LARGE, True)):
        publisher.image = of_many(count)
        changed = altered(publisher.image, (("user", "u0"),), producer_byte_rate=6.0)
        assert publisher.must_prepare(changed, 1) == is_prepared
        assert not publisher.must_prepare(apply_records(publisher.image, ()), 1)


def test_addresses_and_their_default() -> None:
    """P-274."""
    quotas = quotas_of(
        record_of("connection_creation_rate", 5.0, ip="127.0.0.1"),
        record_of("connection_creation_rate", 7.0, ip="0:0:0:0:0:0:0:1"),
    )
    assert quotas.connection_limit("127.0.0.1") == 5
    assert quotas.connection_limit("::1") == 7
    assert quotas.connection_limit("127.0.0.2") is None
    quotas.use(finished(node_quotas.quotas_of([record_of("connection_creation_rate", 2.0, ip=None)])))
    assert quotas.connection_limit("127.0.0.1") == 2


class Resolver(trio.abc.HostnameResolver):
    """The names of a network; each look-up takes a second. `asked` has the names that were looked up."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, *rest: Any) -> Any:
        await trio.sleep(1)
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        if name not in self.addresses:
            raise socket.gaierror
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in self.addresses[name]]
        return [
            (family, 0, 0, "", (address, 0)) for family, address in zip(families, self.addresses[name], strict=True)
        ]

    async def getnameinfo(self, *rest: Any) -> Any:
        raise AssertionError


@contextmanager
def names(**addresses: list[str]) -> Iterator[Resolver]:
    resolver = Resolver(**addresses)
    before = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        yield resolver
    finally:
        trio.socket.set_custom_hostname_resolver(before)


async def test_p274_host_names_are_resolved_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    """P-274: when their quota is set or changed; all other quotas have an effect at once."""
    switch = QuotaSwitch(BrokerConfig.from_properties({}))
    key = "connection_creation_rate"
    with names(db=["::5", "10.0.0.5", "10.0.0.6"]) as resolver:
        first = altered(EMPTY_IMAGE, (("ip", "db"),), **{key: 3.0})
        first = altered(first, (("ip", "10.0.0.7"),), **{key: 4.0})
        first = altered(first, (("ip", "nobody"),), **{key: 5.0})
        switch.apply(None, first)
        quotas = switch.active
        assert quotas is not None
        async with trio.open_nursery() as nursery:
            switch.begin(nursery)
            assert (quotas.connection_limit("10.0.0.5"), quotas.connection_limit("10.0.0.7")) == (None, 4)
        # Java prefers IPv4, and Kafka takes the first address.
        assert [quotas.connection_limit(f"10.0.0.{n}") for n in (5, 6)] == [3, None]
        assert quotas.connection_limit("::5") is None
        assert "nobody" in caplog.text
        async with trio.open_nursery() as nursery:
            switch.begin(nursery)
            resolver.asked.clear()
            second = altered(first, (("user", "alice"),), producer_byte_rate=1.0)
            switch.apply(first, second)
            await trio.testing.wait_all_tasks_blocked()
            assert (resolver.asked, quotas.connection_limit("10.0.0.5")) == ([], 3)
            resolver.addresses["db"] = ["10.0.0.6"]
            third = altered(second, (("ip", "db"),), **{key: 6.0})
            switch.apply(second, third)
            assert quotas.connection_limit("10.0.0.5") == 6
            await trio.sleep(2)
            assert [quotas.connection_limit(f"10.0.0.{n}") for n in (5, 6)] == [None, 6]
            fourth = altered(third, (("ip", "db"),), **{key: 7.0})
            switch.apply(third, fourth)
            switch.apply(fourth, altered(fourth, (("ip", "db"),), **{key: None}))
            await trio.sleep(2)
            assert [quotas.connection_limit(f"10.0.0.{n}") for n in (5, 6)] == [None, None]


def test_windows_are_those_of_the_settings() -> None:
    """P-267, P-272."""
    quotas = quotas_of(
        record_of("producer_byte_rate", 100.0, user="alice"),
        record_of("controller_mutation_rate", 1.0, user="alice"),
        quota_window_num="3",
        quota_window_size_seconds="2",
        controller_quota_window_num="4",
        controller_quota_window_size_seconds="5",
    )
    # Two whole windows of two seconds: 400 bytes are within the limit.
    assert quotas.produce.record("alice", "", 400, NOW_MS) == 0
    assert quotas.produce.record("alice", "", 100, NOW_MS) == 1000
    assert quotas.produce.most_at_once("alice", "") == 400
    # Four windows of five seconds.
    assert quotas.mutations.charge("alice", "", 20, NOW_MS, is_strict=True) == 0
    assert quotas.mutations.charge("alice", "", 1, NOW_MS, is_strict=True) == 0
    assert quotas.mutations.charge("alice", "", 1, NOW_MS, is_strict=True) == 1000


def test_throttles_by_time_last_at_most_a_window() -> None:
    """P-270."""
    quotas = quotas_of(record_of("request_percentage", 1.0, user="alice"))
    assert quotas.request.record("alice", "", 100_000, NOW_MS) == 1000


def test_a_strict_quota_refuses_and_a_permissive_one_only_delays() -> None:
    """P-272, P-273."""
    mutations = MutationQuotas(WINDOWS)
    mutations.limits.set("alice", None, 1.0)
    assert mutations.charge("alice", "", 31, NOW_MS, is_strict=True) == 0
    assert mutations.charge("alice", "", 5, NOW_MS, is_strict=True) == 20_000
    assert mutations.charge("alice", "", 5, NOW_MS, is_strict=True) == 20_000
    assert mutations.charge("alice", "", 5, NOW_MS, is_strict=False) == 25_000
    assert mutations.charge("bob", "", 500, NOW_MS, is_strict=True) == 0


def test_rates_of_idle_clients_are_dropped() -> None:
    """A hostile client may use a new client id for each request."""
    rates = MeasuredRates(WINDOWS)
    rates.limits = ClientLimits()
    rates.limits.set("alice", None, 1000.0)
    rates.limits.set("bob", None, 1000.0)
    mutations = MutationQuotas(WINDOWS)
    mutations.limits = rates.limits
    rates.record("alice", "", 5, NOW_MS)
    mutations.charge("alice", "", 5, NOW_MS, is_strict=True)
    for user in ("bob",):
        rates.record(user, "", 5, NOW_MS + 20_000)
        mutations.charge(user, "", 5, NOW_MS + 20_000, is_strict=True)
    assert len(rates) == len(mutations) == 1


def test_clients_without_a_limit_are_not_measured() -> None:
    rates = MeasuredRates(WINDOWS)
    rates.limits.set("alice", None, 1000.0)
    assert rates.record("bob", "app", 1e9, NOW_MS) == 0
    rates.count("bob", "app", 1e9, NOW_MS)
    assert len(rates) == 0
    assert rates.most_at_once("bob", "app") == UNLIMITED_BYTES
