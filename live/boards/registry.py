"""The registry of the boards that a process runs, as they are defined in the store.

The registry starts and stops everything that belongs to a board. Its mappings change in place, so that a change costs
the same with any number of boards. If you await something while you iterate over a mapping, copy the mapping first.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from live.boards.admin import BoardAdmin
from live.boards.definitions import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.domain.limits import PrefixLimits, limits_of
from live.domain.reader import SERVER, Gated, Reader
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.fanout.hub import Hub
from live.ingest.committer import Committer
from live.metrics import forget_board
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import update
from live.store.board.read.baseline import BaselineKeeper
from live.store.board.read.single_flight import SingleFlight
from live.store.board.rotation import Rotation
from live.store.connection.client import Store
from live.store.connection.notices import Away, Channels, listen
from live.store.registry.definitions import Definition
from live.store.registry.processes import INTERVAL, Processes

log = structlog.get_logger()

# A process checks when a slot is due. So often it checks as well, for clocks that jump and events of other processes.
_ROTATION_INTERVAL: Final = 30.0
_PAUSE: Final = 1.0  # seconds between two checks of the store
_KNOWN_WITHIN: Final = 0.5  # seconds for which a change waits for other processes to apply it
_KNOWN_EVERY: Final = 0.01
_AT_ONCE: Final = 256  # boards that are opened at the same time
_ASKED_EVERY: Final = 0.1  # seconds between two refreshes for unknown boards
# Maximum seconds between two checks of whether a board is in use, because `idle_ttl` can change.
_LONGEST_WAIT: Final = 60.0


class BoardRegistry:
    """The boards that run in this process. The registry calls `publish` with the boards after every change."""

    def __init__(self, client: Store, settings: Settings, hub: Hub, board_admin: BoardAdmin) -> None:
        self.ledgers: Gated[Ledger] = Gated()
        self.committers: dict[str, Committer] = {}
        self.publish: Callable[[Boards], None] = lambda _boards: None
        self._client = client
        self._settings = settings
        self._hub = hub
        hub.explain = lambda board, error: self.explain(board, error, SERVER)
        self._board_admin = board_admin
        self._made: dict[str, Definition] = {}
        # Defined boards that can't run; the next change of definitions tries them again.
        self._skipped: dict[str, Definition] = {}
        self._unions: set[str] = set()  # the boards that are unions
        # The version of the definitions that run, None until they are read, and its limits of prefixes.
        self._running: tuple[str | None, Sequence[PrefixLimits]] = (None, ())
        self._refreshing = asyncio.Lock()
        self._questions = SingleFlight(crowd=1, pace=_ASKED_EVERY)
        self._work = BoardWork(client, hub, board_admin)
        self.boards = Boards(())

    @property
    def events_waiting(self) -> int:
        """The number of events that wait for their commit."""
        return sum(committer.events_waiting for committer in self.committers.values())

    async def run(self) -> None:
        """Run every board and follow the definitions, until cancelled."""
        is_away = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work.run())
            tasks.create_task(self._follow_notices())
            while True:
                try:
                    await self.refresh()
                    await self._work.expire()
                except (StoreUnavailableError, EpochLostError) as error:
                    if not is_away:
                        log.warning("can't read the definitions of boards", reason=str(error))
                    is_away = True
                else:
                    if is_away:
                        log.info("the store is back")
                    is_away = False
                await asyncio.sleep(_PAUSE)

    async def _follow_notices(self) -> None:
        """Refresh as soon as a change is announced. The regular checks find a change whose notice got lost."""
        async for notice in listen(self._client, Channels({self._board_admin.definitions.key: ""})):
            if not isinstance(notice, Away):
                with suppress(StoreUnavailableError, EpochLostError):
                    await self.refresh()

    async def until_known(self) -> None:
        """Wait until every live process runs the boards that this process runs, for half a second at most.

        A process that was killed counts as alive for some seconds.
        """
        deadline = time.monotonic() + _KNOWN_WITHIN
        with suppress(StoreUnavailableError):
            while not await self._work.processes.all_run(self._running[0] or ""):
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(_KNOWN_EVERY)

    async def refresh(self, *, has_changed: bool = False) -> None:
        """Run the boards as they are defined now. With `has_changed`, don't ask for their version first."""
        async with self._refreshing:
            definitions = self._board_admin.definitions
            version, before = self._running
            if not has_changed and version is not None and await definitions.version() == version:
                return
            changes = await self._board_admin.known.follow(version)
            if self._is_lost():  # the missing boards were lost, not deleted: they stay and refuse requests
                return
            found: dict[str, Definition | None] = dict(self._skipped)
            if changes.is_whole:
                found = dict.fromkeys(self._made | self._skipped)
            limits = self._board_admin.known.file.limits
            await self._take_over(found | dict(changes.boards), are_limited_anew=limits != before)
            if self._is_lost():
                return
            self._running = (changes.version, limits)
            with suppress(StoreUnavailableError):  # the next heartbeat also reports the version
                await self._work.processes.all_run(changes.version)

    def defined(self, board: str) -> dict[str, Any]:
        """Return the definition of a board of this process, without choices that have their default."""
        return read_board(board, self._made[board].choices).definition

    async def ask(self) -> None:
        """Refresh before a request for an unknown board or event type is refused.

        Another process may have created the board a moment ago. All waiting requests share one call to the store, and
        there is at most one call in 100 ms. So requests for boards that do not exist cost the store little.
        """
        await self._questions.call("", self.refresh)

    def ask_soon(self, callback: Callable[[Exception | None], None]) -> None:
        """Refresh as `ask` does, and pass None or the error to `callback`."""
        self._questions.join("", self.refresh, callback)

    async def leave(self) -> None:
        """Tell the other processes that this process ends. If the store is unavailable, they notice it later."""
        await self._work.processes.leave()

    async def explain(self, board: str, error: EpochLostError, reader: Reader) -> Exception:
        """Choose the error for a board that the store does not have. Mark it as lost, unless somebody deleted it."""
        ledger = self.ledgers.find(board, reader)
        with suppress(StoreUnavailableError, EpochLostError):
            deleted = ledger is None or await ledger.state.is_deleted()
            await self.refresh()
            if not deleted and ledger is not None and self.ledgers.find(board, reader) is ledger:
                ledger.state.lose(error)
        if self.ledgers.find(board, reader) is not None:
            return error
        return ProblemError("board_not_found", f"board {board} was deleted")

    async def _take_over(self, found: Mapping[str, Definition | None], *, are_limited_anew: bool) -> None:
        """Run boards as they are defined now. In `found`, None means that there is no definition.

        `are_limited_anew` says that the limits of prefixes have changed.
        """
        deleted = [name for name, definition in found.items() if name in self._made and not _is_live(definition)]
        wanted = {
            name: definition
            for name, definition in found.items()
            if definition is not None and _is_live(definition) and self._made.get(name) != definition
        }
        fresh: list[Ledger] = []
        changed: list[Board] = []
        opened: dict[str, Ledger] = {}
        limit = asyncio.Semaphore(_AT_ONCE)
        opening = (self._open(*item, limit) for item in wanted.items())
        ledgers = await asyncio.gather(*opening, return_exceptions=True)
        for name, ledger in zip(wanted, ledgers, strict=True):
            if isinstance(ledger, BaseException):
                raise ledger
            if ledger is not None:
                opened[name] = ledger
        for name, ledger in opened.items():
            held, self._made[name] = self._made.get(name), wanted[name]
            if held is None or held.epoch != wanted[name].epoch:
                fresh.append(ledger)
            else:
                if (kept := self.ledgers.find(name, SERVER)) is not None:
                    kept.state.redefine(ledger.state)
                changed.append(ledger.state.board)
        self._skipped = {name: definition for name, definition in wanted.items() if name not in opened}
        for name in deleted:
            del self._made[name]
        for name in self._made.keys() - opened.keys() if are_limited_anew else ():
            ledger = self.ledgers.find(name, SERVER)
            if ledger is not None and ledger.state.board.limits != self._limits_of(name):
                made, running = self._made[name], ledger.state.board.shape
                both = [self._board_of(name, made, choices) for choices in (made.choices, made.next or made.choices)]
                board, other = both if both[0].shape == running else both[::-1]
                ledger.state.rules.other = other
                changed.append(board)
        if deleted or fresh or changed:
            self._replace(deleted, fresh, changed)

    async def _open(self, name: str, definition: Definition, limit: asyncio.Semaphore) -> Ledger | None:
        try:
            board = self._board_of(name, definition)
            ledger = Ledger(self._client, board, self._settings, born=definition.epoch)
            if definition.next is not None:
                ledger.state.rules.other = self._board_of(name, definition, definition.next)
            async with limit:
                await ledger.state.open()
            # The process that changed the board may have died before this step.
            if board.frozen or definition.revision > 1:
                await update(
                    self._client, ledger.state.keys, definition.epoch, definition.revision, frozen=board.frozen
                )
        except (DefinitionError, SetupError, EpochLostError) as error:
            is_lost = False
            if isinstance(error, EpochLostError):
                # The board has no data. If it is being deleted, finish the deletion. Otherwise its data was lost.
                if board.idle_seconds is not None and await ledger.state.is_deleted():
                    await self._board_admin.expire(name, definition.epoch, board.idle_seconds)
                elif await self._board_admin.defined(name) == definition:
                    ledger.state.lose(error)
                    is_lost = True
            log.warning("can't run a board that is defined", board=name, reason=str(error))
            return ledger if is_lost else None  # a lost board refuses requests until an operator decides
        return ledger

    def _board_of(self, name: str, definition: Definition, choices: dict[str, Any] | None = None) -> Board:
        """Add the limits of the prefix, and the visibility of the settings if the board has none."""
        board = read_board(name, definition.choices if choices is None else choices)
        board = msgspec.structs.replace(board, owner=definition.owner)
        if board.visibility is None:
            board = msgspec.structs.replace(board, visibility=self._settings.visibility)
        limits = self._limits_of(name)
        if limits is None:
            return board
        members = board.max_members if limits.members is None else min(board.max_members, limits.members)
        return msgspec.structs.replace(board, limits=limits, max_members=members)

    def _limits_of(self, board: str) -> PrefixLimits | None:
        return limits_of(board, self._board_admin.known.file.limits)

    def _is_lost(self) -> bool:
        """Tell whether the whole store lost data, which can happen during each call."""
        return bool(self._client.high_water.lost)

    def _replace(self, deleted: Collection[str], fresh: Collection[Ledger], changed: Iterable[Board] = ()) -> None:
        ledgers, committers = self.ledgers, self.committers
        boards = [*(ledger.state.board for ledger in fresh), *changed]
        for name in deleted:
            if (left := ledgers.remove(name, SERVER)) is not None:
                self._work.stop(left)
            del committers[name]
            self._hub.remove(name)
            self._unions.discard(name)
            forget_board(name)
        for board in changed:
            if (kept := ledgers.find(board.id, SERVER)) is not None:
                kept.state.board = board
                ledgers.put(board, kept)
                self._work.refresh(kept)
                self._hub.add(kept.reader)
        for ledger in fresh:
            name = ledger.state.board.id
            if (old := ledgers.find(name, SERVER)) is not None:
                self._work.stop(old)
            ledgers.put(ledger.state.board, ledger)
            committers[name] = Committer(ledger.writer, ledger.rotator, self.refresh)
            self._hub.add(ledger.reader)
            rules = ledger.state.rules
            rules.on_change, rules.refresh = partial(self._apply_rules, ledger), self.refresh
        for board in boards:
            if board.id in self._made and self._made[board.id].parts:
                self._unions.add(board.id)
            else:
                self._unions.discard(board.id)
        # Pairs of a union and a part that was deleted. The union ignores a later board with the same id.
        detached = {
            (name, part)
            for name in self._unions
            for part, epoch in self._made[name].parts.items()
            if part not in self._made or epoch != self._made[part].epoch
        }
        self.boards = Boards(boards, detached, before=self.boards, deleted=deleted)
        for ledger in fresh:
            self._work.start(ledger, committers[ledger.state.board.id])
        self.publish(self.boards)

    def _apply_rules(self, ledger: Ledger) -> None:
        board = ledger.state.board
        if self.ledgers.find(board.id, SERVER) is ledger:
            self._replace((), (), [board])


