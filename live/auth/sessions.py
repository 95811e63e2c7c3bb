"""The readers who are signed in to the admin page: every page shows them the boards of their API key."""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from live.auth.requester import Requester
from live.domain.producer import Principal
from live.domain.reader import NOBODY, Reader
from live.errors import ProblemError, StoreUnavailableError
from live.http.networks import Headers
from live.settings import Settings
from live.store.registry.sessions import SessionStore

_MARK: Final = b"live-admin-"
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{22}")  # 128 bits
_EVERY: Final = 2.0  # seconds between two checks of the readers' sessions
_KEPT: Final = 60.0  # seconds for which a session is checked after a request
_ENDED: Final = "the session of the admin page has ended"


def page_fault(requester: Requester, settings: Settings) -> str:
    """Say why a client may not open the admin page. Return an empty text if the client may open it."""
    if settings.admin_page == "off":
        return "LIVE_ADMIN_PAGE is `off` on this server"
    if settings.admin_page != "on" and not requester.at_the_console:
        return "LIVE_ADMIN_PAGE admits only browsers on the machine of the server"
    if requester.scheme != "https" and not requester.own_name:
        return "the admin page needs TLS, because its forms contain an API key"
    return ""


def marked_cookie(fields: Headers) -> str | None:
    """Find the `Cookie` field of a browser that may be signed in."""
    for name, value in fields:
        if name == b"cookie" and _MARK in value:
            return value.decode("latin-1")
    return None


def session_name(cookie: str) -> str:
    """Return the name of a session in the store: the SHA-256 of its cookie."""
    return hashlib.sha256(cookie.encode()).hexdigest()


def session_cookie(header: str, requester: Requester, settings: Settings) -> str:
    """Find the cookie of a session in a `Cookie` field; empty if there is none."""
    name = requester.cookie("admin", settings.root_path)
    for part in header.split(";"):
        own, _, cookie = part.strip().partition("=")
        if own == name and _COOKIE.fullmatch(cookie):
            return cookie
    return ""


class SignedIn:
    """The readers that this process knows by their sessions. `on_ended` is called when a reader has ended.

    Reading does not prolong a session. When a session ends, so does its reader, even while it watches a board. `holder`
    finds a producer by its id and the fingerprint of its secret.
    """

    def __init__(
        self, sessions: SessionStore, settings: Settings, holder: Callable[[str, str], Principal | None]
    ) -> None:
        self.on_ended: Callable[[], None] = lambda: None
        self._sessions = sessions
        self._settings = settings
        self._holder = holder
        self._recent: dict[str, tuple[Reader, float]] = {}
        self._readers: WeakValueDictionary[str, Reader] = WeakValueDictionary()

    async def find(self, header: str, requester: Requester) -> Reader:
        """Find the reader of a `Cookie` field, in the store if this process does not know its session.

        A session has one reader at a time. A reader whose `is_sure` is false serves only one request. Pages of other
        origins can't use the session.
        """
        cookie = session_cookie(header, requester, self._settings) if requester.is_own_page else ""
        if not cookie or page_fault(requester, self._settings):
            return NOBODY
        name = session_name(cookie)
        if (reader := self._readers.get(name)) is None:
            found = await self._read(name)
            reader = self._readers.get(name) or found  # meanwhile, another request may have found the session
        if reader.is_sure and reader is not NOBODY:
            self._readers[name] = reader
            self._recent[name] = reader, time.monotonic() + _KEPT
        return reader

    async def run(self) -> None:
        """End each reader whose session has ended or has other rights now, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            now = time.monotonic()
            self._recent = {name: held for name, held in self._recent.items() if now < held[1]}
            for name in list(self._readers):
                found = await self._read(name)
                reader = self._readers.get(name)
                if reader is not None and found.is_sure and found.opens != reader.opens:
                    self._readers.pop(name, None)
                    self._recent.pop(name, None)
                    reader.end(_ENDED)
                    self.on_ended()
                del reader  # otherwise this variable would keep the reader alive until the next check

    async def _read(self, name: str) -> Reader:
        """Make the reader of a session: nobody if it or its API key has ended, unsure while that is not known."""
        try:
            session = await self._sessions.find(name, is_use=False)
            producer = None if session is None else self._holder(session.id, session.fingerprint)
        except (StoreUnavailableError, ProblemError):
            return Reader(is_sure=False)
        return NOBODY if producer is None or "admin" not in producer.verbs else Reader(producer.opens)
