"""The state of one board as one process knows it: its epoch, its clock, and the calls to its scripts."""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import msgspec

from live.domain.board import MOST_BUCKETS, Board
from live.domain.window import Periods, Rolling
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.board.journal_stream import announced, begin_journal, stop_journal
from live.store.board.keys import Keys, Table
from live.store.board.reign import MOST_CHECKS, Fence, compare_earlier, unchecked
from live.store.board.requests import SCRIPTS, CreateRequest, OpenRequest, PlannedClock, Scripts, TouchRequest
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, text

AGAIN: Final = frozenset({b"replan", b"ruled"})  # replies after which the caller makes another request
MOST_REPLANS: Final = 20  # each plan after the first means that the board's clock moved between two calls
_BUCKETS: Final = 8  # buckets in which a new board keeps the identities of its `dedupe_window`
_WRITER_IDLE: Final = 86_400  # seconds after which a board forgets a writer; retries of a batch last a few seconds
_MOST_QUIET: Final = 60.0

_R = TypeVar("_R", bound=msgspec.Struct)


def quiet(idle_ttl: int) -> float:
    """Return the seconds that a process waits before it records again that a board is used."""
    return min(_MOST_QUIET, idle_ttl / 4)


class Clock(msgspec.Struct):
    """A board's clock, as last read from the store."""

    newest: int | None  # the newest slot; None if there is none
    now: int  # the time by the store's clock, which never goes back for a board, in ms
    latest: int | None = None  # the newest event time, in ms, on boards with an event clock
    # What `planned_clock` returned last, and for which board and newest slot.
    plan: tuple[Board, int | None, PlannedClock] | None = None


class Buckets(msgspec.Struct):
    """The buckets of identities, as last read from the store: the seconds that each covers, and the newest start."""

    span: int = 0
    newest: int = 0


class KnownRules(msgspec.Struct):
    """What a process knows about the rules of a board, besides those by which it has opened the board."""

    other: Board | None = None  # the board by the other rules in its definition, by which the store may hold it too
    ruled: str | None = None  # the edition with which the rules last changed; None if they never did
    on_change: Callable[[], None] = lambda: None  # called after the process has opened the board by other rules
    # Called before, if the process does not know these rules.
    refresh: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    # Held while the process opens the board by other rules.
    opening: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


