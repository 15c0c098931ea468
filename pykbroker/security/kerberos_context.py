"""Security contexts of MIT's Kerberos library, by the package `gssapi`. Nothing else imports it.

All of this may block for moments: a server's side at the key table and at the replay cache, which are files, a client's
side also at the KDC.
"""

# pragma: no cover of this file: it needs the package gssapi and a KDC, as in interop_tests/test_kerberos.py.

from __future__ import annotations

import ipaddress
import socket

import gssapi
from gssapi.exceptions import GSSError

from pykbroker.security.kerberos import ContextFailed


class KeyTableUnusable(Exception):
    """The key table cannot be read, or has no key of the principal; the text is the library's."""


class Acceptor:
    """The key of a service in a key table. The library reads the file for each login, so that keys may be replaced.

    Args:
        principal: name of the service, such as ``kafka/broker.example.com@REALM``.
        key_table: path of the file; "" for the one of the machine's Kerberos configuration.

    Raises:
        KeyTableUnusable: there is no such key.
    """

    def __init__(self, principal: str, key_table: str) -> None:
        store = {"keytab": _file(key_table)} if key_table else None
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                mechs=[gssapi.MechType.kerberos],
                usage="accept",
                store=store,
            )
        except GSSError as error:
            raise KeyTableUnusable(_text(error)) from None

    def new_context(self) -> AcceptorContext:
        """The security context of one login."""
        return AcceptorContext(gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class _Context:
    """Both sides of a security context."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self._context = context
        self.is_established = False

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except GSSError as error:
            raise ContextFailed(_text(error)) from None

    def unwrap(self, token: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(token).message)
        except GSSError as error:
            raise ContextFailed(_text(error)) from None


class AcceptorContext(_Context):
    """A `kerberos.SecurityContext`."""

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def accept(self, token: bytes) -> bytes | None:
        try:
            answer = self._context.step(token)
            # An error for which the library has a token to send surfaces here and not in the line above.
            self.is_established = bool(self._context.complete)
        except GSSError as error:
            raise ContextFailed(_text(error)) from None
        return None if answer is None else bytes(answer)


class Initiator:
    """Logins of a principal at services. Tickets are kept in memory, and renewed by its key before they end.

    Args:
        principal: name of the client, such as ``kafka/broker.example.com@REALM``.
        key_table: path of the file with its key; "" for the one of the machine's Kerberos configuration.
    """

    def __init__(self, principal: str, key_table: str) -> None:
        self._principal = principal
        self._store = {"ccache": f"MEMORY:pykbroker-{id(self)}"}
        if key_table:
            self._store["client_keytab"] = _file(key_table)

    def new_context(self, service: str, host: str) -> InitiatorContext:
        """The security context of one login at a service of a host; asks the KDC, and the name service for an address.

        Raises:
            ContextFailed: there is no ticket of the principal.
        """
        kerberos = gssapi.MechType.kerberos
        try:
            credentials = gssapi.Credentials(
                name=gssapi.Name(self._principal, gssapi.NameType.kerberos_principal),
                mechs=[kerberos],
                usage="initiate",
                store=self._store,
            )
            target = gssapi.Name(f"{service}@{_host_name(host)}", gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
            return InitiatorContext(
                gssapi.SecurityContext(name=target, creds=credentials, usage="initiate", mech=kerberos, flags=flags)
            )
        except GSSError as error:
            raise ContextFailed(_text(error)) from None


class InitiatorContext(_Context):
    """A `kerberos_client.ClientContext`."""

    def step(self, token: bytes) -> bytes:
        try:
            answer = self._context.step(token or None)
            self.is_established = bool(self._context.complete)
        except GSSError as error:
            raise ContextFailed(_text(error)) from None
        return bytes(answer or b"")


def default_realm() -> str:
    """The realm of the machine's Kerberos configuration; "" if it names none."""
    try:
        name = gssapi.Name("any", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).rpartition("@")[2]


def _file(key_table: str) -> str:
    return key_table if ":" in key_table else f"FILE:{key_table}"


def _host_name(host: str) -> str:
    """The host name of an address, as Java's clients determine it; any other host unchanged."""
    try:
        ipaddress.ip_address(host)
        return socket.gethostbyaddr(host)[0].lower()
    except (ValueError, OSError):
        return host


def _text(error: GSSError) -> str:
    return str(error.gen_message()).replace("\n", " ")
