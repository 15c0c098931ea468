"""Tokens of this node for its logins by OAUTHBEARER: from a file, from an OAuth server, or unsecured ones."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.oauth_keys import FETCH_TIMEOUT_S, SIZE_MAX, fetch_document, https_context
from pykbroker.security.oauth_tokens import unsecured_token
from pykbroker.security.oauthbearer import initial_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.config.values import NodeLogin
    from pykbroker.run_in_thread import RunInThread

_PREFIX = "sasl.oauthbearer."
TOKEN_PART = 0.8
"""Part of a token's lifetime for which it is used for further logins."""


class Token(NamedTuple):
    """A token; `lifetime_s` is 0 for one that is fetched again for the next login."""

    text: str
    lifetime_s: float = 0.0


class TokenSource:
    """Tokens of one login; a token of an OAuth server is used for a part of its lifetime.

    Args:
        login: the settings.
        now_ms: the time of day.
        run_in_thread: runs blocking work in a thread.
    """

    def __init__(
        self,
        login: NodeLogin,
        now_ms: Callable[[], int],
        run_in_thread: RunInThread,
    ) -> None:
        self._login = login
        self._now_ms = now_ms
        self._run_in_thread = run_in_thread
        self._token = Token("")
        self._fresh_until_s = 0.0

    async def first_message(self) -> bytes:
        """The first message of a login.

        Raises:
            OSError: there is no token.
        """
        if trio.current_time() >= self._fresh_until_s:
            try:
                self._token = await self._run_in_thread(lambda: fetch_token(self._login, self._now_ms()))
            except ValueError as error:
                raise OSError(f"no token for the login: {error}") from error
            self._fresh_until_s = trio.current_time() + self._token.lifetime_s * TOKEN_PART
        return initial_response(self._token.text, extensions_of(self._login))


def extensions_of(login: NodeLogin) -> dict[str, str]:
    """The extensions that a login sends with its token (RFC 7628, KIP-342)."""
    return {
        name.removeprefix("extension_"): value for name, value in login.options.items() if name.startswith("extension_")
    }


def fetch_token(login: NodeLogin, now_ms: int) -> Token:
    """A token from `sasl.oauthbearer.token.endpoint.url`, or an unsecured one without that. May block.

    Raises:
        ValueError: the settings or the answer of the server are wrong.
        OSError: the file cannot be read, or the server does not answer.
    """
    url = login.settings.get(f"{_PREFIX}token.endpoint.url")
    if not url:
        return Token(unsecured_token(login.options, now_ms))
    if url.startswith("file:"):
        return Token(fetch_document(url).strip())
    answer = _ask(url, login)
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(token, str) or not token:
        raise ValueError(f"{url} has answered without an access_token")
    return Token(token, lifetime_s if isinstance(lifetime_s, int | float) else 0.0)


def _ask(url: str, login: NodeLogin) -> dict[str, Any]:
    """The answer of an OAuth server to a request with the grant type client_credentials."""
    from http.client import HTTPException
    from urllib.parse import quote_plus, urlencode
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise ValueError("sasl.oauthbearer.token.endpoint.url must be an http, https or file URL")
    settings, options = login.settings, login.options
    client = settings.get(f"{_PREFIX}client.credentials.client.id") or options.get("clientId", "")
    secret = settings.get(f"{_PREFIX}client.credentials.client.secret") or options.get("clientSecret", "")
    scope = settings.get(f"{_PREFIX}scope") or options.get("scope", "")
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    if settings.get(f"{_PREFIX}header.urlencode", "").strip().lower() == "true":
        # RFC 6749, 2.3.1; off by default, as in Kafka (KAFKA-16345).
        client, secret = (quote_plus(text, safe="*").replace("~", "%7E") for text in (client, secret))
    headers = {
        "Authorization": f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    request = Request(url, urlencode(form).encode(), headers)  # noqa: S310  the schemes are checked above
    try:
        with urlopen(request, timeout=FETCH_TIMEOUT_S, context=https_context(options)) as response:  # noqa: S310
            answer = json.loads(response.read(SIZE_MAX))
    except (HTTPException, RecursionError) as error:
        raise ValueError(f"{url} has answered with something else than JSON: {error!r}") from error
    if not isinstance(answer, dict):
        raise ValueError(f"{url} has not answered with an object")
    return answer
