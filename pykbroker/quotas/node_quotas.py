"""All client quotas of one node, as the cluster's metadata has them, with the rates that are measured for them.

It is made when the first quota is set; a node without quotas does not load this module.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING

from pykbroker.quotas.limits import DEFAULT, ClientLimits, Name
from pykbroker.quotas.measured import MeasuredRates, MutationQuotas
from pykbroker.quotas.rates import QuotaWindows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord

log = logging.getLogger(__name__)

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class NodeQuotas:
    """Quotas of one node.

    Attributes:
        produce, fetch: bytes per second of requests and responses.
        request: percentage of the time of this process's one thread; throttle times are at most one window.
        mutations: partitions created or deleted per second.
        address_limits: new connections per second of single addresses.
        address_default: new connections per second of any other address; None for no limit.
        windows: windows of all rates but that of mutations.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.windows = QuotaWindows(config.quotas.window_num, config.quotas.window_size_seconds * 1000)
        self.produce = MeasuredRates(self.windows)
        self.fetch = MeasuredRates(self.windows)
        self.request = MeasuredRates(self.windows, throttle_max_ms=self.windows.size_ms)
        self.mutations = MutationQuotas(
            QuotaWindows(config.quotas.controller_window_num, config.quotas.controller_window_size_seconds * 1000)
        )
        self.address_limits: Mapping[str, int] = {}
        self.address_default: int | None = None

    def set_all(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Replaces all limits by those of these records; what was measured stays."""
        limits = {
            key: ClientLimits()
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
        }
        address_limits: dict[str, int] = {}
        self.address_default = None
        for record in records:
            names = {part.entity_type: part.entity_name for part in record.entity}
            if IP in names:
                if record.key == CONNECTION_CREATION_RATE:
                    self._set_address(address_limits, names[IP], int(record.value))
            elif record.key in limits:
                limits[record.key].set(_name(names, USER), _name(names, CLIENT_ID), record.value)
            else:
                log.warning("the quota %s is not known and has no effect", record.key)
        self.produce.limits = limits[PRODUCER_BYTE_RATE]
        self.fetch.limits = limits[CONSUMER_BYTE_RATE]
        self.request.limits = limits[REQUEST_PERCENTAGE]
        self.mutations.limits = limits[CONTROLLER_MUTATION_RATE]
        self.address_limits = address_limits

    def connection_limit(self, host: str) -> int | None:
        """New connections per second that an address may open; None for any number."""
        return self.address_limits.get(host, self.address_default)

    def _set_address(self, limits: dict[str, int], name: str | None, limit: int) -> None:
        if name is None:
            self.address_default = limit
            return
        address = resolved(name)
        if address is None:
            log.error("the quota of the address %s has no effect: the name cannot be resolved", name)
        else:
            limits[address] = limit


def resolved(name: str) -> str | None:
    """An address in the form that sockets have it, for an address or a host name; None for an unknown name."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        # As in Kafka the first address of a name counts; Java prefers IPv4.
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def _name(names: Mapping[str, str | None], kind: str) -> Name | None:
    """A name, `DEFAULT` for the default entity, None if the quota does not depend on entities of this type."""
    if kind not in names:
        return None
    name = names[kind]
    return DEFAULT if name is None else name
