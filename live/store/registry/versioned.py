"""A hash whose field `:version` grows with every change: the form of the definitions and of the producers."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from live.errors import StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.high_water import Versioned

_VERSION: Final = ":version"  # no id has a colon
_T = TypeVar("_T")


class VersionedHash:
    """Read such a hash. Compare every read with the last known version, so that a loss of data is noticed."""

    def __init__(self, client: Store, kind: Versioned, key: str) -> None:
        self._key = key
        self._client = client
        self._kind = kind

    async def version(self) -> str:
        """Return the current version, empty if there never was an entry."""
        known = self.known()
        found = await self._client.call(self._key, "HGET", self._key, _VERSION)
        return self.check_version(found or b"", known)

    async def load(self) -> tuple[str, Mapping[str, bytes], int]:
        """Read the version, all entries sorted by id, and the time of the store in seconds since 1970, in one call."""
        known = self.known()
        replies = await self._client.calls([(self._key, ("HGETALL", self._key)), (self._key, ("TIME",))])
        fields, (now, _) = replies
        found = {name.decode(): text for name, text in zip(fields[::2], fields[1::2], strict=True)}
        version = self.check_version(found.pop(_VERSION, b""), known)
        return version, dict(sorted(found.items())), int(now)

    def known(self) -> int:
        """Return the last known version. Take it before you ask the store: another process may raise it meanwhile."""
        return self._client.high_water.version_of(self._kind)

    def check_version(self, version: bytes, known: int) -> str:
        """Compare a version with the one that was known before, and remember it."""
        self._client.high_water.check_version(self._kind, version.decode(), known)
        return version.decode()


def decode_entry(text: bytes, kind: type[_T], name: str) -> _T:
    """Decode the entry in a text. `name` says in the error message what it is.

    Raises:
        StoreUnavailableError: the text is not such an entry.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise StoreUnavailableError(f"{name} can't be read: {error}") from None
