"""The sessions of the admin page. The store keeps the SHA-256 of each cookie, and never the cookie."""

from collections.abc import Iterable
from typing import Final

import msgspec

from live.store.connection.client import Store
from live.store.connection.scripts import Script


class SessionRequest(msgspec.Struct):
    """Find a session by the SHA-256 of its cookie, and note its use."""

    name: str  # the SHA-256, in hexadecimal
    idle: int  # seconds without use after which a session ends
    longest: int  # seconds after which every session ends
    step: int  # seconds from one note that the session is used to the next; -1 to note nothing


SESSION: Final = Script("session", SessionRequest, waits=False)

IDLE: Final = 30 * 60  # seconds without use after which a session ends
LONGEST: Final = 12 * 3600  # seconds after which every session ends
_STEP: Final = 60  # seconds from one note that a session is used to the next
_MOST: Final = 1000  # the most sessions; a further one ends the session that was unused for longest


class Session(msgspec.Struct, frozen=True):
    """The session of a browser that is signed in with an API key. Times are in seconds, by the store's clock."""

    id: str  # of the API key
    fingerprint: str  # of its secret
    created: int
    used: int


class SessionStore:
    """The sessions of one key prefix."""

    def __init__(self, client: Store) -> None:
        self._client = client
        self._key = client.system.sessions

    async def add(self, name: str, producer: str, fingerprint: str) -> None:
        """Begin a session. Drop the sessions that have ended and, if there are too many, those unused for longest."""
        now = int((await self._client.call(self._key, "TIME"))[0])
        held = sorted((await self._all()).items(), key=lambda one: one[1].used)
        open_ones = [one for one, session in held if not _has_ended(session, now)]
        kept = set(open_ones[max(0, len(open_ones) + 1 - _MOST) :])
        await self._drop(one for one, _ in held if one not in kept)
        session = Session(producer, fingerprint, now, now)
        await self._client.write(self._key, "HSET", self._key, name, msgspec.json.encode(session))

    async def find(self, name: str, *, is_use: bool) -> Session | None:
        """Return a session that has not ended. With `is_use`, note that it is used, so that it ends later."""
        request = SessionRequest(name, IDLE, LONGEST, _STEP if is_use else -1)
        reply = await SESSION(self._client, [self._key], request)
        return msgspec.json.decode(reply[1], type=Session) if reply[0] == b"ok" else None

    async def end(self, name: str) -> None:
        """End a session."""
        await self._drop([name])

    async def end_all(self, producer: str) -> int:
        """End all sessions of an API key. Return how many there were."""
        return await self._drop([name for name, session in (await self._all()).items() if session.id == producer])

    async def _all(self) -> dict[str, Session]:
        found = await self._client.call(self._key, "HGETALL", self._key)
        pairs = zip(found[::2], found[1::2], strict=True)
        return {name.decode(): msgspec.json.decode(session, type=Session) for name, session in pairs}

    async def _drop(self, names: Iterable[str]) -> int:
        several = list(names)
        return int(await self._client.write(self._key, "HDEL", self._key, *several)) if several else 0


def _has_ended(session: Session, now: int) -> bool:
    return now - session.used >= IDLE or now - session.created >= LONGEST
