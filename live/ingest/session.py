"""A producer's session on a socket: authenticates again when API keys change, and applies the rate."""

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

_PAUSE: Final = 0.05  # seconds between two attempts to submit a message
_JSON: Final = {b"content-type": b"application/json"}


class Session:
    """Admits and submits the messages of one socket."""

    def __init__(
        self, intake: Intake, authenticator: Authenticator, rate_limiter: RateLimiter, headers: Headers, client: Client
    ) -> None:
        """Authenticate a producer.

        Raises:
            ProblemError: `credentials_required`, `credentials_invalid`, `origin_forbidden` or `scope_forbidden`.
            StoreUnavailableError: the API keys can't be checked now.
        """
        self._intake = intake
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._authorization = dict(reversed(headers)).get(b"authorization")
        self._client = client
        self._generation = -1
        self.head = self._authenticate()

    def admit_now(self) -> bool:
        """Whether a message is within the producer's rate; False if only the store knows.

        Raises:
            ProblemError: the API key was revoked.
            StoreUnavailableError: the API keys can't be checked now.
        """
        self._refresh()
        try:
            return self._rate_limiter.admit_now(self.head.producer)
        except ProblemError:
            return False  # it exceeds its rate and waits

    async def admit(self) -> None:
        """Wait until a message is within the producer's rate. The socket is not read meanwhile.

        Raises:
            ProblemError: the API key was revoked.
            StoreUnavailableError: the API keys or the rate can't be checked now.
        """
        while True:
            self._refresh()
            try:
                await self._rate_limiter.admit(self.head.producer)
            except ProblemError:
                await asyncio.sleep(_PAUSE)
            else:
                return

    def submit(self, body: bytes, share: PlainShare, done: Callable[[Reply], None]) -> bool:
        """Submit a message, a JSON body; False if too many events wait already."""
        try:
            if not self._intake.submit_plain(self.head, body, share):
                self._intake.submit(self.head, body, done)
        except ProblemError as error:
            if error.code == "overloaded":
                return False
            done(problem_reply(error))
        return True

    async def submit_when_room(self, body: bytes, share: PlainShare, done: Callable[[Reply], None]) -> None:
        """Submit a message as soon as there is room for it."""
        while not self.submit(body, share, done):  # noqa: ASYNC110 - no event announces room
            await asyncio.sleep(_PAUSE)

    def reply_to_plain(self, body: bytes, outcome: Committed | Exception) -> Reply:
        """The answer to a message whose single event was submitted with its share."""
        return self._intake.reply_to_plain(self.head, body, outcome)

    def _refresh(self) -> None:
        """Authenticate again if API keys have changed."""
        if self._generation != self._authenticator.generation:
            self.head = self._authenticate()

    def _authenticate(self) -> Head:
        generation = self._authenticator.generation
        producer = self._authenticator.authorize(self._authorization, self._client)
        head = self._intake.read_head(producer, (), _JSON)
        self._generation = generation
        return head
