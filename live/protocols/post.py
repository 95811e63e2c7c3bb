"""`POST /v1/events`: the body goes to the intake and the reply to the connection, without ASGI."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, cast
from urllib.parse import unquote_to_bytes

from live.auth.requester import Requester
from live.domain.event import Entry
from live.http.parser import Peer, RequestHead
from live.http.reply import Reply, problem_reply
from live.ingest.committer import Committed
from live.ingest.intake import CheckedHead, too_large
from live.protocols.exchange import Connection, Exchange
from live.protocols.shared import SharedParts
from live.system.tracing import record_span, trace_of

ROUTE: Final = "POST /v1/events"
_PATH: Final = b"/v1/events"
_UNCHECKED: Final = cast("CheckedHead", None)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def is_events(target: bytes) -> bool:
    """Tell whether a target, relative to the root path, is the route of events."""
    return target == _PATH or unquote_to_bytes(target.partition(b"?")[0]) == _PATH


class Post(Exchange):
    """Events, from head to reply. With `expects`, the client waits for status 100 before it sends the body."""

    __slots__ = (
        "_head", "_is_complete", "_is_first", "_more", "_shared", "_trace", "body", "entries", "expects", "producer",
    )  # fmt: skip

    def __init__(self, connection: Connection, shared: SharedParts, *, keep_alive: bool) -> None:
        super().__init__(connection, route=ROUTE, keep_alive=keep_alive)
        self._shared = shared
        self._head: CheckedHead = _UNCHECKED
        self.body = b""
        self._more = bytearray()  # the body after its first piece
        self._is_complete = False
        self._is_first = False  # whether every earlier request is answered
        self.expects = False
        self.entries: Sequence[Entry] = ()
        self.producer = ""

    @property
    def is_full(self) -> bool:
        """Whether reading the body must wait: for its room, or until the client is asked for it."""
        return self.wanted > 0 or self.expects

    def admit(self, head: RequestHead, peer: Peer) -> None:
        """Check the head of the request while its body arrives."""
        shared = self._shared
        self._trace = trace_of(head.fields)
        try:
            requester = shared.clients.resolve(peer.address, head.fields, tls=peer.tls)
            known = shared.intake.known(head)
            producer = known.producer if known is not None else shared.intake.producer_of(head, requester)
            if shared.rate_limiter.admit_now(producer):
                self._head = known or shared.intake.check(head, producer)
            else:
                shared.rate_limiter.wait(producer).add_done_callback(partial(self._admitted, head, requester))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self.answer(problem_reply(error))

    def begin(self) -> None:
        """Ask for the body, if the client waits for that. The events are counted as soon as the request is complete."""
        self._is_first = True
        if self.expects and self.reply is None and self._head is not _UNCHECKED:
            self.expects = False
            self.connection.transport.write(_CONTINUE)

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body; count its events once it is complete and the head is admitted."""
        self.expects = False
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
            self.connection.release(self.size - len(self.body))
            self.size = len(self.body)
        if self.reply is None and self._head is not _UNCHECKED:
            self._submit()

    def disconnect(self) -> None:
        """Drop an incomplete body; a complete request is counted even if its client has left."""
        if not self._is_complete:
            self._drop_body()

    def resolve(self, committed: Committed) -> None:
        """Answer that the store has counted or refused the event of the body. The body has one plain event."""
        self.answer(self._shared.intake.reply_to_plain(self._head, self.body, committed))

    def reject(self, error: Exception) -> None:
        """Answer with the error of a failed commit. The body has one plain event, which may have counted."""
        self.answer(self._shared.intake.reply_to_plain(self._head, self.body, error))

    def answer(self, reply: Reply) -> None:
        """Set the reply, drop the body, and send every reply that is due."""
        self.reply = reply
        if self.expects:
            # Nobody knows whether the client will send the body, so the next bytes are ambiguous.
            self.keep_alive = False
        if self._trace is not None and self._head is not _UNCHECKED:  # spans are made only for known producers
            record_span(self.route, self.arrived, self._trace, status=reply.status)
        self._drop_body()
        self.connection.send_replies()

    def _drop_body(self) -> None:
        self.connection.flow.held -= self.size
        self.size = self.wanted = 0
        self.body, self._more = b"", bytearray()

    def _admitted(self, head: RequestHead, requester: Requester, admission: asyncio.Future[None]) -> None:
        """Look the producer up again: API keys and boards may have changed while the store decided about the rate."""
        try:
            admission.result()
            intake = self._shared.intake
            self._head = intake.known(head) or intake.check(head, intake.producer_of(head, requester))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            if self.reply is None:  # a body that is too large has a reply already
                self.answer(problem_reply(error))
        else:
            if self._is_first:
                self.begin()
                self.connection.flow.resume_reading()
            if self._is_complete and self.reply is None:
                self._submit()

    def _submit(self) -> None:
        intake = self._shared.intake
        try:
            if not intake.submit_plain(self._head, self.body, self):
                intake.submit(self._head, self.body, self.answer)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            self.answer(problem_reply(error))
