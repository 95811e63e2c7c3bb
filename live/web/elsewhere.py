"""Work on the journal in a separate process, so that viewers and producers do not wait for it."""

import asyncio
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

import structlog

from live.boards.admin import Ruling
from live.boards.definitions import all_boards
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.journal.database import Database, existing_journal
from live.maintenance.rules import RuleChange, change_rules
from live.maintenance.trail import find_trail
from live.maintenance.void import Criteria, EventSearch, Outcome
from live.maintenance.void import void as void_events
from live.settings import Settings
from live.store.board.manage.swap import clean
from live.store.board.state import BoardState
from live.store.connection.client import Store
from live.store.connection.embedded import opened_store
from live.system.processes import CHILDREN, follow_parent

log = structlog.get_logger()

_PATIENCE: Final = 60.0  # seconds for a void, after which an administrator uses the command
_LONG: Final = 600.0  # seconds for a change of rules
_GRACE: Final = 10.0  # seconds in which a process that was told to end cleans up
_CLEANING: Final = 60.0  # seconds in which another process cleans up after one that was killed
_FREE: Final = threading.Lock()  # held during the work: a process of the server starts one other process at a time
_T = TypeVar("_T")


async def void(settings: Settings, criteria: Criteria, board: str | None, *, dry: bool) -> list[Outcome]:
    """Take events back. If the request ends before, boards that are done until then stay so."""
    return await elsewhere(
        settings, partial(void_events, criteria=criteria, board=board, dry=dry), board, unknown=not dry
    )


async def look(settings: Settings, criteria: Criteria, board: str) -> Outcome:
    """Count what `void` would take back from a board, but not how the ranking would change, which takes longer."""
    return await elsewhere(settings, partial(_look, criteria=criteria, board=board), board)


async def count_again(settings: Settings, ruling: Ruling, *, dry: bool) -> RuleChange:
    """Count the events of a board by other rules. The caller finds out whether an attempt without a result was done."""
    work = partial(
        change_rules,
        epoch=ruling.held.epoch,
        name=ruling.held.swap or secrets.token_hex(4),
        new=ruling.new,
        earlier=[*ruling.earlier, ruling.old],
        dry=dry,
    )
    return await elsewhere(settings, work, ruling.new.id, _LONG, refusal="board_fixed", instead="")


async def elsewhere(
    settings: Settings,
    work: Callable[[Store, Settings, Database], Awaitable[_T]],
    board: str | None,
    patience: float = _PATIENCE,
    *,
    refusal: str = "event_kept",
    instead: str = ": use `live void`",
    unknown: bool = False,
) -> _T:
    """Do work in a process that ends with the task.

    The process is told to end after `patience` seconds, and then says whether it is done after all. If it does not
    answer, what it has loaded beside a board, or all boards, is deleted.

    Raises:
        ProblemError: the work can't be done, or takes too long (`refusal`); the server does such work already; or there
            is no result. With `unknown`, it may be done then.
    """
    if not _FREE.acquire(blocking=False):
        raise ProblemError("overloaded", "the server already does such work for another administrator", retry_after=10)
    told, tell = CHILDREN.Pipe(duplex=False)
    running = asyncio.ensure_future(asyncio.to_thread(_supervise, told, settings, work, board, patience))
    try:
        found = await asyncio.shield(running)
    finally:
        tell.close()
        await asyncio.wait([running])  # also in a request that was cancelled
    match found:
        case EOFError():
            reason = "the process that did the work has ended"
            raise ProblemError("outcome_unknown" if unknown else "internal_error", reason)
        case TimeoutError():
            late = f"this takes longer than {patience:.0f} s{instead}"
            raise (
                ProblemError("outcome_unknown", f"{late}. Perhaps it is done")
                if unknown
                else ProblemError(refusal, late)
            )
        case SetupError():
            raise ProblemError(refusal, str(found))
        case Exception():
            raise found
    result: _T = found
    return result


def _supervise(
    told: Connection, settings: Settings, work: Callable[..., Awaitable[object]], board: str | None, patience: float
) -> Any:  # noqa: ANN401 - the result of the work
    """Let a process work until `told` is closed. No request can cancel this thread."""
    try:
        with told:
            found = _let(told, settings, work, patience)
        if isinstance(found, EOFError):
            left = _let(None, settings, partial(_clean, board=board), _CLEANING)
            if isinstance(left, Exception):
                reason = str(left) or type(left).__name__
                log.warning("the next swap of the board deletes what this one has left", board=board, reason=reason)
        return found
    finally:
        _FREE.release()


def _let(told: Connection | None, settings: Settings, work: Callable[..., Awaitable[object]], patience: float) -> Any:  # noqa: ANN401 - the result of the work
    ours, theirs = CHILDREN.Pipe(duplex=False)
    with ours:
        process = CHILDREN.Process(target=_begin, args=(theirs, settings, work), daemon=True)
        with theirs:
            process.start()
        try:
            if ours not in connection.wait([ours] if told is None else [ours, told], patience):
                process.terminate()
                if not ours.poll(_GRACE):
                    return EOFError()
            return ours.recv()
        except EOFError as error:
            return error
        finally:
            process.kill()
            process.join()


def _begin(pipe: Connection, settings: Settings, work: Callable[..., Awaitable[object]]) -> None:
    asyncio.run(_do(pipe, settings, work))


async def _do(pipe: Connection, settings: Settings, work: Callable[..., Awaitable[object]]) -> None:
    """Work, and send the result before the journal is closed, which waits for what reads it. SIGTERM cancels once."""
    task, result = asyncio.current_task(), None
    assert task is not None, "a task runs this"  # noqa: S101
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task.cancelling() or task.cancel())
    follow_parent()
    async with AsyncExitStack() as opened:
        try:
            database = opened.enter_context(existing_journal(settings, writes=False))
            client = await opened.enter_async_context(opened_store(settings, start=False))
            result = await work(client, settings, database)
        except asyncio.CancelledError:
            result = TimeoutError()
        except SetupError as error:
            result = SetupError(str(error))
        except (StoreUnavailableError, EpochLostError) as error:
            result = StoreUnavailableError(str(error), unknown=getattr(error, "unknown", False))
        with suppress(BrokenPipeError):  # the server has ended
            pipe.send(result)


async def _look(client: Store, settings: Settings, database: Database, criteria: Criteria, board: str) -> Outcome:
    one, epoch = (await all_boards(client)).get(board, (None, ""))
    if one is not None and (state := BoardState(client, one, settings, born=epoch)).journaled:
        await state.open()
        trail = await find_trail(client, database, board, epoch, (criteria.since or 0) * 1000)
        search = EventSearch(one, state.secret, criteria, found := Outcome(board=board))
        await database.run(search.find, trail)
        if found.events:
            return found
    (found,) = await void_events(client, settings, database, criteria, board, dry=True)  # finds nothing, and says why
    return found


async def _clean(client: Store, settings: Settings, _: Database, board: str | None) -> None:
    """Delete what the swap of a process that was killed has left."""
    for one, epoch in (await all_boards(client)).values():
        if board in (None, one.id):
            state = BoardState(client, one, settings, born=epoch)
            await state.open()
            await clean(state)
