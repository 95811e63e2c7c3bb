"""Work in a separate process, which ends early: the request is cancelled, the time is over, or the process hangs."""

import asyncio
import multiprocessing
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from live.errors import ProblemError
from live.journal.database import Database
from live.settings import Settings
from live.store.board.manage.swap import Beside, Write
from live.store.board.state import BoardState
from live.store.connection.client import Store
from live.web import elsewhere
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught
from tests.harness.waiting import DEADLINE, eventually
from tests.store.board.manage.test_swap import loose

Work = Callable[..., Any]


async def load(client: Store, settings: Settings, _: Database, epoch: str) -> BoardState:
    """Load something beside a board."""
    state = BoardState(client, rolling_board(ties="first"), settings, born=epoch)
    await state.open()
    beside = await Beside.begin(state)
    await beside.pause()
    await beside.write([Write("HSET", state.keys.slot(0), ["a", 1])])
    await client.set(f"{settings.key_prefix}:loaded", 1)
    try:
        await asyncio.sleep(DEADLINE)
    except BaseException:
        await beside.give_up()
        raise
    return state


async def load_and_finish(client: Store, settings: Settings, database: Database, epoch: str) -> str:
    """Be done by the time that the process is told to end."""
    try:
        await load(client, settings, database, epoch)
    except asyncio.CancelledError:
        return "done"
    return ""


async def load_and_hang(client: Store, settings: Settings, database: Database, epoch: str) -> None:
    """Load something beside a board, and then do nothing that a signal can end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # otherwise it may arrive just before this process hangs
    loading = asyncio.create_task(load(client, settings, database, epoch))
    await eventually(lambda: client.exists(f"{settings.key_prefix}:loaded"))
    time.sleep(DEADLINE)  # noqa: ASYNC251
    await loading


async def load_and_die(client: Store, settings: Settings, database: Database, epoch: str) -> None:
    """Load something beside a board, and end by an error that nobody expects."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # otherwise it may arrive before the error
    loading = asyncio.create_task(load(client, settings, database, epoch))
    await eventually(lambda: client.exists(f"{settings.key_prefix}:loaded"))
    await client.aclose()
    loading.cancel()
    raise RuntimeError


@asynccontextmanager
async def prepared(store: str, folder: Path) -> AsyncIterator[tuple[Journaled, Callable[..., Any]]]:
    """A board with a journal, and a function that lets another process work on the board."""
    async with journaled(store, folder) as board:
        await board.drainer()
        await board.like("a")

        async def work(what: Work, *, unknown: bool = True) -> Any:
            epoch = board.ledger.state.epoch
            return await elsewhere.elsewhere(
                board.settings, partial(what, epoch=epoch), "posts", DEADLINE, unknown=unknown
            )

        yield board, work


async def is_loaded(board: Journaled) -> bool:
    """Whether the other process has loaded something."""
    return bool(await board.client.exists(f"{board.settings.key_prefix}:loaded"))


def children() -> list[int | None]:
    """The other processes that this process has started."""
    return [process.pid for process in multiprocessing.active_children()]


async def one_at_a_time(store: str, folder: Path) -> None:
    """When the next request may begin, the process of a cancelled request has ended, whenever it was cancelled."""

    async def is_free() -> bool:
        return not elsewhere._FREE.locked()

    async def has_begun() -> bool:
        return bool(children())

    async with prepared(store, folder) as (_, work):
        for delay in (0.0, 0.0, 0.001, 0.002, 0.005, 0.02, None):
            request = asyncio.create_task(work(load))
            await (eventually(has_begun) if delay is None else asyncio.sleep(delay))
            request.cancel()
            await eventually(is_free)
            assert children() == [], f"a process of a request that was cancelled after {delay} s goes on"
            await asyncio.wait([request])


async def test_a_cancelled_request_leaves_no_process(valkey_url: str, tmp_path: Path) -> None:
    """The next request may begin only when the other process has ended."""
    await one_at_a_time(valkey_url, tmp_path)


@pytest.mark.mutant
async def test_a_lock_that_is_freed_early_is_found(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is freed while the process of a cancelled request goes on."""
    monkeypatch.setattr(elsewhere, "_FREE", Mock(acquire=Mock(return_value=True), locked=Mock(return_value=False)))
    with must_be_caught("freed early"):
        await one_at_a_time(valkey_url, tmp_path)


class Late:
    """Ends the patience of the server when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over, self._wait = threading.Event(), connection.wait
        monkeypatch.setattr(connection, "wait", self._until)

    def _until(self, pipes: list[Connection], patience: float | None = None) -> list[Any]:
        if len(pipes) == 1:  # the server has told the process to end
            return self._wait(pipes, patience)
        end = time.monotonic() + DEADLINE
        while not (found := self._wait(pipes, 0.02)) and not self._over.is_set() and time.monotonic() < end:
            pass
        return found

    def end(self) -> None:
        """End the patience."""
        self._over.set()


async def leaves_nothing(
    store: str, folder: Path, monkeypatch: pytest.MonkeyPatch, what: Work, *, cancels: bool = False
) -> None:
    """Nothing is left beside the board, and nobody says that nothing was done."""
    late = Late(monkeypatch)
    async with prepared(store, folder) as (board, work):
        request = asyncio.create_task(work(what))
        await eventually(lambda: is_loaded(board))
        request.cancel() if cancels else late.end()
        await asyncio.wait([request])
        if not cancels:
            error = request.exception()
            assert isinstance(error, ProblemError)
            assert error.code == "outcome_unknown"
        assert (await loose(board.ledger), children()) == ([], [])
        assert not elsewhere._FREE.locked()


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("what", [load, load_and_hang])
async def test_a_process_that_is_told_to_end_leaves_nothing(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Work, *, cancels: bool
) -> None:
    """It deletes what it has loaded. If it hangs, it is killed, and another process does that."""
    if what is load_and_hang:
        monkeypatch.setattr(elsewhere, "_GRACE", 5)
    await leaves_nothing(valkey_url, tmp_path, monkeypatch, what, cancels=cancels)


async def test_a_process_that_dies_leaves_nothing(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was done."""
    await leaves_nothing(valkey_url, tmp_path, monkeypatch, load_and_die)


async def _kept(*_: Any, board: str) -> None:
    """Clean nothing."""


@pytest.mark.mutant
async def test_a_kill_without_a_word_is_found(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process has loaded stays."""
    monkeypatch.setattr(elsewhere, "_GRACE", 1)
    monkeypatch.setattr(elsewhere, "_clean", _kept)
    with must_be_caught("not cleaned"):
        await leaves_nothing(valkey_url, tmp_path, monkeypatch, load_and_hang)


@pytest.mark.parametrize("what", [load, load_and_finish])
async def test_a_late_process_says_whether_it_is_done(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Work
) -> None:
    """Work that ends at that moment is done. Work that changes nothing is refused."""
    late = Late(monkeypatch)
    async with prepared(valkey_url, tmp_path) as (board, work):
        request = asyncio.create_task(work(what, unknown=False))
        await eventually(lambda: is_loaded(board))
        late.end()
        if what is load:
            with pytest.raises(ProblemError, match="takes longer than"):
                await request
        else:
            assert await request == "done"
