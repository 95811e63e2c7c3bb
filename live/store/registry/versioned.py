"""A hash whose field `:version` grows with every change: the form of the definitions and of the producers."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from live.errors import StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.high_water import Versioned

VERSION: Final = ":version"  # no id has a colon
_T = TypeVar("_T")


class VersionedHash:
    """A hash with a version. Every read compares the version with the last known one, and so notices a loss of data."""

    def __init__(self, client: Store, kind: Versioned, key: str) -> None:
        self.key = key
        self._client = client
        self._kind = kind

    async def version(self) -> str:
        """Return the current version, which grows with every change; empty if there never was an entry."""
        known = self._known()
        found = await self._client.call(self.key, "HGET", self.key, VERSION)
        return self._check_version(found or b"", known)

    async def _read(self) -> tuple[str, Mapping[str, bytes], int]:
        """Return the version, all entries sorted by id, and the store's time in seconds, in one call."""
        known = self._known()
        fields, (now, _) = await self._client.calls([(self.key, ("HGETALL", self.key)), (self.key, ("TIME",))])
        found = {name.decode(): text for name, text in zip(fields[::2], fields[1::2], strict=True)}
        version = self._check_version(found.pop(VERSION, b""), known)
        return version, dict(sorted(found.items())), int(now)

    def _known(self) -> int:
        """Read it before you ask the store, because it may grow meanwhile."""
        return self._client.high_water.version_of(self._kind)

    def _check_version(self, version: bytes, known: int) -> str:
        self._client.high_water.check_version(self._kind, version.decode(), known)
        return version.decode()


def decode_entry(text: bytes, kind: type[_T], name: str) -> _T:
    """Decode an entry. `name` names the entry in the error message."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise StoreUnavailableError(f"{name} can't be read: {error}") from None
