"""The short path of `POST /v1/events`: the body goes to the intake and the reply to the connection, without ASGI."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from live.domain.event import Entry
from live.domain.producer import Producer
from live.ingest.bodies import too_large
from live.ingest.committer import Committed
from live.ingest.intake import Head
from live.ingest.replies import Reply, problem_reply
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead
from live.protocols.http.shared import Shared
from live.settings import Settings

_PATH: Final = b"/v1/events"


class Answering(Protocol):
    """The connection of an exchange; it sends replies in the order of their requests."""

    def send_replies(self) -> None:
        """A reply is known: send every reply that is due."""


class Post:
    """One request, from its head to its reply."""

    __slots__ = ("_connection", "_head", "_is_complete", "_more", "_shared", "body", "entries", "keep_alive", "reply")

    is_full = False

    def __init__(self, connection: Answering, shared: Shared, *, keep_alive: bool) -> None:
        self._connection = connection
        self._shared = shared
        self.keep_alive = keep_alive
        self._head: Head | None = None
        self.body = b""
        self._more = bytearray()  # the body after its first piece
        self._is_complete = False
        self.entries: Sequence[Entry] = ()
        self.reply: Reply | None = None

    @property
    def started(self) -> bool:
        """Whether the reply is known, so that no other answer is possible."""
        return self.reply is not None

    def admit(self, head: RequestHead, peer: Peer) -> None:
        """Judge the head of the request while its body is on its way."""
        shared = self._shared
        try:
            producer, judge = shared.head_cache.judge(head, peer)
            if shared.rate_limiter.admit_now(producer):
                self._head = judge()
            else:
                self._ask(producer, judge)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self.answer(problem_reply(error))

    def begin(self) -> None:
        """Do nothing: the events are counted as soon as the request is complete."""

    def receive(self, data: bytes, *, last: bool) -> None:
        """Take in a piece of the body; count its events when it is complete and the head was admitted."""
        if self.reply is None:
            if not self.body:
                self.body = data
            else:
                self._more += data
            most = self._shared.settings.max_body
            if len(self.body) + len(self._more) > most:
                self.answer(problem_reply(too_large(most)))
        if last:
            self.end()

    def end(self) -> None:
        """The request is complete."""
        self._is_complete = True
        if self._more:
            self.body += bytes(self._more)
            self._more = bytearray()
        if self.reply is None and self._head is not None:
            self._submit(self._head)

    def disconnect(self) -> None:
        """Do nothing: a complete request is counted although nobody waits for its reply."""

    def resolve(self, committed: Committed) -> None:
        """The store has counted the body, which was one plain event."""
        self._resolve(committed)

    def reject(self, error: Exception) -> None:
        """The store has not counted the body, which was one plain event."""
        self._resolve(error)

    def answer(self, reply: Reply) -> None:
        """The reply is known."""
        self.reply = reply
        self._connection.send_replies()

    def _resolve(self, outcome: Committed | Exception) -> None:
        assert self._head is not None, "only requests with a judged head are counted"  # noqa: S101
        self.answer(self._shared.intake.reply_to_plain(self._head, self.body, outcome))

    def _ask(self, producer: Producer, judge: Callable[[], Head]) -> None:
        """Ask the store whether the request is within the rate of its producer."""

        async def admit() -> Reply | None:
            try:
                await self._shared.rate_limiter.admit(producer)
                self._head = judge()
            except Exception as error:  # noqa: BLE001 - as above
                return problem_reply(error)
            return None

        self._shared.intake.spawn(admit(), self._admitted)

    def _admitted(self, refusal: Reply | None) -> None:
        if self.reply is not None:
            return  # the body was too large
        if refusal is not None:
            self.answer(refusal)
        elif self._is_complete and self._head is not None:
            self._submit(self._head)

    def _submit(self, head: Head) -> None:
        intake = self._shared.intake
        try:
            if not intake.submit_plain(head, self.body, self):
                intake.submit(head, self.body, self.answer)
        except Exception as error:  # noqa: BLE001 - as above
            self.answer(problem_reply(error))


def is_short(head: RequestHead, settings: Settings) -> bool:
    """Whether a request takes the short path."""
    is_post = head.target == _PATH and head.method == b"POST"
    return is_post and not head.expects_continue and settings.role != "viewers"
