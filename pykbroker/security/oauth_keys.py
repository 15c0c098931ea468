"""Key sets (JWKS) of SASL/OAUTHBEARER, from a file or an HTTP server, kept and refreshed."""

from __future__ import annotations

import logging
import os
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
"""Shortest time in seconds between two fetches because of the same unknown key id."""

MISSING_KEYS_MAX = 16
"""Number of unknown key ids for which the earliest time of the next fetch is kept."""

KEY_ID_LENGTH_MAX = 1000
"""Length in characters up to which the keys are fetched because of an unknown key id."""

FETCH_PAUSE_S = 1.0
"""Shortest time in seconds between a fetch and one because of any unknown key id, which a client can invent."""


class KeySetSettings(NamedTuple):
    """`sasl.oauthbearer.jwks.endpoint.url` (http, https or file) and the settings beside it.

    They are `...refresh.ms`, `...retry.backoff.ms` and `...retry.backoff.max.ms`.
    """

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
        self._path = file_path(settings.url)
        # Modification time of the file that `keys` are from, in ns; None if they are from none.
        self._modified_ns: int | None = None
        self._due_s = 0.0
        self._is_loaded = False
        # Set at the end of the fetch that runs now; None without one.
        self._fetched: trio.Event | None = None
        self._fetched_at_s = 0.0
        # Unknown key ids, the least recently used first, with the times from which on they are due again.
        self._missing: dict[str, float] = {}
        self._failures = 0

    async def prepare(self, key_id: str | None) -> None:
        """Fetches the keys if they are due, or if none of them has this id; waits for a fetch that another login began.

        A failure is logged. As in Kafka, the keys of a server then stay in use, and those of a file do not. A file is
        due when it has changed.
        """
        if not (self._has_file_changed() if self._path else self._is_due(key_id)):
            return
        if self._fetched is not None:
            await self._fetched.wait()
            return
        settings = self._settings
        fetched = self._fetched = trio.Event()
        try:
            await self._run_in_thread(self._load_file if self._path else self._load)
        except (OSError, ValueError) as error:
            pause_ms = min(settings.backoff_ms << min(self._failures, 20), settings.backoff_max_ms)
            self._failures += 1
            self._due_s = self._now_s() + pause_ms / 1000
            log.warning("the key set (JWKS) at %s cannot be read: %s", settings.url, error)
            return
        finally:
            self._fetched = None
            self._fetched_at_s = self._now_s()
            fetched.set()
        self._failures = 0
        self._is_loaded = True
        self._due_s = self._now_s() + settings.refresh_ms / 1000
        known = [key.get("kid") for key in self.keys]
        self._missing = {key_id: due_s for key_id, due_s in self._missing.items() if key_id not in known}

    def _has_file_changed(self) -> bool:
        return self._modified_ns is None or _modified_ns(self._path) != self._modified_ns

    def _is_due(self, key_id: str | None) -> bool:
        now_s = self._now_s()
        if not self._is_loaded or now_s >= self._due_s:
            return not self._failures or now_s >= self._due_s
        is_missing = key_id is not None and all(key.get("kid") != key_id for key in self.keys)
        return is_missing and not self._failures and self._may_look_for(key_id or "", now_s)

    def _may_look_for(self, key_id: str, now_s: float) -> bool:
        """True if the keys are to be fetched because of an unknown id. Later calls are about the same id."""
        if len(key_id) > KEY_ID_LENGTH_MAX or now_s < self._fetched_at_s + FETCH_PAUSE_S:
            return False
        due_s = self._missing.pop(key_id, now_s)
        is_due = now_s >= due_s
        self._missing[key_id] = now_s + MISSING_KEY_PAUSE_S if is_due else due_s
        if len(self._missing) > MISSING_KEYS_MAX:
            del self._missing[next(iter(self._missing))]
        return is_due

    def _load_file(self) -> None:
        # A key that somebody removes is one that must not be trusted any more.
        self.keys, self._modified_ns = (), None
        modified_ns = _modified_ns(self._path)
        self._load()
        self._modified_ns = modified_ns

    def _load(self) -> None:
        self.keys = keys_of_set(self._fetch(self._settings.url))


def file_path(url: str) -> str:
    """Path of a file URL; "" for any other URL."""
    if not url.startswith("file:/"):
        return ""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    return url2pathname(urlsplit(url).path)


def _modified_ns(path: str) -> int | None:
    """Modification time of a file in ns; None if there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


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
