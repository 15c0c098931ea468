"""Client's side of SASL/GSSAPI (RFC 4752): this node's logins at other nodes, with the key of its key table (P-320)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pykbroker.config.definitions import ConfigError
from pykbroker.security.kerberos import CHOICE_SIZE_MIN, GSSAPI, NO_SECURITY_LAYER, ContextFailed
from pykbroker.security.kerberos_mechanism import MECHANISMS_KEY, SERVICE_KEY, missing_package

if TYPE_CHECKING:
    from pykbroker.config.values import NodeLogin
    from pykbroker.run_in_thread import RunInThread

CHOICE = bytes([NO_SECURITY_LAYER, 0, 0, 0])


class ClientContext(Protocol):
    """The initiator's side of a GSS-API security context. All methods raise ContextFailed."""

    @property
    def is_established(self) -> bool: ...

    def step(self, token: bytes) -> bytes:
        """The next token for the server; the first one for an empty token."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """A message with a checksum, not encrypted."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The message of a wrapped token."""
        ...


class KerberosLogin:
    """One login as a state machine: `evaluate` makes a token of each answer of the server, until `is_done`.

    Args:
        context: a new security context.
        authorization_id: the principal that logs in.
    """

    def __init__(self, context: ClientContext, authorization_id: str) -> None:
        self._context = context
        self._authorization_id = authorization_id
        self.is_done = False

    def evaluate(self, answer: bytes) -> bytes:
        """The token for an answer, which is empty before the first token.

        Raises:
            ContextFailed: the server is not the one that was asked for, or offers no login without a security layer.
        """
        if not self._context.is_established:
            return self._context.step(answer)
        offer = self._context.unwrap(answer)
        if len(offer) < CHOICE_SIZE_MIN or not offer[0] & NO_SECURITY_LAYER:
            raise ContextFailed("the server requires a security layer, which is not supported")
        self.is_done = True
        return self._context.wrap(CHOICE + self._authorization_id.encode())


class KerberosLogins:
    """The logins of a node by GSSAPI; what may block runs in a thread.

    Args:
        login: principal and key table.
        run_in_thread: runs blocking work in a thread.
        new_context: makes the context for a service on a host; by default with MIT's library, by its key table.

    Raises:
        ConfigError: the package gssapi is not installed.
    """

    def __init__(
        self,
        login: NodeLogin,
        run_in_thread: RunInThread,
        new_context: Callable[[str, str], ClientContext] | None = None,
    ) -> None:
        self._principal = login.options["principal"]
        self._service = login.settings[SERVICE_KEY]
        self._run_in_thread = run_in_thread
        self._new_context = new_context or _machine_contexts(self._principal, login.options.get("keyTab", ""))

    async def new(self, host: str) -> KerberosLogin:
        """A login at the node of a host. Raises ContextFailed."""
        context = await self._run_in_thread(partial(self._new_context, self._service, host))
        return KerberosLogin(context, self._principal)

    async def evaluate(self, login: KerberosLogin, answer: bytes) -> bytes:
        """As `KerberosLogin.evaluate`."""
        return await self._run_in_thread(partial(login.evaluate, answer))


def _machine_contexts(principal: str, key_table: str) -> Callable[[str, str], ClientContext]:
    try:
        from pykbroker.security.kerberos_context import Initiator
    except (ImportError, OSError) as error:
        raise ConfigError(MECHANISMS_KEY, GSSAPI, missing_package(error)) from None
    return Initiator(principal, key_table).new_context  # pragma: no cover: needs the package gssapi
