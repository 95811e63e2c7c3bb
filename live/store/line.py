"""A line to the store: commands and replies over one connection, many under way, with next to nothing around them.

redis-py makes the connection, with its URL, its TLS and its login; after that its machinery for each command (pool,
retries, telemetry, a task for every write) cost ten times what packing a batch and reading the reply does.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

Word = str | bytes | int | float

_ERRORS: Final = {"NOSCRIPT": NoScriptError, "NOPERM": NoPermissionError}


def _error(text: str) -> ResponseError:
    return _ERRORS.get(text.partition(" ")[0], ResponseError)(text)


class Wire(asyncio.Protocol):
    """A connection that redis-py has made, read by us; every reply, and what is pushed, comes to `received`."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False  # lost, or about to be: nothing that is sent now would be answered
        self._reader = hiredis.Reader(replyError=_error)
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, pool: ConnectionPool) -> None:
        """Connect as the connections of a pool do."""
        connection = cast("AbstractConnection", pool.make_connection())  # type: ignore[no-untyped-call]
        await connection.connect()  # type: ignore[no-untyped-call]
        # There is no public way to take the transport over. The writer is kept: it would close what it wrote to.
        self._writer, connection._writer, connection._reader = connection._writer, None, None  # noqa: SLF001
        assert self._writer is not None, "a connection that is made has a writer"  # noqa: S101
        self._transport = cast("asyncio.Transport", self._writer.transport)
        self._transport.set_protocol(self)

    def send(self, *commands: tuple[Word, ...]) -> None:
        """Send commands, in one piece."""
        assert self._transport is not None, "open first"  # noqa: S101
        packed = [hiredis.pack_command(words) for words in commands]  # type: ignore[arg-type] # the stub is wrong
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """A reply has come; an error of the store is an exception as a value."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        reader = self._reader
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            self.received(reply)

    def connection_lost(self, _error: Exception | None) -> None:
        """Tell whoever waits."""
        self.ended = True
        if not self.lost.done():
            self.lost.set_result(None)

    def abort(self) -> None:
        """Drop the connection at once."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()


class _Replies:
    """The replies to several commands, awaited together; errors of the store are among them as values."""

    def __init__(self, count: int, future: "asyncio.Future[list[Any]]") -> None:
        self._left = count
        self._future = future
        self._replies: list[Any] = []

    def done(self) -> bool:
        """Whether nobody waits any more."""
        return self._future.done()

    def set_result(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """One more."""
        self._replies.append(reply)
        if len(self._replies) == self._left:
            self._future.set_result(self._replies)

    def set_exception(self, error: Exception) -> None:
        """There will be no more."""
        self._future.set_exception(error)


class Line(Wire):
    """Calls and their replies, in order."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._calls: deque[asyncio.Future[Any] | _Replies] = deque()
        self._loop = asyncio.get_running_loop()

    async def call(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command and await its reply.

        Raises:
            ResponseError: the store refuses.
            LostConnectionError, TimeoutError: there was no reply; the command may have been carried out.
        """
        call = self._begin(words)
        self._calls.append(call)
        reply = await self._patiently(call)
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def calls(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Send commands in one piece and await all replies, of which some may be errors of the store, as values.

        Raises:
            LostConnectionError, TimeoutError: some reply did not come.
        """
        call = self._begin(*commands)
        self._calls.extend([_Replies(len(commands), call)] * len(commands))
        replies: list[Any] = await self._patiently(call)
        return replies

    def _begin(self, *commands: tuple[Word, ...]) -> "asyncio.Future[Any]":
        if self.ended:
            raise LostConnectionError("the connection to the store is lost")
        call = self._loop.create_future()
        self.send(*commands)
        return call

    async def _patiently(self, call: "asyncio.Future[Any]") -> Any:  # noqa: ANN401 - any reply
        patience = self._loop.call_later(self._timeout, self._give_up, call)
        try:
            return await call
        finally:
            patience.cancel()

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Give a reply to the first that waits."""
        call = self._calls.popleft()
        if not call.done():  # who waited may have been cancelled
            call.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail every call."""
        super().connection_lost(error)
        while self._calls:
            call = self._calls.popleft()
            if not call.done():
                call.set_exception(LostConnectionError(f"the connection to the store was lost: {error or 'closed'}"))

    def _give_up(self, call: "asyncio.Future[Any]") -> None:
        """No reply in time: replies could no longer be told apart, so the line is dropped."""
        if not call.done():
            call.set_exception(TimeoutError(f"the store did not answer within {self._timeout:g}s"))
        self.abort()


class SharedLine:
    """The line that all calls of a process share; made when it is needed, and made again when it was lost."""

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._line: Line | None = None
        self._opening: asyncio.Task[Line] | None = None

    async def call(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command and await its reply; raises as `Line.call` does, and as redis-py when it can't connect."""
        line = self._line
        if line is None or line.ended:
            line = await self._opened()
        return await line.call(*words)

    async def calls(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Send commands in one piece; as `Line.calls`, and raises as redis-py when it can't connect."""
        line = self._line
        if line is None or line.ended:
            line = await self._opened()
        return await line.calls(commands)

    async def _opened(self) -> Line:
        if self._opening is None:  # whoever comes meanwhile awaits the same attempt
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Drop the line."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._line is not None:
            self._line.abort()
            await self._line.lost

    async def _open(self) -> Line:
        try:
            line = Line(self._timeout)
            await line.open(self._pool)
            self._line = line
        finally:
            self._opening = None
        return line
