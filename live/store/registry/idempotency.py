"""Answers that were given under an idempotency key, kept for whoever asks again."""

import asyncio
import hashlib
import math
import zlib
from typing import Any, Final

from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store, store_errors
from live.store.connection.line import Word

_PIECE: Final = 65_536  # bytes packed at a time, so that others have their turn
_PLAIN: Final = b"{"  # with which an answer begins that is kept as it is


class Answers:
    """The answers of every producer under one key prefix; each is kept for the dedupe window."""

    def __init__(self, client: Store, settings: Settings) -> None:
        self._client = client
        self._prefix = settings.key_prefix
        self._kept = math.ceil(settings.dedupe_window)

    async def begin(self, producer: str, key: str, body: bytes) -> bytes | None:
        """Claim a key for a body, given by its digest; the answer, if the same body has had one before.

        Raises:
            ProblemError: `idempotency_key_reused`: the key was claimed for another body.
            StoreUnavailableError: the store is unavailable.
            EpochLostError: the store lost data.
        """
        self._client.witness.require_whole()
        name = self._name(producer, key)
        _, (held, answer), _ = await self._at_once(
            name, ("HSETNX", name, "body", body), ("HMGET", name, "body", "answer"), ("EXPIRE", name, self._kept)
        )
        if held != body:
            raise ProblemError(
                "idempotency_key_reused", "this Idempotency-Key was used with another body; use a new one"
            )
        return None if answer is None else _unpacked(bytes(answer))

    async def finish(self, producer: str, key: str, answer: bytes) -> tuple[bytes, int]:
        """Keep the answer to a claimed key; gives the one that is kept, and how many bytes it takes.

        It may be that of a request alongside.

        Raises:
            StoreUnavailableError: the store is unavailable; `unknown`, for what is answered for has been counted.
        """
        name, packed = self._name(producer, key), await _packed(answer)
        try:
            _, kept, _ = await self._at_once(
                name, ("HSETNX", name, "answer", packed), ("HGET", name, "answer"), ("EXPIRE", name, self._kept)
            )
        except StoreUnavailableError as error:
            raise StoreUnavailableError(str(error), unknown=True) from error
        return _unpacked(bytes(kept)), len(kept)

    async def _at_once(self, name: str, *commands: tuple[Word, ...]) -> list[Any]:
        """Run commands on a store key in one transaction; gives their replies.

        Raises:
            StoreUnavailableError: the store is unavailable, or refuses one of the commands.
        """
        async with store_errors():
            replies = await self._client.calls([(name, words) for words in (("MULTI",), *commands, ("EXEC",))])
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        answers: list[Any] = replies[-1]
        return answers

    def _name(self, producer: str, key: str) -> str:
        digest = hashlib.blake2b(f"{producer}\n{key}".encode(), digest_size=16).hexdigest()
        return f"{self._prefix}:{{once:{digest}}}"


async def _packed(answer: bytes) -> bytes:
    """An answer as it is kept: packed, where that is shorter. Refusals are much alike, so little is left of them."""
    packer = zlib.compressobj(level=1)
    packed = b""
    for first in range(0, len(answer), _PIECE):
        packed += packer.compress(answer[first : first + _PIECE])
        await asyncio.sleep(0)
    packed += packer.flush()
    return packed if len(packed) < len(answer) or not answer.startswith(_PLAIN) else answer


def _unpacked(kept: bytes) -> bytes:
    return kept if kept.startswith(_PLAIN) else zlib.decompress(kept)
