"""Key sets (JWKS) of SASL/OAUTHBEARER, from a file or an HTTP server, kept and refreshed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.oauth_tokens import keys_of_set

if TYPE_CHECKING:
    import ssl

    from pykbroker.run_in_thread import RunInThread

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 10.0
SIZE_MAX = 1 << 20
MISSING_KEY_PAUSE_S = 60.0
"""Shortest time in seconds between two refreshes because of unknown key ids, which any client can invent."""


class KeySetSettings(NamedTuple):
    """`sasl.oauthbearer.jwks.endpoint.url` (http, https or file), and `...refresh.ms`, `...retry.backoff.ms`,
    `...retry.backoff.max.ms`."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class KeySet:
    """The keys of one URL.

    Args:
        settings: URL and times.
        run_in_thread: runs blocking work in a thread.
        fetch: returns the document at a URL; raises OSError or ValueError.
        now_s: a clock in seconds.
    """

    def __init__(
        self,
        settings: KeySetSettings,
        run_in_thread: RunInThread,
        fetch: Callable[[str], str] | None = None,
        now_s: Callable[[], float] = trio.current_time,
    ) -> None:
        self._settings = settings
        self._run_in_thread = run_in_thread
        self._fetch = fetch or fetch_document
        self._now_s = now_s
        self.keys: Sequence[Mapping[str, Any]] = ()
        self._due_s = 0.0
        self._is_loaded = False
        # Set at the end of the fetch that runs now; None without one.
        self._fetched: trio.Event | None = None
        self._missing_due_s = 0.0
        self._failures = 0

    async def prepare(self, key_id: str | None) -> None:
        """Fetches the keys if they are due, or if none of them has this id; waits for a fetch that another login began.

        A failure is logged, and the old keys stay.
        """
        now_s = self._now_s()
        is_due = not self._is_loaded or now_s >= self._due_s
        if not is_due and key_id is not None and all(key.get("kid") != key_id for key in self.keys):
            is_due = now_s >= self._missing_due_s
            if is_due:
                self._missing_due_s = now_s + MISSING_KEY_PAUSE_S
        if self._failures and now_s < self._due_s:
            is_due = False
        if not is_due:
            return
        if self._fetched is not None:
            await self._fetched.wait()
            return
        settings = self._settings
        fetched = self._fetched = trio.Event()
        try:
            await self._run_in_thread(self._load)
        except (OSError, ValueError) as error:
            pause_ms = min(settings.backoff_ms << min(self._failures, 20), settings.backoff_max_ms)
            self._failures += 1
            self._due_s = self._now_s() + pause_ms / 1000
            log.warning("the keys at %s cannot be read: %s", settings.url, error)
            return
        finally:
            self._fetched = None
            fetched.set()
        self._failures = 0
        self._is_loaded = True
        self._due_s = self._now_s() + settings.refresh_ms / 1000

    def _load(self) -> None:
        self.keys = keys_of_set(self._fetch(self._settings.url))


def https_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Context for HTTPS servers of OAuth, from the `ssl.*` options of a login module, as Kafka's JaasOptionsUtils.

    None without such an option: the system's authorities are trusted.

    Raises:
        ConfigError: a store cannot be read, or the options contradict one another.
    """
    if not any(name.startswith("ssl.") for name in options):
        return None
    from pykbroker.config.definitions.broker import BROKER_CONFIGS
    from pykbroker.security.tls.contexts import Stores, client_context
    from pykbroker.security.tls.settings import TlsSettings

    def text(key: str) -> str | None:
        definition = BROKER_CONFIGS.get(key)
        return options.get(key, None if definition is None else definition.default)

    settings = TlsSettings.read(text)
    context = client_context(settings, Stores(settings))
    # The name in the URL is always checked, whatever `ssl.endpoint.identification.algorithm` says.
    context.check_hostname = True
    return context


def fetch_document(url: str, context: ssl.SSLContext | None = None) -> str:
    """The text at a URL; `context` is for an HTTPS server.

    Raises:
        OSError, ValueError: it cannot be read, or is too large.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    if not url.startswith(("http://", "https://", "file:/")):
        raise ValueError("only http, https and file URLs can be read")
    try:
        with urlopen(url, timeout=FETCH_TIMEOUT_S, context=context) as response:  # noqa: S310  the schemes are checked above
            data: bytes = response.read(SIZE_MAX + 1)
    except HTTPException as error:
        raise OSError(f"not a response of HTTP: {error!r}") from error
    if len(data) > SIZE_MAX:
        raise ValueError(f"it has more than {SIZE_MAX} bytes")
    return data.decode()
