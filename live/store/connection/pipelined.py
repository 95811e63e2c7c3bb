"""A pipelined connection to the store: many commands in flight over one connection, with little overhead.

redis-py makes the connection, with its URL, TLS and login. For each command, redis-py's pool, retries, telemetry and
task for every write cost ten times as much as packing a batch and reading the reply.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError
from redis.typing import EncodableT

from live.errors import StoreUnavailableError

Word = str | bytes | int | float


class _Reign(str):
    __slots__ = ()


REIGN: Final = _Reign()
"""Stands for the reign as the last word of a command. A connection replaces it by the reign of its server."""

ERRORS: Final = (RedisError, OSError, TimeoutError)  # the errors that redis-py and our connection raise

SILENCE: Final = 3  # times the timeout of a call: a store that owes replies and is silent for so long has failed
# Seconds until a connection attempt is cancelled once more, because redis-py may swallow a cancellation.
_AGAIN: Final = 0.1
_CHECKS: Final = 10  # checks for late replies within one timeout of a call

_USER: Final = re.compile(r"(?<![^ ])User .*?(?= has no )", re.DOTALL)
_KINDS: Final = {"NOSCRIPT": NoScriptError, "NOPERM": NoPermissionError}


def _error(text: str) -> ResponseError:
    return _KINDS.get(text.partition(" ")[0], ResponseError)(text)


class ReplicasError(RedisError):
    """The store has run a command, and too few replicas hold its effect."""


def reason_of(error: Exception) -> str:
    """Return the text of an error, for logs and for `/readyz`: it does not name the user of the store."""
    return _USER.sub("this user", str(error)) or type(error).__name__


def as_unavailable(error: Exception) -> StoreUnavailableError:
    """Return the error that callers of the store get, made from one of `ERRORS`."""
    if isinstance(error, StoreUnavailableError):
        return error
    reason = reason_of(error)
    public = f"the store refuses: {reason}" if isinstance(error, ResponseError) else "the store does not answer"
    if isinstance(error, ReplicasError):
        public = reason
    found = StoreUnavailableError(reason, public=public, unknown=isinstance(error, ReplicasError))
    found.__cause__ = error  # `may_have_run` reads it
    return found


class OurConnection:
    """Changes a connection of redis-py: it can give its transport away, and it works on uvloop too."""

    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None

    async def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as in redis-py
        """Turn the error that uvloop raises if the server has closed the connection into one that redis-py knows."""
        try:
            await super().send_packed_command(command, check_health)  # type: ignore[misc] # the next class has it
        except RuntimeError as error:
            raise LostConnectionError("Connection closed by server.") from error

    def hand_over(self) -> asyncio.StreamWriter:
        """Give away the writer. The caller must keep it: a writer that is garbage-collected closes its transport."""
        writer, self._writer, self._reader = self._writer, None, None
        assert writer is not None, "connect first"  # noqa: S101
        return writer

    def pack_command(self, *args: EncodableT) -> list[bytes]:
        """Pack a command with hiredis in C, which redis-py does for its blocking client only.

        The first of `args` may contain a subcommand, as in `CLIENT SETINFO`.
        """
        words = (*str(args[0]).split(), *args[1:])
        return [hiredis.pack_command(words)]  # type: ignore[arg-type] # the stub says a tuple of one


class StoreConnection(asyncio.Protocol):
    """A connection made by redis-py and read by us. Every reply and every pushed message goes to `received`."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False  # whether the connection is lost or about to be, so that a new command would get no reply
        self._reader = hiredis.Reader(replyError=_error)
        self._transport: asyncio.Transport | None = None
        self.reign = ""  # the reign of the server; empty if no replica can be promoted
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, pool: ConnectionPool) -> None:
        """Connect with a connection that the pool makes."""
        connection = pool.make_connection()  # type: ignore[no-untyped-call]
        assert isinstance(connection, OurConnection), "the pool makes connections of ours"  # noqa: S101
        await cast("AbstractConnection", connection).connect()  # type: ignore[no-untyped-call]
        self._writer = connection.hand_over()
        self._transport = cast("asyncio.Transport", self._writer.transport)
        self._transport.set_protocol(self)

    def send(self, *commands: tuple[Word, ...]) -> None:
        """Send commands, in one packet with everything that is sent before the event loop's next turn.

        One event may be for a thousand boards, and the store syncs to disk once for all commands that it reads at once.
        """
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        for words in commands:
            if words[-1] is REIGN:
                words = (*words[:-1], self.reign)  # noqa: PLW2901
            self._unsent.append(hiredis.pack_command(words))  # type: ignore[arg-type] # the stub is wrong

    def _flush(self) -> None:
        assert self._transport is not None, "open first"  # noqa: S101
        unsent, self._unsent = self._unsent, []
        if not self.ended:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Handle a reply. If the store reports an error, the reply is an exception object."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Read replies from bytes."""
        reader = self._reader
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            self.received(reply)

    def connection_lost(self, _error: Exception | None) -> None:
        """Wake the tasks that wait for the loss."""
        self.ended = True
        if not self.lost.done():
            self.lost.set_result(None)

    def abort(self) -> None:
        """Drop the connection at once."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()


class _Call:
    """A command: the future of its reply, and when it was written (seconds of the loop's clock; infinite before)."""

    __slots__ = ("future", "sent")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self.future = future
        self.sent = math.inf

    def take(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Take the reply. Nobody waits for the reply of a call that was cancelled or timed out."""
        if not self.future.done():
            self.future.set_result(reply)


class _Calls(_Call):
    """Several commands whose replies are awaited together. An error of the store is one of the replies."""

    __slots__ = ("_left", "_replies")

    def __init__(self, future: "asyncio.Future[Any]", count: int) -> None:
        super().__init__(future)
        self._left = count
        self._replies: list[Any] = []

    def take(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Take one of the replies."""
        self._replies.append(reply)
        if len(self._replies) == self._left:
            super().take(self._replies)


class PipelinedConnection(StoreConnection):
    """Calls and their replies, in order.

    A call without a reply for `timeout` seconds fails alone: its late reply is dropped, and the connection stays. The
    connection is dropped if the store owes replies and sends nothing at all for `SILENCE` times `timeout` seconds. Then
    its machine has probably failed. Both are noticed at most a tenth of `timeout` late.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._calls: deque[_Call] = deque()
        self._loop = asyncio.get_running_loop()
        self._received_at = self._loop.time()
        self._check_timer: asyncio.TimerHandle | None = None  # runs while a reply is owed

    async def call(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command and await its reply.

        Raises:
            ResponseError: the store refuses the command.
            LostConnectionError, TimeoutError: there was no reply; the store may have run the command.
        """
        call = _Call(self._begin(words))
        self._calls.append(call)
        reply = await call.future
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def calls(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Send commands in one packet and await all replies. An error of the store is one of the replies."""
        if not commands:
            return []
        call = _Calls(self._begin(*commands), len(commands))
        self._calls.extend([call] * len(commands))
        replies: list[Any] = await call.future
        return replies

    def _begin(self, *commands: tuple[Word, ...]) -> "asyncio.Future[Any]":
        if self.ended:
            raise LostConnectionError("the connection to the store is lost")
        self.send(*commands)
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(self._timeout, self._check_late_calls)
        return self._loop.create_future()

    def _flush(self) -> None:
        written = len(self._unsent)
        super()._flush()
        now = self._loop.time()  # read it here: the process may have been delayed since the calls began
        for call in islice(reversed(self._calls), written):
            call.sent = now

    def data_received(self, data: bytes) -> None:
        """Read replies from bytes."""
        self._received_at = self._loop.time()
        super().data_received(data)

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Give a reply to the first call that waits."""
        self._calls.popleft().take(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail every waiting call."""
        super().connection_lost(error)
        self._fail(LostConnectionError, f"the connection to the store was lost: {error or 'closed'}")

    def _check_late_calls(self) -> None:
        """Fail the calls that have waited too long, and drop the connection when the store is silent."""
        self._check_timer = None
        if not self._calls or self.ended:
            return
        now = self._loop.time()
        silence = now - max(self._received_at, self._calls[0].sent)
        if silence >= SILENCE * self._timeout:
            self._fail(LostConnectionError, f"the store owes replies and has sent nothing for {silence:.3g}s")
            self.abort()
            return
        self._fail(TimeoutError, f"the store did not answer within {self._timeout:g}s", now - self._timeout)
        self._check_timer = self._loop.call_later(self._timeout / _CHECKS, self._check_late_calls)

    def _fail(self, kind: type[Exception], reason: str, before: float = math.inf) -> None:
        """Fail the waiting calls that were sent before a time. They stay in the queue: their replies may still come."""
        for call in self._calls:
            if call.sent > before:
                break
            if not call.future.done():
                call.future.set_exception(kind(reason))


Holds = Callable[[str], bool]  # whether a server holds a store key
Hook = Callable[[PipelinedConnection, Holds], Awaitable[None]]


class SharedConnection:
    """The connection to a server that all calls of a process share. It is opened when needed, and again after a loss.

    Each of `on_connect` runs on a new connection before any call is sent over it.
    """

    def __init__(
        self, pool: ConnectionPool, timeout: float, on_connect: Sequence[Hook] = (), holds: Holds = lambda _key: True
    ) -> None:
        self._on_connect = on_connect
        self._holds = holds
        self.pool = pool
        self._timeout = timeout
        self._connection: PipelinedConnection | None = None
        self._opening: asyncio.Task[PipelinedConnection] | None = None

    async def call(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Call over a connection; the errors are also those of redis-py if it cannot connect."""
        connection = self._connection
        if connection is None or connection.ended:
            connection = await self.opened()
        return await connection.call(*words)

    async def calls(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Send commands in one packet; the errors are also those of redis-py if it cannot connect."""
        connection = self._connection
        if connection is None or connection.ended:
            connection = await self.opened()
        return await connection.calls(commands)

    async def opened(self) -> PipelinedConnection:
        """Return the connection, and open it if needed. Raises the error of redis-py or of a hook."""
        connection = self._connection
        if connection is not None and not connection.ended:
            return connection
        if self._opening is None or self._opening.done():  # all callers await the same attempt
            self._opening = asyncio.create_task(self._open())
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and not (task is not None and task.cancelling()):
                # The attempt was cancelled, but not this caller.
                raise LostConnectionError("No connection available: it is closed") from None
            # By this message, `may_have_run` tells a caller whose time is over that nothing was sent.
            raise asyncio.CancelledError("No connection available: it is being opened") from None

    @property
    def reign(self) -> str:
        """The reign of the server, as last read."""
        return "" if self._connection is None else self._connection.reign

    async def prepare_again(self, prepare: Hook) -> None:
        """Run a hook on the connection, if there is one."""
        if self._connection is not None and not self._connection.ended:
            await prepare(self._connection, self._holds)

    def drop(self) -> None:
        """Drop the connection, if there is one. The next call opens another connection."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Drop the connection, and wait until it has ended."""
        while (opening := self._opening) is not None and not opening.done():
            opening.cancel()
            await asyncio.wait([opening], timeout=_AGAIN)
        if self._connection is not None:
            self._connection.abort()
            await self._connection.lost

    async def _open(self) -> PipelinedConnection:
        try:
            connection = PipelinedConnection(self._timeout)
            await connection.open(self.pool)
            try:
                for prepare in self._on_connect:
                    await prepare(connection, self._holds)
            except BaseException:
                connection.abort()
                raise
            self._connection = connection
        finally:
            self._opening = None
        return connection
