"""A producer on a socket: asked for its key once, and again when keys have changed; held to its rate."""

import asyncio
from collections.abc import Callable
from typing import Final

from live.auth.authenticator import Authenticator
from live.auth.client import Client
from live.auth.rate_limiter import RateLimiter
from live.errors import ProblemError
from live.ingest.committer import Committed
from live.ingest.intake import Head, Headers, Intake, PlainShare
from live.ingest.replies import Reply, problem_reply

_PAUSE: Final = 0.05  # seconds until a message that may not be counted yet is tried again
_JSON: Final = {b"content-type": b"application/json"}


class Session:
    """What a socket's messages are taken in with."""

    def __init__(
        self, intake: Intake, authenticator: Authenticator, rate_limiter: RateLimiter, headers: Headers, client: Client
    ) -> None:
        """Let a producer in.

        Raises:
            ProblemError: `credentials_required`, `credentials_invalid`, `origin_forbidden` or `scope_forbidden`.
            StoreUnavailableError: whose key is good can't be known now.
        """
        self._intake = intake
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._authorization = dict(reversed(headers)).get(b"authorization")
        self._client = client
        self._generation = -1
        self.head = self._look()

    def admit_now(self) -> bool:
        """Whether a message is within the producer's rate, as far as that can be said without the store.

        Raises:
            ProblemError: the key is good no more.
            StoreUnavailableError: whether it is can't be known now.
        """
        self._look_again()
        try:
            return self._rate_limiter.admit_now(self.head.producer)
        except ProblemError:
            return False  # it has sent too much: it waits

    async def admit(self) -> None:
        """Wait until a message is within the producer's rate: that is what a socket is not read for meanwhile.

        Raises:
            ProblemError: the key is good no more.
            StoreUnavailableError: whether it is, or what the rate is, can't be known now.
        """
        while True:
            self._look_again()
            try:
                await self._rate_limiter.admit(self.head.producer)
            except ProblemError:
                await asyncio.sleep(_PAUSE)
            else:
                return

    def submit(self, body: bytes, share: PlainShare, done: Callable[[Reply], None]) -> bool:
        """Have a message counted, which is a body of JSON; False when too much waits already."""
        try:
            if not self._intake.submit_plain(self.head, body, share):
                self._intake.submit(self.head, body, done)
        except ProblemError as error:
            if error.code == "overloaded":
                return False
            done(problem_reply(error))
        return True

    async def submit_late(self, body: bytes, share: PlainShare, done: Callable[[Reply], None]) -> None:
        """Have a message counted as soon as there is room for it."""
        while not self.submit(body, share, done):  # noqa: ASYNC110 - room comes without a word
            await asyncio.sleep(_PAUSE)

    def reply_to_plain(self, body: bytes, outcome: Committed | Exception) -> Reply:
        """The answer to a message whose one event was submitted with its share."""
        return self._intake.reply_to_plain(self.head, body, outcome)

    def _look_again(self) -> None:
        """Ask again who it is, if keys have changed."""
        if self._generation != self._authenticator.generation:
            self.head = self._look()

    def _look(self) -> Head:
        generation = self._authenticator.generation
        producer = self._authenticator.authorize(self._authorization, self._client)
        head = self._intake.read_head(producer, (), _JSON)
        self._generation = generation
        return head
