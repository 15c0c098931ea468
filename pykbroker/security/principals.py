"""Interface of a principal builder: a Python class that `principal.builder.class=module:Class` names.

Without one a principal is ``User:`` and the name of the user that has logged in, as by Kafka's default builder.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from pykbroker.named_tuple import NamedTuple

CERTIFICATE = "SSL"
"""Mechanism of a client that has no login: its certificate, if it has one, gives the principal."""

PLAINTEXT = "PLAINTEXT"
"""Mechanism of a client on a listener with neither TLS nor SASL."""


NO_LISTENERS: Mapping[str, None] = MappingProxyType({})


class AuthenticationContext(NamedTuple):
    """A client that has logged in, or has connected to a listener without SASL.

    Attributes:
        listener_name, client_host: the listener, and the client's address.
        mechanism: the SASL mechanism; without one `CERTIFICATE` on a listener with TLS, else `PLAINTEXT`.
        principal: the principal that the connection would have without a builder, such as ``User:alice``.
        extensions: SASL extensions of the login (OAUTHBEARER).
        authorization_id: the user's name as the mechanism gives it: for GSSAPI the whole principal, such as
            ``alice/host@REALM``; "" without a login.
    """

    listener_name: str
    client_host: str
    mechanism: str
    principal: str
    extensions: Mapping[str, str]
    authorization_id: str = ""


class PrincipalBuilder(Protocol):
    """A class for `principal.builder.class`. It is constructed once with the settings of the node, by key."""

    def build(self, context: AuthenticationContext) -> str:
        """The principal of the connection, as ``Type:name``. An exception refuses the login.

        It must return at once: the thread that calls it serves all clients.
        """
        ...


class PrincipalBuilderFailed(Exception):
    """The builder has raised, or has returned something that is not a principal."""


class CheckedPrincipalBuilder:
    """A user's principal builders, with their failures turned into refused logins.

    Args:
        builder: that of every listener without one of its own; None for Kafka's default one.
        of_listeners: those of listeners that have their own (P-313), by the listener's name.
    """

    def __init__(
        self, builder: PrincipalBuilder | None, of_listeners: Mapping[str, PrincipalBuilder | None] = NO_LISTENERS
    ) -> None:
        self._builder = builder
        self._of_listeners = of_listeners

    def with_listener(self, listener_name: str, builder: PrincipalBuilder | None) -> CheckedPrincipalBuilder:
        """These builders, and the one of a further listener."""
        return CheckedPrincipalBuilder(self._builder, {**self._of_listeners, listener_name: builder})

    def is_for(self, listener_name: str) -> bool:
        """True if a class of the user makes the principals of this listener."""
        return self._of_listeners.get(listener_name, self._builder) is not None

    def build(self, context: AuthenticationContext) -> str:
        """As `PrincipalBuilder.build`.

        Raises:
            PrincipalBuilderFailed: the login is refused.
        """
        builder = self._of_listeners.get(context.listener_name, self._builder)
        if builder is None:
            return context.principal
        try:
            principal = builder.build(context)
        except Exception as error:
            raise PrincipalBuilderFailed(f"{type(builder).__name__} has refused {context.principal}") from error
        if not isinstance(principal, str) or not all(principal.partition(":")[::2]):
            raise PrincipalBuilderFailed(f"{type(builder).__name__} has returned {principal!r}")
        return principal
