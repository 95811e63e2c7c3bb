"""The fast path of `POST /v1/events`: the body goes to the intake and the reply to the connection, without ASGI."""

import asyncio
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Final, cast

from live.domain.event import Entry
from live.ingest.committer import Committed
from live.ingest.decompression import too_large
from live.ingest.intake import CheckedHead
from live.ingest.replies import Reply, problem_reply
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.http.pipeline import Connection
from live.protocols.http.shared import SharedParts
from live.system.tracing import record_span, trace_of

_UNCHECKED: Final = cast("CheckedHead", None)


class Post:
    """One `POST /v1/events`, from its head to its reply."""

    __slots__ = (
        "_connection", "_head", "_is_complete", "_more", "_shared", "_trace", "arrived", "body", "entries",
        "keep_alive", "producer", "reply", "size", "wanted",
    )  # fmt: skip

    route = "POST /v1/events"

    def __init__(self, connection: Connection, shared: SharedParts, *, keep_alive: bool) -> None:
        self._connection = connection
        self._shared = shared
        self.arrived = perf_counter()
        self.keep_alive = keep_alive
        self._head: CheckedHead = _UNCHECKED
        self.body = b""
        self._more = bytearray()  # the body after its first piece
        self._is_complete = False
        self.entries: Sequence[Entry] = ()
        self.producer = ""
        self.reply: Reply | None = None
        self.size = 0  # bytes that the connection holds for the body until there is a reply
        self.wanted = 0  # bytes that must be admitted before the body is read

    @property
    def is_full(self) -> bool:
        """Whether reading the body must wait."""
        return self.wanted > 0

    @property
    def started(self) -> bool:
        """Whether the reply is known, so that no other answer is possible."""
        return self.reply is not None

    def admit(self, head: RequestHead, peer: Peer) -> None:
        """Check the head of the request while its body arrives."""
        shared = self._shared
        self._trace = trace_of(head.fields)
        try:
            known = shared.head_cache.known(head, peer)
            producer = known.producer if known is not None else shared.head_cache.producer_of(head, peer)
            if shared.rate_limiter.admit_now(producer):
                self._head = known or shared.head_cache.check(head, peer, producer)
            else:
                shared.rate_limiter.wait(producer).add_done_callback(partial(self._admitted, head, peer))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self.answer(problem_reply(error))

    def begin(self) -> None:
        """Do nothing: the events are counted as soon as the request is complete."""

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body; count its events once it is complete and the head is admitted."""
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
        """Count the events if the head is admitted: the request is complete."""
        self._is_complete = True
        if self._more:
            self.body += bytes(self._more)
            self._more = bytearray()
        if len(self.body) < self.size:  # the body was chunked, so `max_body` bytes were admitted for it
            self._connection.release(self.size - len(self.body))
            self.size = len(self.body)
        if self.reply is None and self._head is not _UNCHECKED:
            self._submit()

    def disconnect(self) -> None:
        """Drop an incomplete body; a complete request is counted even if its client has left."""
        if not self._is_complete:
            self._connection.flow.held -= self.size
            self.size = self.wanted = 0
            self.body, self._more = b"", bytearray()

    def resolve(self, committed: Committed) -> None:
        """Answer that the store has counted or refused the event of the body. The body has one plain event."""
        self.answer(self._shared.intake.reply_to_plain(self._head, self.body, committed))

    def reject(self, error: Exception) -> None:
        """Answer with the error of a failed commit. The body has one plain event, which may have counted."""
        self.answer(self._shared.intake.reply_to_plain(self._head, self.body, error))

    def answer(self, reply: Reply) -> None:
        """Set the reply, drop the body, and send every reply that is due."""
        self.reply = reply
        if self._trace is not None and self._head is not _UNCHECKED:  # spans are made only for known producers
            record_span(self.route, self.arrived, self._trace, status=reply.status)
        self._connection.flow.held -= self.size
        self.size = self.wanted = 0
        self.body, self._more = b"", bytearray()
        self._connection.send_replies()

    def _admitted(self, head: RequestHead, peer: Peer, admission: asyncio.Future[None]) -> None:
        """Go on after the store has decided whether the request is within the rate of its producer.

        API keys and boards may have changed in the meantime, so the producer is looked up again.
        """
        try:
            admission.result()
            cache = self._shared.head_cache
            self._head = cache.known(head, peer) or cache.check(head, peer, cache.producer_of(head, peer))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            if self.reply is None:  # a body that is too large has a reply already
                self.answer(problem_reply(error))
        else:
            if self._is_complete and self.reply is None:
                self._submit()

    def _submit(self) -> None:
        intake = self._shared.intake
        try:
            if not intake.submit_plain(self._head, self.body, self):
                intake.submit(self._head, self.body, self.answer)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self.answer(problem_reply(error))
