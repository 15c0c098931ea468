"""All client quotas of one node, as the cluster's metadata has them, with the rates that are measured for them.

It is made when the first quota is set; a node without quotas does not load this module.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.client_quotas import CLIENT_ID, IP, USER
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.quotas.host_names import literal_address
from pykbroker.quotas.limits import DEFAULT, ClientLimits, Name
from pykbroker.quotas.measured import MeasuredRates, MutationQuotas
from pykbroker.quotas.rates import QuotaWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord

    Resolve = Callable[[str, Callable[[str | None], None]], None]

log = logging.getLogger(__name__)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class Quotas(NamedTuple):
    """All quotas of the metadata.

    Attributes:
        limits: limits of clients by the key of the quota.
        address_limits, host_limits: limits of `CONNECTION_CREATION_RATE` for single addresses, and for host names.
        address_default: that for any other address; None for no limit.
    """

    limits: dict[str, ClientLimits]
    address_limits: dict[str, int]
    host_limits: dict[str, int]
    address_default: int | None


def quotas_of(records: Iterable[ClientQuotaRecord]) -> Steps[Quotas]:
    """The quotas of the metadata's records, in steps."""
    limits = {
        key: ClientLimits()
        for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
    }
    address_limits: dict[str, int] = {}
    host_limits: dict[str, int] = {}
    address_default: int | None = None
    for count, record in enumerate(records, 1):
        if not count % PIECE:
            yield
        entity = {part.entity_type: part.entity_name for part in record.entity}
        if IP in entity:
            name, limit = entity[IP], int(record.value)
            if record.key != CONNECTION_CREATION_RATE:
                continue
            if name is None:
                address_default = limit
            elif (address := literal_address(name)) is None:
                host_limits[name] = limit
            else:
                address_limits[address] = limit
        elif record.key in limits:
            limits[record.key].set(_name(entity, USER), _name(entity, CLIENT_ID), record.value)
        else:
            log.warning("the quota %s is unknown and has no effect", record.key)
    return Quotas(limits, address_limits, host_limits, address_default)


class NodeQuotas:
    """Quotas of one node.

    Args:
        config: the windows.
        resolve: resolves a host name in the background.

    Attributes:
        produce, fetch: bytes per second of requests and responses.
        request: percentage of the time of this process's one thread; throttle times are at most one window.
        mutations: partitions created or deleted per second.
        address_limits: new connections per second of single addresses.
        address_default: new connections per second of any other address; None for no limit.
        windows: windows of all rates but that of mutations.
    """

    def __init__(self, config: BrokerConfig, resolve: Resolve) -> None:
        self.windows = QuotaWindows(config.quotas.window_num, config.quotas.window_size_seconds * 1000)
        self.produce = MeasuredRates(self.windows)
        self.fetch = MeasuredRates(self.windows)
        self.request = MeasuredRates(self.windows, throttle_max_ms=self.windows.size_ms)
        self.mutations = MutationQuotas(
            QuotaWindows(config.quotas.controller_window_num, config.quotas.controller_window_size_seconds * 1000)
        )
        self.address_limits: dict[str, int] = {}
        self.address_default: int | None = None
        self._resolve = resolve
        # Limit and address of each host name; the address is None while it is not known.
        self._names: dict[str, tuple[int, str | None]] = {}

    def use(self, quotas: Quotas) -> None:
        """Replaces all limits; what was measured stays."""
        self.produce.limits = quotas.limits[PRODUCER_BYTE_RATE]
        self.fetch.limits = quotas.limits[CONSUMER_BYTE_RATE]
        self.request.limits = quotas.limits[REQUEST_PERCENTAGE]
        self.mutations.limits = quotas.limits[CONTROLLER_MUTATION_RATE]
        self.address_limits = dict(quotas.address_limits)
        self.address_default = quotas.address_default
        self._set_names(quotas.host_limits)

    def connection_limit(self, host: str) -> int | None:
        """New connections per second that an address may open; None for any number."""
        return self.address_limits.get(host, self.address_default)

    def _set_names(self, names: Mapping[str, int]) -> None:
        """Takes over the limits of host names. As in Kafka a name is resolved when its limit is set or changed."""
        before, self._names = self._names, {}
        for name, limit in names.items():
            known_limit, address = before.get(name, (None, None))
            self._names[name] = limit, address
            if address is not None:
                self.address_limits[address] = limit
            if limit != known_limit:
                self._resolve(name, partial(self._set_resolved, name))

    def _set_resolved(self, name: str, address: str | None) -> None:
        if name not in self._names:
            # Its limit was removed meanwhile.
            return
        limit, before = self._names[name]
        self._names[name] = limit, address
        if before != address and before is not None:
            self.address_limits.pop(before, None)
        if address is not None:
            self.address_limits[address] = limit


def _name(names: Mapping[str, str | None], kind: str) -> Name | None:
    """A name, `DEFAULT` for the default entity, None if the quota does not depend on entities of this type."""
    if kind not in names:
        return None
    name = names[kind]
    return DEFAULT if name is None else name
