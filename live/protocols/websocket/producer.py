"""A producer's WebSocket, `GET /v1/events/live`, from the transport straight to the intake.

Answers are sent in the order of the messages. The server stops reading from a producer that exceeds its rate or does
not read its answers. It drops no message.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from live.errors import CLOSE_CODES, KEY_REVOKED, SHUTTING_DOWN, ProblemError, StoreUnavailableError
from live.ingest.committer import Committed
from live.ingest.replies import Reply, problem_reply
from live.ingest.session import Session
from live.protocols.websocket.framing import MessageReader
from live.protocols.websocket.handshake import BAD_TEXT
from live.protocols.websocket.heartbeat import Heartbeat
from live.protocols.websocket.messages import Message, MessageQueue


class ProducerSocket(asyncio.Protocol):
    """A producer's connection after its handshake."""

    def __init__(self, session: Session, max_size: int, closed: Callable[[], None]) -> None:
        """Take over a connection; `max_size` limits messages, in bytes. `closed` is called when it is closed."""
        self._session = session
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._reader = MessageReader(max_size)
        self._queue = MessageQueue()
        self._heartbeat = Heartbeat(self._ping, self._abort, lambda: not self._read_paused)
        self._submitting: asyncio.Task[None] | None = None  # submits the held messages
        self._continuing = False  # whether the remaining frames are read in the next turn of the loop
        self._flushing = False  # whether answers are sent in the next turn of the loop
        self._ending: tuple[int, str] | None = None  # the close code and reason
        self._read_paused = self._write_paused = False

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; the handshake is done."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop; submitted messages are still counted."""
        self._closed()
        self._heartbeat.stop()
        if self._submitting is not None:
            self._submitting.cancel()
        self._queue.clear()
        self._transport = None

    def pause_writing(self) -> None:
        """Stop reading: the producer does not read its answers."""
        self._write_paused = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        """Read again: the producer reads its answers."""
        self._write_paused = False
        self._pause_or_resume()

    def data_received(self, data: bytes) -> None:
        """Read the messages in `data`, unless earlier bytes wait."""
        self._heartbeat.received()
        reader = self._reader
        if (reader.has_more or self._ending is not None or self._queue.is_ahead) and reader.is_open:
            reader.hold(data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        has_output = self._reader.read(data, self._on_message)
        if self._ending is not None or not self._reader.is_open:
            self._finish()
        elif has_output:
            self._send_output()
        self._pause_or_resume()

    def _continue(self) -> None:
        """Read the frames that were left for this turn."""
        self._continuing = False
        if self._reader.has_more and self._transport is not None and not self._is_over:
            self._read(b"")

    def _pause_or_resume(self) -> None:
        """Read from the transport, or leave the next messages in the producer's own buffers."""
        pause = self._write_paused or self._queue.is_ahead or (bool(self._queue) and self._is_over)
        if self._reader.has_more and not self._is_over:
            if not (pause or self._continuing):
                self._continuing = True
                asyncio.get_running_loop().call_soon(self._continue)
            pause = True
        if pause != self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _is_over(self) -> bool:
        """Whether no more messages are accepted."""
        return self._ending is not None or not self._reader.is_open

    # Messages

    def _on_message(self, body: bytes, is_text: bool) -> bool:  # noqa: FBT001 - called by position
        """Submit a message, or hold it until it is admitted; returns whether to read more."""
        if is_text and not body.isascii() and not _is_utf8(body):
            self._ending = (BAD_TEXT, "not UTF-8")
            return False
        message = Message(self, body)
        queue, session = self._queue, self._session
        try:
            admitted = queue.held is None and session.admit_now()
        except ProblemError:
            self._ending = (KEY_REVOKED, CLOSE_CODES[KEY_REVOKED].reason)
            return False
        except StoreUnavailableError as error:
            queue.add(message)
            self.answer(message, problem_reply(error))
            return not queue.is_ahead
        queue.add(message)
        if not admitted or not session.submit(body, message, message.reply):
            queue.hold(message)
            if self._submitting is None:
                self._submitting = asyncio.get_running_loop().create_task(self._submit_held(admitted=admitted))
        return not queue.is_ahead

    async def _submit_held(self, *, admitted: bool) -> None:
        """Submit the held messages in order, each as soon as it is admitted."""
        while (message := self._queue.held) is not None:
            try:
                if not admitted:
                    await self._session.admit()
                await self._session.submit_when_room(message.body, message, message.reply)
            except StoreUnavailableError as error:
                message.reply(problem_reply(error))
            except ProblemError:
                self._queue.drop_held()
                self._end(KEY_REVOKED, CLOSE_CODES[KEY_REVOKED].reason)
                break
            admitted = False
            self._queue.release()
        self._submitting = None
        self._pause_or_resume()

    def resolve(self, message: Message, outcome: Committed | Exception) -> None:
        """The outcome of a message with one event is known."""
        self.answer(message, self._session.reply_to_plain(message.body, outcome))

    def answer(self, message: Message, reply: Reply) -> None:
        """Queue an answer. Answers of one turn of the loop are sent together, in the order of the messages."""
        self._queue.answer(message, reply)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write(self._queue.take_answered())
        self._finish()
        self._pause_or_resume()

    def _write(self, frames: Sequence[bytes]) -> None:
        if frames and self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    # The end

    def shutdown(self) -> None:
        """Answer the messages in progress, then close: the server stops."""
        self._end(SHUTTING_DOWN, CLOSE_CODES[SHUTTING_DOWN].reason)

    def _end(self, code: int, reason: str) -> None:
        """Accept no more messages, and close when all are answered."""
        if self._ending is None:
            self._ending = (code, reason)
            self._finish()
            self._pause_or_resume()

    def _finish(self) -> None:
        """Close if the socket is ending and all messages are answered."""
        if self._queue or not self._is_over:
            return
        self._heartbeat.close()
        if self._ending is not None and self._reader.is_open:
            self._reader.close(*self._ending)
        self._send_output()

    def _send_output(self) -> None:
        """Send control frames; close the connection when the closing handshake is complete."""
        output = self._reader.output()
        self._write([data for data in output if data])
        if b"" not in output or self._transport is None:
            return
        if not self._reader.is_closed_by_client and self._transport.can_write_eof():
            self._transport.write_eof()  # go on reading: a reset would destroy the last frames
        else:
            self._transport.close()

    def _ping(self) -> None:
        if self._reader.is_open:
            self._reader.ping()
            self._send_output()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
