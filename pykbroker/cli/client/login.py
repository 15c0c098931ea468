"""SASL settings of `--command-config`, for the client library of the command line.

The login is that of Kafka's tools: a mechanism, and the options of its login module in `sasl.jaas.config`.
"""

from __future__ import annotations

import importlib.util
import os
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pykbroker.config.jaas import jaas_options
from pykbroker.config.values import NODE_MECHANISMS, NodeLogin
from pykbroker.security.sasl_mechanism import InvalidCredentials
from pykbroker.security.scram import TOKEN_AUTH, ScramLogin

if TYPE_CHECKING:
    from collections.abc import Mapping

NONCE_BYTES = 18


def login_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Turns Kafka's settings of a login into the client library's.

    With GSSAPI and a key table the environment of this process is changed, where MIT's library looks for both.

    Raises:
        ValueError: a setting is missing or has an unsupported value; the text says which, and what is expected.
    """
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in NODE_MECHANISMS:
        raise ValueError(f"sasl.mechanism={mechanism}: expected one of {', '.join(NODE_MECHANISMS)}")
    options = jaas_options(properties.get("sasl.jaas.config", ""))
    found: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "GSSAPI":
        return found | _kerberos_settings(properties, options)
    if mechanism == "OAUTHBEARER":
        return found | _oauth_settings(properties, options)
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"sasl.jaas.config has no {missing[0]}")
    if mechanism != "PLAIN":
        _use_own_scram(mechanism, is_token=options.get(TOKEN_AUTH, "").lower() == "true")
    return found | {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _use_own_scram(mechanism: str, *, is_token: bool) -> None:
    """Replaces the client library's SCRAM in this process.

    The library's takes any number of iterations from a server, also one for which a password is easily found, does not
    quote user names, and cannot log in by delegation tokens.
    """
    from kafka.errors import SaslAuthenticationFailedError
    from kafka.net.sasl import register_sasl_mechanism
    from kafka.net.sasl.abc import SaslMechanism

    class Scram(SaslMechanism):  # type: ignore[misc]  # it has no types
        def __init__(self, **config: Any) -> None:
            user, password = config["sasl_plain_username"], config["sasl_plain_password"]
            self._login = ScramLogin(mechanism, user, password, token_hex(NONCE_BYTES), is_token=is_token)
            self._next = self._login.first()
            self._received = 0

        def auth_bytes(self) -> bytes:
            return self._next

        def receive(self, auth_bytes: bytes) -> None:
            try:
                if self._received:
                    self._login.check(auth_bytes)
                else:
                    self._next = self._login.final(auth_bytes)
            except InvalidCredentials as error:
                raise SaslAuthenticationFailedError(str(error)) from error
            self._received += 1

        def is_done(self) -> bool:
            return self._received > 1

        is_authenticated = is_done

    register_sasl_mechanism(mechanism, Scram, overwrite=True)


def _kerberos_settings(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """The service; tickets are those of the key table, or of the ticket cache of the user.

    If a key table has several principals, MIT's library takes the first, whatever `principal` says.
    """
    service = properties.get("sasl.kerberos.service.name") or options.get("serviceName")
    if not service:
        raise ValueError(
            "sasl.kerberos.service.name is missing: the first part of the brokers' principal, such as kafka"
        )
    if importlib.util.find_spec("gssapi") is None:
        raise ValueError("sasl.mechanism=GSSAPI: the package gssapi is missing: pip install 'pykbroker[gssapi]'")
    if options.get("useKeyTab", "").lower() == "true":
        key_table = options.get("keyTab", "")
        if not os.access(key_table, os.R_OK):
            raise ValueError(f"sasl.jaas.config: keyTab={key_table}: no such file, or it may not be read")
        os.environ["KRB5_CLIENT_KTNAME"] = f"FILE:{key_table}"
        if options.get("useTicketCache", "").lower() != "true":
            # A ticket of another principal in the user's cache would come before the key table.
            os.environ["KRB5CCNAME"] = "MEMORY:pykbroker"
    return {"sasl_kerberos_service_name": service}


def _oauth_settings(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """A provider of tokens from a file, from an OAuth server, or of unsecured ones; the first token is fetched here."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    from pykbroker.security.oauth_login import extensions_of, fetch_token
    from pykbroker.wall_clock import SystemWallClock

    settings = {key: text for key, text in properties.items() if key.startswith("sasl.oauthbearer.")}
    login = NodeLogin("OAUTHBEARER", options, settings)
    tokens = [fetch_token(login, SystemWallClock().now_ms())]

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
        def token(self) -> str:
            token = tokens.pop() if tokens else fetch_token(login, SystemWallClock().now_ms())
            return token.text

        def extensions(self) -> dict[str, str]:
            return extensions_of(login)

    return {"sasl_oauth_token_provider": TokenProvider()}