def _is_live(definition: Definition | None) -> bool:
    return definition is not None and definition.state == "live"


class BoardWork:
    """The background work: commits, rotation, baselines, expiry. A board that nobody uses costs almost nothing."""

    def __init__(self, client: Store, hub: Hub, board_admin: BoardAdmin) -> None:
        self._hub = hub
        self._board_admin = board_admin
        self._committers: dict[str, Committer] = {}
        self.processes = Processes(client, self._committers.keys())
        self._rotation = Rotation(_ROTATION_INTERVAL, self.processes.owns)
        self._baselines = BaselineKeeper()
        self._group: asyncio.TaskGroup | None = None
        # For each board with an `idle_ttl`: the earliest time at which it can expire, by `time.monotonic`.
        self._idle_until: dict[Ledger, float] = {}

    def start(self, ledger: Ledger, committer: Committer) -> None:
        """Start the background work for a board."""
        self._committers[ledger.state.board.id] = committer
        self._rotation.add(ledger.rotator)
        self._baselines.add(ledger.baseline)
        self._watch_use(ledger)
        if self._group is not None:
            self._group.create_task(committer.run())

    def refresh(self, ledger: Ledger) -> None:
        """Apply a new definition of a board."""
        ledger.state.on_sooner()  # the new definition may keep fewer periods
        self._watch_use(ledger)

    def _watch_use(self, ledger: Ledger) -> None:
        self._idle_until.pop(ledger, None)
        if ledger.state.board.idle_ttl is not None:
            self._idle_until[ledger] = 0

    def stop(self, ledger: Ledger) -> None:
        """Stop working for a board. Refuse its events that are not committed yet."""
        self._committers.pop(ledger.state.board.id).retire()
        self._rotation.remove(ledger.rotator)
        self._baselines.remove(ledger.baseline)
        self._idle_until.pop(ledger, None)

    async def run(self) -> None:
        """Do the background work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            for committer in self._committers.values():
                tasks.create_task(committer.run())
            with suppress(StoreUnavailableError):
                await self.processes.beat()  # the first heartbeat gives this process its share of the work
            tasks.create_task(self._rotation.run())
            tasks.create_task(self._baselines.run())
            while True:
                await asyncio.sleep(INTERVAL)
                with suppress(StoreUnavailableError):  # the next heartbeat comes soon
                    beat = await self.processes.beat()
                    if beat.has_ended:
                        self._rotation.recheck()
                    if beat.was_set:
                        self._rotation.recheck(every=True)
                        self._baselines.recheck()

    async def expire(self) -> None:
        """Record that boards with viewers are in use, and delete unused boards."""
        for ledger, until in list(self._idle_until.items()):
            state = ledger.state
            idle_ttl = state.board.idle_seconds
            if idle_ttl is None or ledger not in self._idle_until or state.is_lost:
                continue  # a lost board waits for an operator, so it must not expire
            if self._hub.channels[state.board.id].viewers:
                with suppress(EpochLostError):
                    await state.use()
            elif time.monotonic() >= until:
                wait = await self._board_admin.expire(state.board.id, state.born, idle_ttl)
                if ledger in self._idle_until:
                    self._idle_until[ledger] = time.monotonic() + min(_LONGEST_WAIT, wait or 0)
