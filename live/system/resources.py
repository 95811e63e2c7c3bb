"""What the clients of a process hold: connections, bodies, answers, viewers, and turns. A client is a network.

Each resource has the same rule. Nobody may hold more than half of it. When it is used up, the client that holds most
loses its slowest if it holds more than the client that asks. Otherwise the client that asks is refused.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from live.errors import ProblemError
from live.settings import Settings

_T = TypeVar("_T")

Lose: TypeAlias = Callable[[str, int], bool]
"""Lets a client lose its slowest. Returns False if it loses nothing.

The second argument is how much the client that asks would hold. A client that holds more than twice as much may lose
more than what is slow.
"""

_GRAIN: Final = 16 * 1024  # bytes; sums of bytes are compared in steps of this size
_UNREAD: Final = 2  # the budget of answers that clients have not read yet, in budgets of bodies: `max_unanswered`
_ONE_READ: Final = 256 * 1024  # bytes that a connection may have received before it is paused
_REPLACED: Final = 32  # viewers that lost their place and are still connected
_RECORDINGS: Final = 16  # boards that a process delays
_DRAWINGS_WAITING: Final = 1000
PAST_AT_ONCE: Final = 2  # processes that run queries of the past
_PAST_WAITING: Final = 32
_LOOK_AT: Final = 32  # things of a client that are looked at to find a slow one
_MOST_LOOKED_AT: Final = 64  # things of all clients
_MOST_FOUND: Final = 64  # clients that hold equally much


class Resource(Generic[_T]):
    """One resource: the things of each client, and how much of the resource each of them takes.

    Every method costs the same however many clients and things there are. `lose` is called to make room.
    """

    def __init__(self, most: int, lose: Lose = lambda _client, _asks: False, grain: int = 1) -> None:
        """Share out `most`. Amounts that differ by less than `grain` count as equal."""
        self.most = most
        self.held = 0
        self.lose = lose
        self.things: dict[str, dict[_T, int]] = {}  # by client
        self._grain = grain
        self._held_by: dict[str, int] = {}
        self._alike: dict[int, dict[str, None]] = {}  # the clients, by how much they hold

    def of(self, client: str) -> int:
        """Return how much a client holds."""
        return self._held_by.get(client, 0)

    def size_of(self, client: str, thing: _T) -> int:
        """Return how much a thing of a client takes."""
        things = self.things.get(client)
        return 0 if things is None else things.get(thing, 0)

    def set(self, client: str, thing: _T, amount: int) -> None:
        """Note how much a thing of a client takes now. A thing that is gone takes 0."""
        things = self.things.get(client)
        if things is None:
            if not amount:
                return
            things = self.things[client] = {}
        more = amount - things.get(thing, 0)
        if not more:
            return
        if amount:
            things[thing] = amount
        else:
            del things[thing]
            if not things:
                del self.things[client]
        before = self._held_by.pop(client, 0)
        now = before + more
        self.held += more
        if now:
            self._held_by[client] = now
        old, new = -(-before // self._grain), -(-now // self._grain)
        if old != new:
            if old:
                alike = self._alike[old]
                del alike[client]
                if not alike:
                    del self._alike[old]
            if new:
                self._alike.setdefault(new, {})[client] = None

    def has_room(self, more: int = 1) -> bool:
        """Tell whether so much is left. One thing always has room, whatever its size."""
        return (not self.held and self.most > 0) or self.held + more <= self.most

    def is_within_half(self, client: str, more: int = 1) -> bool:
        """Tell whether a client may hold more. A client that holds nothing may always hold one thing."""
        held = self.of(client)
        return not held or held + more <= self.most // 2

    def make_room(self, client: str, more: int = 1, *, is_shared: bool = False) -> bool:
        """Tell whether a client may hold more now. At the limit, let the client that holds most lose its slowest.

        Many clients share an address with `is_shared`. It may hold more than half, and counts as if it held nothing,
        because nobody knows how much the client that asks holds.
        """
        if not (is_shared or self.is_within_half(client, more)):
            return False
        if self.has_room(more):
            return True
        held, left = 0 if is_shared else self.of(client), _MOST_LOOKED_AT
        for other in self._largest(held):
            if self.lose(other, held + more):
                return self.has_room(more)
            left -= min(len(self.things[other]), _LOOK_AT)
            if left <= 0:
                break
        return False

    def some_of(self, client: str) -> list[_T]:
        """Return some things of a client, and each time others of them."""
        things = self.things[client]
        some = list(islice(things, _LOOK_AT))
        for thing in some:
            things[thing] = things.pop(thing)
        return some

    def _largest(self, least: int) -> Iterator[str]:
        """Find the clients that hold more than `least`: first those that hold most, and each time others of them."""
        for size in sorted((size for size in self._alike if size * self._grain > least), reverse=True):
            alike = self._alike.get(size, {})
            for client in list(islice(alike, _MOST_FOUND)):
                alike[client] = alike.pop(client)
                if self._held_by[client] > least:
                    yield client


class Turns:
    """Gives turns to clients, one at a time each, however many requests of a client wait."""

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Give `at_once` turns at a time, each to another client."""
        self._free = at_once
        self._served: set[str] = set()  # the clients that have a turn
        self._waiting = Resource[asyncio.Future[None]](most_waiting, self._refuse_newest)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._waiting.held

    async def enter(self, client: str) -> None:
        """Wait for a turn of a client. The turn lasts until `leave`. A cancelled request leaves the queue."""
        # If a turn is free, only clients that have a turn already can be waiting.
        if self._free and client not in self._served:
            self._serve(client)
            return
        if not self._waiting.make_room(client):
            raise _too_many_wait()
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.set(client, waiter, 1)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.set(client, waiter, 0)
            elif waiter.exception() is None:  # the request got its turn at the same moment
                self.leave(client)
            raise

    def leave(self, client: str) -> None:
        """End the turn of a client, and give the turn to the next client."""
        self._served.discard(client)
        self._free += 1
        waiting = self._waiting.things  # the client whose turn is next is first
        while (following := next((each for each in waiting if each not in self._served), None)) is not None:
            waiter = next(iter(waiting[following]))
            self._waiting.set(following, waiter, 0)
            if following in waiting:  # the client's next request comes after those of all other clients
                waiting[following] = waiting.pop(following)
            if not waiter.done():  # the request may have been cancelled
                self._serve(following)
                waiter.set_result(None)
                return

    async def share(self, client: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Do work in a turn of a client. The next turn begins after other work of the process has had as much time."""
        try:
            await self.enter(client)
        except BaseException:
            work.close()
            raise
        timed = _TimedWork(work)
        try:
            return await timed
        finally:
            asyncio.get_running_loop().call_later(timed.spent, self.leave, client)

    def _serve(self, client: str) -> None:
        self._free -= 1
        self._served.add(client)

    def _refuse_newest(self, client: str, asks: int) -> bool:
        if self._waiting.of(client) <= asks:
            return False
        newest = next(reversed(self._waiting.things[client]))
        self._waiting.set(client, newest, 0)
        if not newest.done():  # the request may have been cancelled
            newest.set_exception(_too_many_wait())
        return True


class _TimedWork(Generic[_T]):
    """Work whose time on the processor is `spent` seconds. The time of other tasks in between does not count."""

    def __init__(self, work: Awaitable[_T]) -> None:
        self.spent = 0.0
        self._work = work

    def __await__(self) -> Generator[Any, None, _T]:
        steps = self._work.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            began = time.thread_time()
            try:
                waits_for = step()
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self.spent += time.thread_time() - began
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - the work gets it
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)


def _too_many_wait() -> ProblemError:
    return ProblemError("overloaded", "too many requests wait for their turn: try again later", retry_after=1)


class Resources:
    """What each client of a process holds of each resource."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Resource[Any](settings.max_connections)
        self.bodies = Resource[Any](settings.max_unanswered, grain=_GRAIN)  # bytes of bodies that are not answered
        self.bodies_waiting = Resource[Any](-(-settings.max_unanswered // _ONE_READ))
        self.answers = Resource[Any](_UNREAD * settings.max_unanswered, grain=_GRAIN)  # bytes
        self.viewers = Resource[Any](settings.max_viewers)
        self.replaced = Resource[Any](_REPLACED)
        self.recordings = Resource[Any](_RECORDINGS)
        self.drawings = Turns(1, _DRAWINGS_WAITING)
        self.metrics = Turns(1, _DRAWINGS_WAITING)
        self.past = Turns(PAST_AT_ONCE, _PAST_WAITING)
