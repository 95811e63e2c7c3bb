"""The board registry of a process: the boards that it runs, from the boards file and from the store.

It starts and stops everything that belongs to a board. Its mappings are replaced as a whole and never change, so
readers need no lock.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from live.boards.admin import BoardAdmin
from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.fanout.hub import Hub
from live.ingest.committer import Committer
from live.metrics import forget_board
from live.settings import Settings
from live.store.board.baseline import keep_baselines
from live.store.board.beginnings import update
from live.store.board.ledger import Ledger
from live.store.board.rotation import rotate_forever
from live.store.connection.client import Store
from live.store.registry.definitions import Definition

log = structlog.get_logger()

_PAUSE: Final = 1.0  # seconds between two checks of the store
_LONGEST_WAIT: Final = 60.0  # seconds between two checks whether a board is used, because `idle_ttl` can change


class BoardRegistry:
    """The boards that run in this process. It calls `tell` with the boards and their committers after every change."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, hub: Hub, board_admin: BoardAdmin) -> None:
        self.boards = in_file
        self.ledgers: Mapping[str, Ledger] = {}
        self.committers: dict[str, Committer] = {}
        self.tell: Callable[[Boards, dict[str, Committer]], None] = lambda _boards, _committers: None
        self._client = client
        self._settings = settings
        self._in_file = in_file
        self._hub = hub
        self._board_admin = board_admin
        self._made: dict[str, Definition] = {}
        self._version: str | None = None  # None: never read
        self._looking = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None
        self._rotating: dict[str, asyncio.Task[None]] = {}
        self._idle_until: dict[str, float] = {}  # the earliest time at which an unused board can expire, by our clock
        self._replace((), [Ledger(client, board, settings) for board in in_file.by_id.values()])

    async def run(self) -> None:
        """Run every board and follow the definitions, until cancelled."""
        is_away = False
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            for board in self.ledgers:
                self._start(board)
            tasks.create_task(keep_baselines(lambda: [ledger.baseline for ledger in self.ledgers.values()]))
            while True:
                try:
                    await self.look()
                    await self._expire()
                except (StoreUnavailableError, EpochLostError) as error:
                    if not is_away:
                        log.warning("can't read the definitions of boards", reason=str(error))
                    is_away = True
                else:
                    is_away = False
                await asyncio.sleep(_PAUSE)

    async def look(self, *, has_changed: bool = False) -> None:
        """Run the boards as they are defined now. With `has_changed`, don't ask for the version first.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        async with self._looking:
            definitions = self._board_admin.definitions
            if not has_changed and self._version is not None and await definitions.version() == self._version:
                return
            found = await definitions.load()
            if self._is_lost():  # nobody deleted the missing boards: they stay and refuse requests
                return
            made = dict(found.boards)
            for name in made.keys() & self._in_file.by_id.keys():
                log.warning("ignoring a run-time board: the boards file defines its id", board=name)
                del made[name]
            await self._take_over(made)
            if self._is_lost():
                return
            self._version = found.version

    async def _expire(self) -> None:
        """Record that boards with viewers are in use, and delete unused ones."""
        for name, definition in list(self._made.items()):
            ledger = self.ledgers[name]
            if ledger.state.board.idle_ttl is None or ledger.state.born != definition.epoch:
                continue
            if self._hub.channels[name].viewers:
                with suppress(EpochLostError):
                    await ledger.state.use()
            elif time.monotonic() >= self._idle_until.get(name, 0):
                wait = await self._board_admin.expire(name, definition.epoch, ledger.state.board.idle_ttl)
                self._idle_until[name] = time.monotonic() + min(_LONGEST_WAIT, wait or 0)

    async def explain(self, board: str, error: EpochLostError) -> Exception:
        """The error to report if the store does not have a board: it may have been deleted a moment ago."""
        ledger = self.ledgers.get(board)
        with suppress(StoreUnavailableError, EpochLostError):
            left = ledger is None or await ledger.state.has_left()
            await self.look()
            if not left and ledger is not None and self.ledgers.get(board) is ledger:
                ledger.state.lose(error)
        return error if board in self.boards.by_id else ProblemError("board_not_found", f"board {board} was deleted")

    async def _take_over(self, found: Mapping[str, Definition]) -> None:
        """Run the boards that are defined now and those of the file, and stop all others."""
        wanted = {board: made for board, made in found.items() if made.state == "live"}
        gone = [board for board, made in self._made.items() if board not in wanted]
        made: dict[str, Definition] = {}
        fresh: list[Ledger] = []
        changed: list[Board] = []
        for name, definition in wanted.items():
            held = self._made.get(name)
            if held == definition:
                continue
            try:
                board = msgspec.structs.replace(read_board(name, definition.choices), owner=definition.owner)
                ledger = Ledger(self._client, board, self._settings, born=definition.epoch)
                await ledger.state.open()
                # The process that changed it may have died before this step.
                if board.frozen or definition.revision > 1:
                    await update(
                        self._client, ledger.state.keys, definition.epoch, definition.revision, frozen=board.frozen
                    )
            except (DefinitionError, SetupError, EpochLostError) as error:
                if isinstance(error, EpochLostError):
                    await self._explain_missing(ledger, definition, error)
                log.warning("can't run a board that is defined", board=name, reason=str(error))
                continue
            if held is None or held.epoch != definition.epoch:
                fresh.append(ledger)
            else:
                changed.append(board)
            made[name] = definition
        self._made |= made
        for name in gone:
            del self._made[name]
            self._idle_until.pop(name, None)
        if gone or fresh or changed:
            self._replace(gone, fresh, changed)

    def _is_lost(self) -> bool:
        """Whether the store lost data."""
        return bool(self._client.witness.lost)

    async def _explain_missing(self, ledger: Ledger, definition: Definition, error: EpochLostError) -> None:
        """Finish the deletion of a board without data. If nobody is deleting it, its data was lost."""
        name, idle_ttl = ledger.state.board.id, ledger.state.board.idle_ttl
        if idle_ttl is not None and await ledger.state.has_left():
            await self._board_admin.expire(name, definition.epoch, idle_ttl)
        elif (await self._board_admin.definitions.load()).boards.get(name) == definition:
            ledger.state.lose(error)

    def _severed(self, boards: Mapping[str, Board]) -> set[tuple[str, str]]:
        """Pairs of a union and a part that was deleted.

        A later board with the id of the part does not count for the union.
        """
        return {
            (name, part)
            for name, definition in self._made.items()
            for part, epoch in definition.parts.items()
            if part not in boards or epoch != (self._made[part].epoch if part in self._made else "")
        }

    def _replace(self, gone: Iterable[str], fresh: Iterable[Ledger], changed: Iterable[Board] = ()) -> None:
        """Replace the running boards in one step."""
        ledgers, committers = dict(self.ledgers), dict(self.committers)
        boards = dict(self.boards.by_id)
        for name in gone:
            del ledgers[name], boards[name]
            self._stop(name, committers.pop(name))
            self._hub.remove(name)
            forget_board(name)
        for board in changed:
            boards[board.id] = ledgers[board.id].state.board = board
            ledgers[board.id].state.sooner.set()  # wakes the rotation, because fewer periods may be kept now
            self._hub.add(ledgers[board.id].reader)
        started = []
        for ledger in fresh:
            name = ledger.state.board.id
            if name in committers:
                self._stop(name, committers[name])
            boards[name], ledgers[name] = ledger.state.board, ledger
            committers[name] = Committer(
                ledger.writer, ledger.rotator, self._settings, self.look if ledger.state.born else None
            )
            self._hub.add(ledger.reader)
            started.append(name)
        self.boards = Boards(boards.values(), self._severed(boards))
        self.ledgers, self.committers = ledgers, committers
        for name in started:
            self._start(name)
        self.tell(self.boards, self.committers)

    def _start(self, board: str) -> None:
        """Start the committer and the rotation of a board, once the registry runs."""
        if self._group is not None:
            self._group.create_task(self.committers[board].run())
            rotation = rotate_forever([self.ledgers[board].rotator], self._settings.rotation_interval)
            self._rotating[board] = self._group.create_task(rotation)

    def _stop(self, board: str, committer: Committer) -> None:
        """Stop the committer and the rotation of a board. Events that are not committed yet are refused."""
        committer.retire()
        if board in self._rotating:
            self._rotating.pop(board).cancel()
