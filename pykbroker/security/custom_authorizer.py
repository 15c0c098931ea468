"""Interface of an authorizer in Python: a class that `authorizer.class.name=module:Class` names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.acl_codes import OPERATIONS, RESOURCE_TYPES
from pykbroker.security.client_address import java_host_address

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import Acl

log = logging.getLogger(__name__)

SAMPLE_NAME = "hardcode"
"""Name of the resource in a question about any resource of a type, as in Kafka."""


class Action(NamedTuple):
    """An action of a client, in Kafka's words.

    Attributes:
        principal: such as ``User:alice``.
        host: address of the client.
        operation: ``READ``, ``WRITE``, ``DESCRIBE``, ... No operation implies another one.
        resource_type: ``TOPIC``, ``GROUP``, ``CLUSTER``, ``TRANSACTIONAL_ID``, ``DELEGATION_TOKEN`` or ``USER``.
        resource_name: name of the resource; that of the only CLUSTER is ``kafka-cluster``.
    """

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str


class Authorizer(Protocol):
    """A class for `authorizer.class.name`.

    It is constructed once, with the settings of the node by key, and a function that returns the access control
    entries of the cluster, which CreateAcls and DeleteAcls change.
    """

    def allows(self, action: Action) -> bool:
        """True to allow the action. An exception refuses the action, and is logged.

        It must return at once: the thread that calls it serves all clients.
        """
        ...


class CustomAuthorizer:
    """A user's authorizer, in the form that requests need.

    Attributes:
        may_be_asked_again: False, because the user's class may count or log the calls.
    """

    may_be_asked_again: Final = False

    def __init__(
        self,
        authorizer_class: Callable[[Mapping[str, str], Callable[[], Iterable[Acl]]], Authorizer],
        settings: Mapping[str, str],
        acls: Callable[[], Mapping[bytes, Acl]],
    ) -> None:
        self._authorizer = authorizer_class(settings, lambda: acls().values())

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """True if the principal may do the operation from this address; codes as in `protocol.acl_codes`."""
        action = Action(principal, java_host_address(host), OPERATIONS[operation], RESOURCE_TYPES[resource_type], name)
        try:
            return bool(self._authorizer.allows(action))
        except Exception:
            log.exception("the authorizer has failed, %s is refused", action)
            return False

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """True if the principal may do the operation on a resource with an unlikely name (KIP-679)."""
        return self.allows(principal, host, operation, resource_type, SAMPLE_NAME)
