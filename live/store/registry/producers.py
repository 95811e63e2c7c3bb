"""The producers, in one hash that is changed by compare-and-set and has a version."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from live.domain.producer import Record, Scope, digest_of, new_secret, with_secret, without_secret
from live.errors import StoreUnavailableError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script, Text, text


class RegisterRequest(msgspec.Struct):
    """Store a producer's record, if the stored one is still `known`. Both are JSON, empty for none."""

    producer: str
    known: Text
    record: Text


REGISTER: Final = Script("register", RegisterRequest)

_VERSION: Final = ":version"  # the id of a producer contains no colon
_MOST_TRIES: Final = 100  # each failed one means that another process made a change


class Registered(msgspec.Struct, frozen=True):
    """All producers, also those whose API keys are revoked, at one instant. `version` is empty if there was none."""

    version: str
    records: Mapping[str, Record]


class ProducerStore:
    """Reads and writes the producers under one prefix of store keys."""

    def __init__(self, client: Store, prefix: str, register: Script[RegisterRequest] = REGISTER) -> None:
        self.key = SystemKeys(prefix).producers
        self._client = client
        self._register = register

    async def version(self) -> str:
        """The version, which changes with every change of a producer.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        known = self._client.witness.facts.producers
        version = await self._field(_VERSION)
        self._client.witness.see_version("producers", version, known)
        return version

    async def load(self) -> Registered:
        """Read all producers.

        Raises:
            StoreUnavailableError: the store is unavailable, or holds a record that can't be read.
        """
        known = self._client.witness.facts.producers
        async with store_errors():
            reply = await self._client.call(self.key, "HGETALL", self.key)
        found = {name.decode(): text for name, text in zip(reply[::2], reply[1::2], strict=True)}
        version = found.pop(_VERSION, b"").decode()
        self._client.witness.see_version("producers", version, known)
        return Registered(version, {producer: _decode(producer, text) for producer, text in sorted(found.items())})

    async def add(self, producer: str, scope: Scope, secret: str | None = None) -> tuple[Record, str]:
        """Add a producer, or another secret for one. Returns the secret, of which only the digest is stored.

        Raises:
            SetupError: the id is not valid, or the producer has two secrets already.
            StoreUnavailableError: the store is unavailable; with `unknown`, the secret may have been added.
        """
        secret = secret or new_secret()
        digest = digest_of(secret.encode())
        return await self._change(producer, lambda old, now: with_secret(old, producer, scope, digest, now)), secret

    async def revoke(self, producer: str, fingerprint: str | None = None) -> Record:
        """Revoke one secret of a producer, or all.

        Raises:
            SetupError: there is no such producer, or it has no such secret.
            StoreUnavailableError: the store is unavailable.
        """
        return await self._change(producer, lambda old, now: without_secret(old, producer, fingerprint, now))

    async def _change(self, producer: str, change: Callable[[Record | None, int], Record]) -> Record:
        for _ in range(_MOST_TRIES):
            known = await self._field(producer)
            async with store_errors():
                now = int((await self._client.call(self.key, "TIME"))[0])
            record = change(_decode(producer, known.encode()) if known else None, now)
            request = RegisterRequest(producer, known, text(msgspec.json.encode(record)))
            async with store_errors():
                reply = await self._register(self._client, [self.key], request)
            if reply[0] == b"ok":
                return record
        raise StoreUnavailableError(f"producer {producer} was changed {_MOST_TRIES} times in a row by others")

    async def _field(self, name: str) -> str:
        async with store_errors():
            found = await self._client.call(self.key, "HGET", self.key, name)
        return "" if found is None else found.decode()


def _decode(producer: str, text: bytes) -> Record:
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError as error:
        raise StoreUnavailableError(f"the record of producer {producer!r} can't be read: {error}") from None
