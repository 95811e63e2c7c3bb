"""Reads that concurrent requests share, and that are skipped while a board stays at the same position."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import structlog
from msgspec import UNSET

from live.domain.ranking import Page
from live.store.board.read.reader import BoardReader, PageResult, Selection
from live.store.registry.presence import Presence

_MOST_MEMORY: Final = 20_000_000  # bytes of all cached readings, with the replies that were made of them
_RECORD: Final = 400  # bytes of a record in a reading, approximately
_CROWD: Final = 8  # callers that share one call; from this number on, the next call is delayed
_PACE: Final = 0.004  # seconds between two calls for a crowd
_FIRST: Final = Selection("rank", 0, "", 1)
_READING: Final = 8000  # bytes of a reading without records
_NAMES: Final = 4  # maximum bytes of memory for one byte of a name
_COUNT_SERVES: Final = 0.25  # seconds for which a count is used again; processes report their viewers every few seconds
_MOST_COUNTS: Final = 1024

log = structlog.get_logger()

Call: TypeAlias = Callable[[], Awaitable[Any]]
Callback: TypeAlias = Callable[[Any], None]
_T = TypeVar("_T")


class SingleFlight:
    """Calls that concurrent callers share.

    A call answers only callers that came before the call began. So its result is never older than their requests. While
    a call is in progress, new callers wait for the next call, which they share. After a call that at least `crowd`
    callers shared, the next call begins at least `pace` seconds after that call began, so that many callers share the
    next one too. So many callers cause a bounded number of calls, even on a board that changes all the time. If fewer
    callers shared the call, the next one does not wait for `pace`.
    """

    def __init__(self, crowd: int = _CROWD, pace: float = _PACE) -> None:
        self._crowd = crowd
        self._pace = pace
        self._waiting: dict[Hashable, list[Callback]] = {}  # the callers that wait for the next call
        self._calling: dict[Hashable, asyncio.Task[None]] = {}

    def join(self, key: Hashable, call: Call, callback: Callback) -> None:
        """Pass the result, or the error, of the next call with a key to `callback`."""
        self._waiting.setdefault(key, []).append(callback)
        if key not in self._calling:
            self._calling[key] = asyncio.create_task(self._run(key, call))

    async def call(self, key: Hashable, call: Call) -> Any:  # noqa: ANN401 - whatever `call` returns
        """Return the result of the next call with a key, or raise its error."""
        future = asyncio.get_running_loop().create_future()

        def settle(result: Any) -> None:  # noqa: ANN401 - any result
            if future.done():
                return  # the caller has left meanwhile
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.join(key, call, settle)
        return await future

    async def _run(self, key: Hashable, call: Call) -> None:
        loop = asyncio.get_running_loop()
        try:
            while key in self._waiting:
                await asyncio.sleep(0)  # requests that have already arrived share the call too
                callers, began = self._waiting.pop(key), loop.time()
                result: Any
                try:
                    result = await call()
                except Exception as error:  # noqa: BLE001 - every caller learns of it
                    result = error
                for callback in callers:
                    try:
                        callback(result)
                    except Exception:
                        log.exception("a caller of a shared call failed")  # the other callers still receive the result
                if len(callers) >= self._crowd:
                    await asyncio.sleep(began + self._pace - loop.time())
        finally:
            del self._calling[key]


class VersionCache(Generic[_T]):
    """The result of the newest read for each owner. Each version is read once, and all requests share the result."""

    def __init__(self) -> None:
        self._reads: WeakKeyDictionary[Any, tuple[Hashable, asyncio.Task[_T]]] = WeakKeyDictionary()

    async def of(self, owner: object, version: Hashable, read: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of `read` for a version. A failed read is not kept: the next request reads again."""
        held, task = self._reads.get(owner, (None, None))
        if task is None or held != version or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(read())
            self._reads[owner] = (version, task)
        return await asyncio.shield(task)  # a canceled request does not cancel the read for the others


class SharedPages:
    """The reads of all boards of a process. It holds the last reading of each selection, within a limit of memory."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._calls = SingleFlight()
        self._held: OrderedDict[tuple[BoardReader, Selection], PageResult] = OrderedDict()
        self._size = 0
        # The numbers of viewers of boards, and until when each is valid.
        self._counts: dict[str, tuple[int, float]] = {}

    async def read(self, reader: BoardReader, selection: Selection, *, counted: bool = False) -> PageResult:
        """Read a selection, and count the viewers of the board if asked to. An unchanged page is the same object."""
        key, call = self._call(reader, selection, counted=counted)
        found: PageResult = await self._calls.call(key, call)
        return found

    def read_soon(
        self,
        reader: BoardReader,
        selection: Selection,
        callback: Callable[[PageResult | Exception], None],
        *,
        counted: bool,
    ) -> None:
        """Read without a task for each caller: pass the result, or the error, to `callback`."""
        self._calls.join(*self._call(reader, selection, counted=counted), callback)

    async def newest(self, reader: BoardReader) -> int | None:
        """Return the start of the newest period; None without periods, or before the first event of an event clock."""
        return (await self.read(reader, _FIRST)).page.slot

    def _call(self, reader: BoardReader, selection: Selection, *, counted: bool) -> tuple[Hashable, Call]:
        return (reader, selection, counted), partial(self._read, reader, selection, counted=counted)

    async def _read(self, reader: BoardReader, selection: Selection, *, counted: bool) -> PageResult:
        if not counted:
            return await self._select(reader, selection)
        reading, viewers = await asyncio.gather(self._select(reader, selection), self.viewers(reader.state.board.id))
        return reading._replace(viewers=viewers)

    async def viewers(self, board: str) -> int:
        """Return the number of viewers of a board in all processes, counted at most `_COUNT_SERVES` seconds ago."""
        viewers, until = self._counts.get(board, (0, 0.0))
        if asyncio.get_running_loop().time() < until:
            return viewers
        viewers = await self._presence.count(board)
        if len(self._counts) >= _MOST_COUNTS:
            self._counts.clear()
        self._counts[board] = viewers, asyncio.get_running_loop().time() + _COUNT_SERVES
        return viewers

    async def _select(self, reader: BoardReader, selection: Selection) -> PageResult:
        key = (reader, selection)
        held = self._held.get(key)
        await reader.state.use()
        reading = await reader.select(selection, held)
        if self._held.get(key) is reading:
            self._held.move_to_end(key)
        else:
            self._drop(self._held.pop(key, None))
            self._held[key] = reading
            made = reading.page.made
            made.keep("reading", None, _size_of(selection, reading.page))
            made.on_growth = self._grow
            self._grow(made.size)  # this may drop readings that were unused for longest
        return reading

    def _grow(self, size: int) -> None:
        self._size += size
        while self._size > _MOST_MEMORY and self._held:
            self._drop(self._held.popitem(last=False)[1])

    def _drop(self, reading: PageResult | None) -> None:
        if reading is not None:
            reading.page.made.on_growth = None
            self._size -= reading.page.made.size


def _size_of(selection: Selection, page: Page) -> int:
    """Estimate the bytes of a page and its selection: both contain names of any length."""
    texts = _NAMES * (len(selection.name) + sum(map(len, page.names)))
    metadata = sum(len(bytes(record.metadata)) for record in page.records if record.metadata is not UNSET)
    return _READING + _RECORD * len(page.records) + texts + metadata
