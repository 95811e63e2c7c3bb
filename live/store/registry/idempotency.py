"""The responses to requests with an `Idempotency-Key`, stored for repeated requests."""

import asyncio
import hashlib
import math
import zlib
from typing import Final

import msgspec
from msgspec import UnsetType

from live.domain.event import Answer
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store, required
from live.store.connection.scripts import Script, Text, text

_PIECE: Final = 65_536  # bytes compressed at a time, so that other tasks can run
_PLAIN: Final = b"{"  # begins each response that is stored uncompressed


class OnceRequest(msgspec.Struct):
    """Store a field for an `Idempotency-Key`, unless it is stored already.

    Attributes:
        field: `body` or `answer`.
        content: the digest of the body, or the packed response.
        seconds: how long to keep it.
    """

    field: str
    content: Text
    seconds: int


ONCE: Final = Script("once", OnceRequest)


class StoredResponses:
    """The responses to every producer under one prefix of store keys, each stored for the dedupe window."""

    def __init__(self, client: Store, settings: Settings) -> None:
        self._client = client
        self._prefix = settings.key_prefix
        self._kept = math.ceil(settings.dedupe_window)

    async def begin(self, producer: str, key: str, body: bytes) -> bytes | None:
        """Claim an `Idempotency-Key` for the body with the digest `body`. Return the response stored for it, or None.

        Raises:
            ProblemError: `idempotency_key_reused`: the `Idempotency-Key` was used with another body.
        """
        self._client.high_water.require_no_loss()
        name = self._name(producer, key)
        held, answer = await ONCE(self._client, [name], OnceRequest("body", text(body), self._kept))
        if held != body:
            raise ProblemError(
                "idempotency_key_reused", "this Idempotency-Key was used with another body; use a new one"
            )
        return None if answer is None else _unpacked(bytes(answer))

    async def finish(self, producer: str, key: str, answer: bytes) -> tuple[bytes, int]:
        """Store the response for a claimed `Idempotency-Key`. Return the stored response and its packed size.

        If a concurrent request has stored its response first, that response stays and is returned.

        Raises:
            StoreUnavailableError: the store is unavailable; `unknown` is set, because the events have been counted.
        """
        name, packed = self._name(producer, key), await _packed(answer)
        try:
            _, kept = await ONCE(self._client, [name], OnceRequest("answer", text(packed), self._kept))
        except StoreUnavailableError as error:
            raise StoreUnavailableError(str(error), unknown=True) from error
        return _unpacked(bytes(kept)), len(kept)

    async def forget(self, member: str) -> None:
        """Take the records of a member out of all stored responses."""
        async for name in self._client.names(f"{self._prefix}:{{once:*}}"):
            packed = await self._client.call(name, "HGET", name, "answer")
            answer = None if packed is None else msgspec.json.decode(_unpacked(packed), type=Answer)
            if answer is None or isinstance(answer.records, UnsetType):
                continue
            left = [record for record in answer.records if record.member != member]
            if len(left) < len(answer.records):
                reply = await _packed(msgspec.json.encode(msgspec.structs.replace(answer, records=left)))
                # If the stored response has expired meanwhile, HSET makes a new hash, which has no time to live yet.
                changes = (("HSET", name, "answer", reply), ("EXPIRE", name, self._kept, "NX"))
                required(await self._client.outcomes([(name, change) for change in changes], replicated=True))

    def _name(self, producer: str, key: str) -> str:
        digest = hashlib.blake2b(f"{producer}\n{key}".encode(), digest_size=16).hexdigest()
        return f"{self._prefix}:{{once:{digest}}}"


async def _packed(answer: bytes) -> bytes:
    """Compress a response that gets shorter, or that does not begin with `_PLAIN`. Many refusals compress well."""
    packer = zlib.compressobj(level=1)
    packed = b""
    for first in range(0, len(answer), _PIECE):
        packed += packer.compress(answer[first : first + _PIECE])
        await asyncio.sleep(0)
    packed += packer.flush()
    return packed if len(packed) < len(answer) or not answer.startswith(_PLAIN) else answer


def _unpacked(kept: bytes) -> bytes:
    return kept if kept.startswith(_PLAIN) else zlib.decompress(kept)
