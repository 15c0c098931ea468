"""OAUTHBEARER of a listener, from its settings: signed tokens, or unsecured ones, which are Kafka's default."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.jaas import jaas_options
from pykbroker.config.parsing import find_setting_of_mechanism
from pykbroker.config.values import default_text
from pykbroker.errors import CloseConnection
from pykbroker.named_tuple import NamedTuple
from pykbroker.security.oauth_keys import KeySet, KeySetSettings, fetch_document, https_context
from pykbroker.security.oauth_tokens import (
    SignedTokenRules,
    UnsecuredTokenRules,
    key_id,
    validate_signed,
    validate_unsecured,
)
from pykbroker.security.oauthbearer import OAuthExchange, parse_initial_response
from pykbroker.security.sasl_mechanism import InvalidCredentials

if TYPE_CHECKING:
    from pykbroker.run_in_thread import RunInThread

log = logging.getLogger(__name__)

_PREFIX = "sasl.oauthbearer."
HANDLER_KEY = "sasl.server.callback.handler.class"
SIGNED_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
VALIDATOR_KEY = f"{_PREFIX}jwt.validator.class"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
)


class OAuthMechanism(NamedTuple):
    """Function that makes the exchange of a login, and one to be awaited before each token.

    The second is None if there is nothing to wait for.
    """

    make: Callable[[], OAuthExchange]
    prepare: Callable[[bytes], Awaitable[None]] | None


def oauth_mechanism(
    texts: Mapping[str, str],
    listener_name: str,
    now_ms: Callable[[], int],
    run_in_thread: RunInThread,
) -> OAuthMechanism:
    """The mechanism of a listener.

    Raises:
        ConfigError: the settings name an unknown handler or validator, or a handler of signed tokens without
            `jwks.endpoint.url`; the trust store for that URL cannot be read; or PyJWT is not installed.
    """

    def text(key: str) -> str:
        _, given = find_setting_of_mechanism(listener_name, "OAUTHBEARER", key, texts)
        return (default_text(key) if given is None else given) or ""

    url, handler = text(f"{_PREFIX}jwks.endpoint.url"), text(HANDLER_KEY)
    if handler and handler not in (*SIGNED_HANDLERS, UNSECURED_HANDLER):
        raise ConfigError(HANDLER_KEY, handler, f"only {SIGNED_HANDLERS[0]} and {UNSECURED_HANDLER} are available")
    if handler in SIGNED_HANDLERS and not url:
        raise ConfigError(f"{_PREFIX}jwks.endpoint.url", "", f"must be set for {handler}")
    if not url or handler == UNSECURED_HANDLER:
        log.warning(
            "listener %s accepts OAUTHBEARER tokens without a signature: any client can log in as any user. "
            "Set sasl.oauthbearer.jwks.endpoint.url to require signed tokens.",
            listener_name,
        )
        return _unsecured(jaas_options(text("sasl.jaas.config")), now_ms)
    validator = text(VALIDATOR_KEY)
    if validator not in VALIDATORS:
        raise ConfigError(VALIDATOR_KEY, validator, f"only {VALIDATORS[0]} and {VALIDATORS[1]} are available")
    rules = SignedTokenRules(
        [part.strip() for part in text(f"{_PREFIX}expected.audience").split(",") if part.strip()],
        text(f"{_PREFIX}expected.issuer") or None,
        int(text(f"{_PREFIX}clock.skew.seconds")),
        text(f"{_PREFIX}scope.claim.name"),
        text(f"{_PREFIX}sub.claim.name"),
    )
    context = https_context(jaas_options(text("sasl.jaas.config")))
    times = (f"{_PREFIX}jwks.endpoint.{key}" for key in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms"))
    settings = KeySetSettings(url, *(int(text(key)) for key in times))
    return _signed(KeySet(settings, run_in_thread, partial(fetch_document, context=context)), rules, now_ms)


def _unsecured(options: Mapping[str, str], now_ms: Callable[[], int]) -> OAuthMechanism:
    rules = UnsecuredTokenRules.from_options(options)
    return OAuthMechanism(
        lambda: OAuthExchange(lambda token: validate_unsecured(token, rules, now_ms()), _log_refusal), None
    )


def _signed(keys: KeySet, rules: SignedTokenRules, now_ms: Callable[[], int]) -> OAuthMechanism:
    try:
        import jwt  # noqa: F401  the extra may be missing, which the start has to tell
    except ImportError:
        raise ConfigError(
            "sasl.enabled.mechanisms", "OAUTHBEARER", "needs PyJWT: pip install pykbroker[oauth]"
        ) from None

    async def prepare(message: bytes) -> None:
        try:
            token = parse_initial_response(message).token
        except (InvalidCredentials, CloseConnection):
            return
        await keys.prepare(key_id(token))

    def make() -> OAuthExchange:
        return OAuthExchange(lambda token: validate_signed(token, keys.keys, rules, now_ms()), _log_refusal)

    return OAuthMechanism(make, prepare)


def _log_refusal(reason: str) -> None:
    log.info("refusing an OAUTHBEARER token: %s", reason)
