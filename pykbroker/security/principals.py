"""Interface of a principal builder: a Python class that `principal.builder.class=module:Class` names.

Without one a principal is ``User:`` and the name of the user that has logged in, as by Kafka's default builder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pykbroker.named_tuple import NamedTuple

CERTIFICATE = "SSL"
"""Mechanism of a client that has no login: its certificate, if it has one, gives the principal."""

PLAINTEXT = "PLAINTEXT"
"""Mechanism of a client on a listener with neither TLS nor SASL."""


class AuthenticationContext(NamedTuple):
    """A client that has logged in, or has connected to a listener without SASL.

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
    """A user's principal builder, with its failures turned into refused logins."""

    def __init__(self, builder: PrincipalBuilder) -> None:
        self._builder = builder

    def build(self, context: AuthenticationContext) -> str:
        """As `PrincipalBuilder.build`.

        Raises:
            PrincipalBuilderFailed: the login is refused.
        """
        try:
            principal = self._builder.build(context)
        except Exception as error:
            raise PrincipalBuilderFailed(f"{type(self._builder).__name__} has refused {context.principal}") from error
        if not isinstance(principal, str) or not all(principal.partition(":")[::2]):
            raise PrincipalBuilderFailed(f"{type(self._builder).__name__} has returned {principal!r}")
        return principal
