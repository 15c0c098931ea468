"""GSSAPI of a listener, from its settings: the login module's key table and principal, and the rules for user names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.jaas import KERBEROS_MODULE, LoginModule
from pykbroker.named_tuple import NamedTuple
from pykbroker.security.kerberos import GSSAPI, KerberosExchange, SecurityContext
from pykbroker.security.kerberos_names import UserNames
from pykbroker.security.sasl_mechanism import Authenticated, Exchange

if TYPE_CHECKING:
    from pykbroker.run_in_thread import RunInThread

RULES_KEY = "sasl.kerberos.principal.to.local.rules"
SERVICE_KEY = "sasl.kerberos.service.name"
JAAS_KEY = "sasl.jaas.config"
MECHANISMS_KEY = "sasl.enabled.mechanisms"


class Kerberos(NamedTuple):
    """The machine's Kerberos.

    Attributes:
        open: returns the function that makes the security context of a login, for a principal and the path of a key
            table ("" for the machine's).
        default_realm: realm of the machine's configuration; "" if it names none.
    """

    open: Callable[[str, str], Callable[[], SecurityContext]]
    default_realm: str


class KerberosMechanism(NamedTuple):
    """GSSAPI as a listener uses it.

    Attributes:
        make: makes the exchange of one login.
        prepare: awaited before each token is evaluated.
    """

    make: Callable[[], Exchange]
    prepare: Callable[[Exchange, bytes], Awaitable[None]]


def kerberos_mechanism(
    module: LoginModule,
    property_of: Callable[[str], str | None],
    run_in_thread: RunInThread,
    kerberos: Callable[[], Kerberos] | None = None,
) -> KerberosMechanism:
    """The mechanism of a listener.

    Args:
        module: the login module.
        property_of: the listener's text of a key.
        run_in_thread: runs blocking work in a thread.
        kerberos: the machine's Kerberos; by default MIT's library.

    Raises:
        ConfigError: the settings have no usable login module, service name or rules, the key table cannot be used, or
            the package gssapi is not installed.
    """
    options = _checked_options(module, property_of(SERVICE_KEY))
    machine = (kerberos or machine_kerberos)()
    text = property_of(RULES_KEY) or ""
    try:
        user_names = UserNames(BROKER_CONFIGS[RULES_KEY].parse(RULES_KEY, text), machine.default_realm)
    except ValueError as error:
        raise ConfigError(RULES_KEY, text, str(error)) from None
    new_context = machine.open(options["principal"], options.get("keyTab", ""))

    def make() -> Exchange:
        return EvaluatedInThread(partial(_exchange, new_context, user_names))

    async def prepare(exchange: Exchange, token: bytes) -> None:
        assert isinstance(exchange, EvaluatedInThread)
        await run_in_thread(partial(exchange.compute, token))

    return KerberosMechanism(make, prepare)


def _exchange(new_context: Callable[[], SecurityContext], user_names: UserNames) -> KerberosExchange:
    return KerberosExchange(new_context(), user_names)


class EvaluatedInThread:
    """An exchange that a thread evaluates: `compute` there, then `evaluate` on the loop with the same token.

    Args:
        make: makes the exchange; called by the thread.
    """

    def __init__(self, make: Callable[[], Exchange]) -> None:
        self._make = make
        self._exchange: Exchange | None = None
        self._answer: bytes | Exception = b""
        self.result: Authenticated | None = None

    def compute(self, token: bytes) -> None:
        """Evaluates a token; a failure is kept for `evaluate`."""
        try:
            if self._exchange is None:
                self._exchange = self._make()
            self._answer = self._exchange.evaluate(token)
        except Exception as error:
            self._answer = error

    def evaluate(self, token: bytes) -> bytes:
        """The answer that was computed for the token; raises as the exchange does."""
        if isinstance(self._answer, Exception):
            raise self._answer
        assert self._exchange is not None
        self.result = self._exchange.result
        return self._answer


def _checked_options(module: LoginModule, service_name: str | None) -> Mapping[str, str]:
    """The options of the login module.

    Raises:
        ConfigError: they are not those of a server that has a key table. Apache Kafka starts without some of them, and
            then refuses every login.
    """
    if module.name != KERBEROS_MODULE:
        raise ConfigError(JAAS_KEY, "", f"GSSAPI needs the login module {KERBEROS_MODULE}")
    options = module.options
    for name in ("useKeyTab", "storeKey"):
        if options.get(name, "").lower() != "true":
            raise ConfigError(JAAS_KEY, "", f"the login module of GSSAPI needs {name}=true: a server has a key table")
    if not options.get("principal"):
        raise ConfigError(JAAS_KEY, "", 'the login module of GSSAPI needs principal="service/host@REALM"')
    own = options.get("serviceName")
    if own and service_name and own != service_name:
        raise ConfigError(
            SERVICE_KEY,
            service_name,
            f"Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {own}, value in Kafka "
            f"config {service_name}",
        )
    if not own and not service_name:
        raise ConfigError(SERVICE_KEY, "", "No serviceName defined in either JAAS or Kafka config")
    return options


def missing_package(error: Exception) -> str:
    """Reason of a refusal where the import of gssapi has failed: it says what to install."""
    return (
        "needs the package gssapi: pip install 'pykbroker[gssapi]', which compiles it against MIT's Kerberos (on "
        f"Debian: apt install gcc python3-dev libkrb5-dev); {error}"
    )


def machine_kerberos() -> Kerberos:
    """MIT's library.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        from pykbroker.security.kerberos_context import Acceptor, KeyTableUnusable, default_realm
    except (ImportError, OSError) as error:
        raise ConfigError(MECHANISMS_KEY, GSSAPI, missing_package(error)) from None

    def open_key_table(
        principal: str, key_table: str
    ) -> Callable[[], SecurityContext]:  # pragma: no cover: needs the package gssapi
        try:
            return Acceptor(principal, key_table).new_context
        except KeyTableUnusable as error:
            where = key_table or "the machine's key table"
            raise ConfigError(JAAS_KEY, "", f"GSSAPI has no key of {principal} in {where}: {error}") from None

    return Kerberos(open_key_table, default_realm())  # pragma: no cover: needs the package gssapi
