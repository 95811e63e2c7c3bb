"""The connection to a primary, and calls that return when replicas hold their effect.

With `appendfsync always` on the replicas, WAIT returns after their fsync. WAITAOF is of no use: replicas report their
fsync once a second only, and some versions of the store answer before the fsync.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio.connection import ConnectionPool
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

from live.settings import Settings
from live.store.connection.pipelined import Holds, Hook, ReplicasError, SharedConnection, Word

_LONGEST: Final = 0.5  # seconds for which one WAIT waits at most
PATIENCE = 2.0  # seconds for which a call waits for replicas
_TRUST: Final = 1.0  # seconds for which a primary is trusted after its replicas have confirmed a write
_DOUBT: Final = 1.5  # seconds within which replicas must confirm when the primary is no longer trusted
_SLOTS: Final = 16_384
_FENCES: Final = 3  # attempts to find a store key that no other server takes over at this moment

# A write that leaves nothing behind, and works if the memory of the store is full. A script may find that its change
# has been made already, and write nothing. Valkey waits only for the last write of a connection, so without this write,
# such a script would return before replicas have the change.
_FENCE: Final = "#!lua flags=allow-oom\nredis.call('SET', KEYS[1], '')\nreturn redis.call('DEL', KEYS[1])"

_CLOSED: Final = "the connection to the store was closed"

Words = tuple[Word, ...]


class PrimaryConnection(SharedConnection):
    """The connection to a primary, with another one for calls that wait for its replicas: WAIT blocks its connection.

    A packet with a WAIT is sent after the previous WAIT has ended. By measurement, four such connections are no faster.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        settings: Settings,
        on_connect: Sequence[Hook],
        holds: Holds = lambda _key: True,
    ) -> None:
        timeout = float(settings.store_timeout)
        super().__init__(pool, timeout, on_connect, holds)
        self._replicas = settings.wait_replicas
        self._prefix = settings.key_prefix
        self._wait = ("WAIT", self._replicas, round(1000 * min(_LONGEST, timeout / 2)))
        self._line = SharedConnection(pool, timeout, on_connect, holds)
        self._sending: asyncio.Task[None] | None = None
        self._unsent: list[tuple[Sequence[Words], asyncio.Future[list[Any]]]] = []
        self._fence = 0  # the number in the store key of the fence
        self._trusted_until = float("-inf")  # until when the server counts as the primary, by the loop's clock
        self._asking: asyncio.Task[None] | None = None

    async def writes(self, commands: Sequence[Words]) -> list[Any]:
        """Send commands as `calls` does. Return when the replicas hold what the commands have changed or read.

        All that is sent in one turn of the event loop, or while another packet waits, shares a packet and a WAIT. If
        too few replicas confirm in time, a `ReplicasError` replaces every reply that is not an error.
        """
        if not self._replicas:
            return await self.calls(commands)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._unsent.append((commands, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await future

    async def write(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command as `writes` does. An error is raised."""
        (reply,) = await self.writes([words])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def read(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a read-only command once the server counts as the primary."""
        await self.require_replicas()
        return await self.call(*words)

    async def require_replicas(self) -> float:
        """Return until when the server counts as the primary. If this time has passed, ask its replicas.

        Concurrent callers share this question. Any write that replicas confirm renews the trust, so the replicas of a
        busy server need not be asked.

        Raises:
            TimeoutError: too few replicas confirm. Another server may be the primary by now.
            ResponseError: the server is no longer the primary.
        """
        if not self._replicas:
            return float("inf")
        if asyncio.get_running_loop().time() >= self._trusted_until:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask_replicas())
                self._asking.add_done_callback(_retrieve)
            await asyncio.shield(self._asking)
        return self._trusted_until

    async def _ask_replicas(self) -> None:
        doubt = TimeoutError(f"too few replicas confirmed within {_DOUBT} s that the server still is the primary")
        try:
            async with asyncio.timeout(_DOUBT):
                (reply,) = await self.writes([("PING",)])
        except TimeoutError:
            raise doubt from None
        if isinstance(reply, ReplicasError):
            raise reply.__cause__ or doubt

    async def prepare_again(self, prepare: Hook) -> None:
        """Run a hook on both connections, if they are open."""
        await super().prepare_again(prepare)
        await self._line.prepare_again(prepare)

    def drop(self) -> None:
        """Drop both connections. The next calls open new connections."""
        super().drop()
        self._line.drop()

    async def close(self) -> None:
        """Drop both connections, and wait until they have ended."""
        await self._line.close()
        if self._asking is not None:
            self._asking.cancel()
        if (sending := self._sending) is not None:
            sending.cancel()
            await asyncio.wait([sending])
        # If the task has not begun, these calls were never sent.
        unsent, self._unsent, self._sending = self._unsent, [], None
        _fail([future for _, future in unsent], LostConnectionError(_CLOSED))
        await super().close()

    async def _send(self) -> None:
        waiting: list[asyncio.Future[list[Any]]] = []
        try:
            while self._unsent:
                packet, self._unsent = self._unsent, []
                waiting = [future for _, future in packet]
                try:
                    replies = iter(await self._confirmed([words for commands, _ in packet for words in commands]))
                except Exception as error:  # noqa: BLE001 - the callers handle it
                    _fail(waiting, error)
                    continue
                for commands, future in packet:
                    own = [next(replies) for _ in commands]
                    if not future.done():  # the caller may have left meanwhile
                        future.set_result(own)
        except asyncio.CancelledError:
            # The callers get an error, because a cancelled future would cancel them.
            _fail(waiting, LostConnectionError(_CLOSED))
            raise
        finally:
            self._sending = None

    async def _confirmed(self, commands: list[Words]) -> list[Any]:
        """Send commands, a test write and a WAIT over one connection, and so to one server."""
        connection = await self._line.opened()
        loop = asyncio.get_running_loop()
        began = loop.time()
        replies: list[Any] = []
        held: Any = 0
        for _ in range(_FENCES):
            key = self._fence_key()
            *found, fence, held = await connection.calls([*commands, ("EVAL", _FENCE, 1, key), self._wait])
            replies += found
            commands = []
            if not isinstance(fence, Exception) or all(isinstance(reply, ResponseError) for reply in replies):
                break
            held = fence
            self._fence += 1
        until = loop.time() + PATIENCE
        while isinstance(held, int) and held < self._replicas and loop.time() < until:
            held = await connection.call(*self._wait)
        if isinstance(held, int) and held >= self._replicas:
            self._trusted_until = began + _TRUST
            return replies
        why = f"only {held} of {self._replicas} replicas" if isinstance(held, int) else f"no replica: {held}"
        failed = ReplicasError(f"the write was confirmed by {why}")
        failed.__cause__ = held if isinstance(held, ResponseError) else None
        return [reply if isinstance(reply, ResponseError) else failed for reply in replies]

    def _fence_key(self) -> str:
        """Return a store key that this server holds, if possible."""
        for number in range(self._fence, self._fence + _SLOTS):
            key = f"{self._prefix}:{{:fence:{number}}}"
            if self._holds(key):
                self._fence = number
                return key
        return f"{self._prefix}:{{:fence:0}}"  # a server that holds no slot refuses this store key


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Retrieve the error: asyncio would log it if all callers that waited for it have left."""
    if not task.cancelled():
        task.exception()


def _fail(waiting: "Sequence[asyncio.Future[list[Any]]]", error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
