"""Tokens of this node for its logins by OAUTHBEARER: from a file, from an OAuth server, or unsecured ones."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from pykbroker.security.oauth_keys import FETCH_TIMEOUT_S, SIZE_MAX, fetch_document
from pykbroker.security.oauth_tokens import unsecured_token
from pykbroker.security.oauthbearer import initial_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pykbroker.config.values import NodeLogin

R = TypeVar("R")
_PREFIX = "sasl.oauthbearer."
TOKEN_PART = 0.8
"""Part of a token's lifetime for which it is used for further logins."""


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
        run_in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._login = login
        self._now_ms = now_ms
        self._run_in_thread = run_in_thread
        self._token = ""
        self._fresh_until_s = 0.0

    async def first_message(self) -> bytes:
        """The first message of a login.

        Raises:
            OSError: there is no token.
        """
        options = self._login.options
        extensions = {
            name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")
        }
        url = self._login.settings.get(f"{_PREFIX}token.endpoint.url")
        try:
            if not url:
                token = unsecured_token(options, self._now_ms())
            elif url.startswith("file:"):
                token = (await self._result_of(partial(fetch_document, url))).strip()
            else:
                token = await self._of_server(url)
        except ValueError as error:
            raise OSError(f"no token for the login: {error}") from error
        return initial_response(token, extensions)

    async def _of_server(self, url: str) -> str:
        if trio.current_time() >= self._fresh_until_s:
            answer = await self._result_of(partial(_ask, url, self._login))
            token, lifetime_s = answer.get("access_token"), answer.get("expires_in")
            if not isinstance(lifetime_s, int | float):
                lifetime_s = 0
            if not isinstance(token, str) or not token:
                raise ValueError(f"{url} has answered without an access_token")
            self._token = token
            self._fresh_until_s = trio.current_time() + lifetime_s * TOKEN_PART
        return self._token

    async def _result_of(self, work: Callable[[], R]) -> R:
        results: list[R] = []
        await self._run_in_thread(lambda: results.append(work()))
        return results[0]


def _ask(url: str, login: NodeLogin) -> dict[str, Any]:
    """The answer of an OAuth server to a request with the grant type client_credentials."""
    from http.client import HTTPException
    from urllib.parse import urlencode
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise ValueError("sasl.oauthbearer.token.endpoint.url must be an http, https or file URL")
    settings, options = login.settings, login.options
    client = settings.get(f"{_PREFIX}client.credentials.client.id") or options.get("clientId", "")
    secret = settings.get(f"{_PREFIX}client.credentials.client.secret") or options.get("clientSecret", "")
    scope = settings.get(f"{_PREFIX}scope") or options.get("scope", "")
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    headers = {
        "Authorization": f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    request = Request(url, urlencode(form).encode(), headers)  # noqa: S310  the schemes are checked above
    try:
        with urlopen(request, timeout=FETCH_TIMEOUT_S) as response:  # noqa: S310
            answer = json.loads(response.read(SIZE_MAX))
    except (HTTPException, RecursionError) as error:
        raise ValueError(f"{url} has answered with something else than JSON: {error!r}") from error
    if not isinstance(answer, dict):
        raise ValueError(f"{url} has not answered with an object")
    return answer
