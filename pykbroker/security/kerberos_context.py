"""Security contexts of MIT's Kerberos library, by the package `gssapi`. Nothing else imports it.

All of this may block for moments, at the key table and at the replay cache, which are files. The network is not asked.
"""

from __future__ import annotations

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
        store = {"keytab": key_table if ":" in key_table else f"FILE:{key_table}"} if key_table else None
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


class AcceptorContext:
    """A `kerberos.SecurityContext`."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self._context = context
        self.is_established = False

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


def default_realm() -> str:
    """The realm of the machine's Kerberos configuration; "" if it names none."""
    try:
        name = gssapi.Name("any", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).rpartition("@")[2]


def _text(error: GSSError) -> str:
    return str(error.gen_message()).replace("\n", " ")
