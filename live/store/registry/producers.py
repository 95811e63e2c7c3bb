"""The producers in the store: a record for each, changed by compare-and-set."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from live.domain.producer import Scope, Secret, StoredProducer, digest_of, new_secret, with_secret, without_secret
from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store
from live.store.connection.scripts import Script, Text, text
from live.store.registry.versioned import VersionedHash, decode_entry


class RegisterRequest(msgspec.Struct):
    """Store a producer's record, if the stored record is still `known`. Both are JSON, or empty if there is none."""

    producer: str
    known: Text
    record: Text


REGISTER: Final = Script("register", RegisterRequest)

_MAX_TRIES: Final = 100  # each failed one means that another process changed the producer


class Registered(msgspec.Struct, frozen=True):
    """All producers at one instant; `version` grows with every change, and is empty if there never was a producer."""

    version: str
    records: Mapping[str, StoredProducer]


class ProducerStore(VersionedHash):
    """The producers of one key prefix."""

    def __init__(self, client: Store, prefix: str, register: Script[RegisterRequest] = REGISTER) -> None:
        super().__init__(client, "producers", SystemKeys(prefix).producers)
        self._used = f"{self.key}:used"
        self._register = register

    async def load(self) -> Registered:
        """Read all producers.

        Raises:
            StoreUnavailableError: the store holds a record that can't be read.
        """
        version, found, _ = await self._read()
        return Registered(version, {producer: _decode(producer, record) for producer, record in found.items()})

    async def add(self, producer: str, scope: Scope, secret: str | None = None) -> tuple[StoredProducer, str]:
        """Create a producer, or add a secret to it. Return its record and the secret. The store has only its digest.

        Raises:
            SetupError: the id is not valid, or the producer has two live secrets.
            StoreUnavailableError: the store is unavailable; with `unknown`, the secret may be live all the same.
        """
        secret = secret or new_secret()
        digest = digest_of(secret.encode())
        return await self._change(producer, lambda old, now: with_secret(old, producer, scope, digest, now)), secret

    async def revoke(self, producer: str, fingerprint: str | None = None) -> StoredProducer:
        """Revoke one secret of a producer, or all of them.

        Raises:
            SetupError: there is no such producer, or it has no such secret.
        """
        return await self._change(producer, lambda old, now: without_secret(old, producer, fingerprint, now))

    async def note_uses(self, digests: Collection[bytes], refused: Mapping[str, int]) -> None:
        """Note that these secrets, by their digests, have been used now, and requests that rates have `refused`, by id.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        for producer, count in refused.items():
            await self._client.write(self._used, "HINCRBY", self._used, refused_name(producer), count)
        if digests:
            now = int((await self._client.call(self._used, "TIME"))[0])
            fields = [part for digest in digests for part in (Secret(digest, 0).fingerprint, now)]
            await self._client.write(self._used, "HSET", self._used, *fields)

    async def last_uses(self) -> Mapping[str, int]:
        """Return when secrets were last used, in seconds since 1970, by their fingerprints.

        Under `refused_name` is how many requests of an API key its rate has refused.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        found = await self._client.call(self._used, "HGETALL", self._used)
        return {name.decode(): int(seconds) for name, seconds in zip(found[::2], found[1::2], strict=True)}

    async def _change(
        self, producer: str, change: Callable[[StoredProducer | None, int], StoredProducer]
    ) -> StoredProducer:
        for _ in range(_MAX_TRIES):
            # Replicas must hold the data that the caller reads.
            known = await self._client.write(self.key, "HGET", self.key, producer) or b""
            now = int((await self._client.call(self.key, "TIME"))[0])
            record = change(_decode(producer, known) if known else None, now)
            request = RegisterRequest(producer, text(known), text(msgspec.json.encode(record)))
            reply = await self._register(self._client, [self.key], request)
            if reply[0] == b"ok":
                self._client.high_water.note_version("producers", int(reply[1]))
                return record
        raise StoreUnavailableError(f"other processes changed producer {producer} {_MAX_TRIES} times in a row")


def refused_name(producer: str) -> str:
    """Name the number of requests of an API key that its rate has refused. No fingerprint has a colon."""
    return f"refused:{producer}"


def _decode(producer: str, record: bytes) -> StoredProducer:
    return decode_entry(record, StoredProducer, f"the record of producer {producer!r}")
