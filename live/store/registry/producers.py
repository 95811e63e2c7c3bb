"""The producers in the store: a record for each, changed by compare-and-set."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from live.domain.producer import Scope, Secret, StoredProducer, digest_of, new_secret, with_secret, without_secret
from live.errors import StoreUnavailableError
from live.store.connection.client import Store, required
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, Text, text
from live.store.registry.versioned import VersionedHash, decode_entry


class RegisterRequest(msgspec.Struct):
    """Store a producer's record, if the stored record is still `known` (empty for no record). Both are JSON."""

    producer: str
    known: Text
    record: Text


REGISTER: Final = Script("register", RegisterRequest)

_MAX_TRIES: Final = 100  # each failed attempt means that another process changed the producer


class Registered(msgspec.Struct, frozen=True):
    """All producers at one instant; `version` grows with every change, and is empty if there never was a producer."""

    version: str
    records: Mapping[str, StoredProducer]


class ProducerStore(VersionedHash):
    """The producers of one key prefix."""

    def __init__(self, client: Store, register: Script[RegisterRequest] = REGISTER) -> None:
        super().__init__(client, "producers", client.system.producers)
        self._used = f"{self.key}:used"
        self._register = register

    async def load(self) -> Registered:
        """Read all producers."""
        version, found, _ = await self._read()
        return Registered(version, {producer: _decode(producer, record) for producer, record in found.items()})

    async def add(self, producer: str, scope: Scope, secret: str | None = None) -> tuple[StoredProducer, str]:
        """Create a producer, or add a secret to it. Return its record and the secret, whose digest is stored."""
        secret = secret or new_secret()
        digest = digest_of(secret.encode())
        return await self._change(producer, lambda old, now: with_secret(old, producer, scope, digest, now)), secret

    async def revoke(self, producer: str, fingerprint: str | None = None) -> StoredProducer:
        """Revoke one secret of a producer, or all of them."""
        return await self._change(producer, lambda old, now: without_secret(old, producer, fingerprint, now))

    async def note_uses(self, digests: set[bytes], refused: Counter[str]) -> None:
        """Note that the secrets with these digests were used now, and add `refused` to the counts in the store.

        `refused` counts, for each id of an API key, the requests that its rate has refused. Remove what is noted from
        `digests` and `refused`, so that the rest can be noted later.
        """
        used, counts = list(digests), list(refused.items())
        now = int((await self._client.call(self._used, "TIME"))[0])
        commands: list[tuple[Word, ...]] = []
        commands += [("HINCRBY", self._used, refused_name(name), count) for name, count in counts]
        if used:
            fields = (part for digest in used for part in (Secret(digest, 0).fingerprint, now))
            commands.append(("HSET", self._used, *fields))
        replies = await self._client.outcomes([(self._used, command) for command in commands])
        for (name, count), reply in zip(counts, replies, strict=False):  # the last reply is about the secrets
            if not isinstance(reply, Exception):
                refused -= Counter({name: count})
        if used and not isinstance(replies[-1], Exception):
            digests.difference_update(used)
        required(replies)

    async def last_uses(self) -> Mapping[str, int]:
        """Return, for each fingerprint of a secret, when the secret was last used, in seconds since 1970.

        For each `refused_name` of an API key, the result also has how many of its requests its rate has refused.
        """
        found = await self._client.call(self._used, "HGETALL", self._used)
        return {name.decode(): int(seconds) for name, seconds in zip(found[::2], found[1::2], strict=True)}

    async def _change(
        self, producer: str, change: Callable[[StoredProducer | None, int], StoredProducer]
    ) -> StoredProducer:
        for _ in range(_MAX_TRIES):
            # `write` waits until replicas hold what it reads, because the new record depends on that.
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
    """Return the name under which the refused requests of an API key are counted. It can't be a fingerprint."""
    return f"refused:{producer}"


def _decode(producer: str, record: bytes) -> StoredProducer:
    return decode_entry(record, StoredProducer, f"the record of producer {producer!r}")
