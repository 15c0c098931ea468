"""Services of a broker's and of a controller's listener in one, for handlers that are called without a node."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.requests.context import BrokerServices, ControllerServices

_OPTIONAL = (
    "authorizer",
    "principal_builder",
    "tls",
    "channel",
    "broker_clients",
    "directory_moves",
    "replicas",
    "leader_throttle",
    "peers",
    "active_controller",
    "repeated_produce",
)


class Services(BrokerServices, ControllerServices):
    """Parts by name; those that are optional are None where they are not given."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(dict.fromkeys(_OPTIONAL) | {"quotas": QuotaSwitch()} | parts)

    def replaced(self, **parts: Any) -> Self:
        """The same services but for these parts."""
        services = copy(self)
        vars(services).update(parts)
        return services