def planned_clock(board: Board, clock: Clock) -> PlannedClock:
    """Return the newest slot by a clock, and the time until which it is the newest slot."""
    if clock.plan is None or clock.plan[0] is not board or clock.plan[1] != clock.newest:
        if board.clock == "event":
            planned = PlannedClock(by_event=True, current=clock.newest)
        else:
            window = board.window
            slot = window.slot_at(clock.now // 1000)
            till = slot.end * 1000 if isinstance(window, Rolling | Periods) else None
            planned = PlannedClock(current=slot.start, till=till)
        clock.plan = (board, clock.newest, planned)
    return clock.plan[2]


class BoardState:
    """The state that the writer, the reader, the rotator and the moderation of a board share."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        """Make the state. `born` is the epoch in the definition of the board. It never changes."""
        self.client = client
        self.board = board
        self.rules = KnownRules()
        self.settings = settings
        self.scripts = scripts
        self.born = born
        self.keys = Keys(settings.key_prefix, board.id)
        self.epoch: str | None = None
        self.fence = Fence(client, self.keys, settings)
        self.clock = Clock(None, 0)
        # Called after a batch or a new definition, when something may be due sooner than rotation expects.
        self.on_sooner: Callable[[], None] = lambda: None
        # `BoardWriter` calls this after a batch, and says whether the batch moved the board's clock.
        self.on_added: Callable[[bool], None] = lambda _moved: None
        self.secret = b""  # the key of the digests of voters
        self.buckets = Buckets()
        self._noted = float("-inf")  # when this process last recorded that the board is used

    # Calls to the store

    async def run(self, script: Script[_R], keys: Sequence[str], request: _R) -> list[Any]:
        """Run one of the scripts. If a failover left the board unchecked, check it and run the script again.

        After a reply in `AGAIN`, the board is open by its new rules, or its clock is known, so the caller makes another
        request.
        """
        for _ in range(MOST_CHECKS):
            reply = await script(self.client, keys, request)
            if reply[0] == b"epoch":
                raise self.lost(reply[1])
            if reply[0] == b"ruled":
                await self.open_again(request.ruled)  # type: ignore[attr-defined]  # only such requests have this reply
                return reply
            if reply[0] == b"replan":
                self.update_clock(*reply[1:4])
            if reply[0] != b"reign":
                return reply
            _, offset, journal, epoch, behind = reply
            await self.fence.check(epoch.decode(), int(offset), journal, behind=bool(behind))
        raise unchecked(self.keys.board)

    async def call(self, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Run a command on a store key of the board."""
        return await self.client.call(self.keys.meta, *words)

    def lost(self, held: bytes) -> EpochLostError:
        """Return the error for a lost board. `held` is the epoch in the store, empty if the store has no such board."""
        return EpochLostError(
            f"board {self.board.id!r} had epoch {self.epoch or self.born}, and the store now holds "
            f"{held.decode() or 'none'}: its data was lost",
            self.board.id,
        )

    def moved_too_often(self) -> StoreUnavailableError:
        """Return the error for a board whose clock moved before each plan reached the store."""
        return StoreUnavailableError(f"the clock of board {self.board.id} moved {MOST_REPLANS} times in a row")

    # What is known

    @property
    def known(self) -> int:
        """The highest known offset of the board. Read it before you send a command."""
        return self.client.high_water.offset_of(self.board.id, self.epoch)

    def check_epoch(self, shown: bytes) -> None:
        """Check that an epoch in a reply, as clients see it, belongs to the epoch of the board. Remember it."""
        found = shown.decode()
        if found != self.fence.shown_epoch:
            if not found or not self.epoch or found[: len(self.epoch)] != self.epoch:
                raise self.lost(shown)
            self.fence.shown_epoch = found

    def check_offset(self, offset: bytes, known: int) -> None:
        """Compare an offset with the highest offset that was known before the command was sent."""
        self.client.high_water.check_offset(self.board.id, self.epoch or "", int(offset), known)

    def acknowledge(self, offset: int) -> None:
        """Remember an offset that a client is about to receive."""
        self.client.high_water.acknowledge(self.board.id, self.epoch or "", offset)

    def update_clock(self, newest: bytes, now: bytes, latest: bytes) -> None:
        """Update the board's clock from a reply."""
        self.clock = Clock(int(newest) if newest else None, int(now), int(latest) if latest else None)

    def planned(self) -> PlannedClock:
        """Return the board's clock as this process knows it."""
        return planned_clock(self.board, self.clock)

    def table(self, start: int | None) -> Table:
        """Return the store keys of the ranking to which a slot belongs."""
        return self.keys.table(start if self.board.window.tables else None)

    @property
    def ruled(self) -> str | None:
        """The edition with which the rules of the board last changed, as this process knows."""
        return self.rules.ruled

    @property
    def journal(self) -> str:
        """The store key of the board's journal."""
        return self.keys.journal(self.epoch or self.born)

    @property
    def journaled(self) -> bool:
        """Whether the board has a journal."""
        return self.settings.journal != "off" and self.board.journal != "off"

    @property
    def is_lost(self) -> bool:
        """Whether data of the board is lost and no operator has accepted the loss."""
        return bool(self.client.high_water.loss_of(self.board.id))

    def require_no_loss(self) -> None:
        """Raise an error while data of the board is lost and no operator has accepted the loss."""
        self.client.high_water.require_no_loss(self.board.id)

    def lose(self, error: EpochLostError) -> None:
        """Tell all processes that the data of the board is lost. Don't call this for an expired or deleted board."""
        self.client.high_water.lose_boards({self.board.id: str(error)})

    # Opening

    async def open(self) -> None:
        """Open the board in the store, and create it if it is not there. If it is open already, return at once.

        Raises:
            SetupError: the store holds the board with other settings, so that this process can't read its data.
            EpochLostError: the store does not hold the board with the epoch that the board had before.
        """
        if self.epoch is not None:
            return
        if not self.born:
            self.require_no_loss()
        reply = await self._opened()
        if not self._take(reply):
            raise SetupError(
                f"the store holds board {self.board.id!r} with other choices: "
                f"{reply[1].decode()}; its definition has {self.board.shape.encode()}. "
                "If its rules have just changed, run the command again. Otherwise correct its definition."
            )
        self.epoch = self.fence.shown_epoch = reply[0].decode()
        if self.board.journal == "off":
            await stop_journal(self.client, self.keys, self.epoch)

    async def open_again(self, ruled: str | None) -> None:
        """Take the rules that the board in the store has now, unless this process knows others than `ruled` already."""
        async with self.rules.opening:
            if self.ruled != ruled:
                return
            if not self._take(await self._opened()):
                await self.rules.refresh()
                if not self._take(await self._opened()):
                    raise StoreUnavailableError(
                        f"board {self.board.id} has new rules, which this process can't read yet"
                    )
        self.rules.on_change()
        self.on_sooner()

    def _take(self, opened: list[Any]) -> bool:
        """Take the state of the board in the store. Return False if its data belongs to rules that are not known."""
        _, shape, newest, span, bucket, now, latest, secret, ruled = opened
        if shape.decode() != self.board.shape.encode():
            if self.rules.other is None or shape.decode() != self.rules.other.shape.encode():
                return False
            self.board, self.rules.other = self.rules.other, self.board
        self.secret, self.rules.ruled = secret, ruled.decode() or None
        self.update_clock(newest, now, latest)
        self.buckets = Buckets(int(span), int(bucket))
        return True

    def redefine(self, by: "BoardState") -> None:
        """Take the choices of the same board as another state has opened it."""
        self.board, self.rules.other = by.board, by.rules.other
        if self.ruled != by.ruled:
            self.rules.ruled, self.clock, self.secret, self.buckets = by.ruled, by.clock, by.secret, by.buckets

    async def _opened(self) -> list[Any]:
        keys = self.keys
        journaled = self.journaled
        request = OpenRequest(
            idle=_WRITER_IDLE,
            span=math.ceil(
                max(
                    self.settings.dedupe_window,
                    self.board.dedupe_seconds / _BUCKETS,
                    self.board.remembers / (MOST_BUCKETS - 2),
                )
            ),
            born=self.born or None,
            journal=journaled,
        )
        while True:
            match await self.run(self.scripts.open, [keys.meta, keys.writers], request):
                case [b"none"]:
                    epoch = secrets.token_hex(4)
                    new = CreateRequest(
                        epoch, self.board.shape.encode(), text(secrets.token_bytes(16)), journal=journaled
                    )
                    announcing = announced(self.client, keys, epoch) if journaled else nullcontext()
                    async with announcing:  # meanwhile, another process may create the board
                        await self.scripts.create(self.client, [keys.meta, keys.journal(epoch)], new)
                case [b"adopt", epoch]:
                    await begin_journal(self.client, keys, epoch.decode(), adopt=self.scripts.adopt)
                case reply:
                    return reply

    async def open_to_write(self) -> None:
        """Open the board in order to change it."""
        self.require_no_loss()
        await self.open()
        if self.board.id in self.client.high_water.earlier:
            await compare_earlier(self.client, self.keys)
        self.require_no_loss()

    async def is_deleted(self) -> bool:
        """Return whether the board has expired or is being deleted. Ask this before you look up its definition."""
        deleted = await self.call("HGET", self.keys.gone, "epoch")
        return (deleted or b"").decode() == (self.epoch or self.born)

    def require_epoch(self, epoch: bytes | None) -> None:
        """Raise an error unless an epoch from the store is the epoch of the opened board. None stands for no epoch."""
        if epoch is None or epoch.decode() != self.epoch:
            raise self.lost(epoch or b"")

    async def use(self) -> None:
        """Record that somebody reads the board, if it can expire. The script that adds events does this itself."""
        idle_ttl, now = self.board.idle_seconds, time.monotonic()
        if idle_ttl is None or now < self._noted + quiet(idle_ttl):
            return
        before, self._noted = self._noted, now  # set before the call, so that other callers do not record the use too
        try:
            await self.run(self.scripts.touch, [self.keys.meta], TouchRequest(self.epoch or self.born))
        except StoreUnavailableError:
            self._noted = before
            raise
