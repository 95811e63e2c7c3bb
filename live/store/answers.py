"""Answers that were given under an idempotency key, kept for whoever asks again."""

import hashlib
import math

from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.client import Store, store_errors


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
            StoreUnavailableError: the store is away.
        """
        name = self._name(producer, key)
        async with store_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.hsetnx(name, "body", body)
            pipe.hmget(name, ["body", "answer"])
            pipe.expire(name, self._kept)
            _, (held, answer), _ = await pipe.execute()
        if held != body:
            raise ProblemError("idempotency_key_reused", "the key came with another body before; make a new one")
        return None if answer is None else bytes(answer)

    async def finish(self, producer: str, key: str, answer: bytes) -> bytes:
        """Keep the answer to a claimed key; gives the one that is kept, which may be that of a request alongside.

        Raises:
            StoreUnavailableError: the store is away; `unknown`, for what is answered for has been counted.
        """
        name = self._name(producer, key)
        try:
            async with store_errors(), self._client.pipeline(transaction=True) as pipe:
                pipe.hsetnx(name, "answer", answer)
                pipe.hget(name, "answer")
                pipe.expire(name, self._kept)
                _, kept, _ = await pipe.execute()
        except StoreUnavailableError as error:
            raise StoreUnavailableError(str(error), unknown=True) from error
        return bytes(kept)

    def _name(self, producer: str, key: str) -> str:
        digest = hashlib.blake2b(f"{producer}\n{key}".encode(), digest_size=16).hexdigest()
        return f"{self._prefix}:{{once:{digest}}}"
