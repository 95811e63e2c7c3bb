"""The state of one board as one process knows it: its epoch, its clock, and the calls to its scripts."""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import msgspec

from live.domain.board import MOST_BUCKETS, Board
from live.domain.window import Periods, Rolling
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.board.journal_stream import announced, begin_journal, stop_journal
from live.store.board.keys import Keys, Table
from live.store.board.read.requests import (
    BaselineRequest,
    ContestantsRequest,
    LookupRequest,
    ReadRequest,
    SlotsRequest,
)
from live.store.board.reign import MOST_CHECKS, Fence, unchecked
from live.store.board.requests import (
    AddRequest,
    AdoptRequest,
    CreateRequest,
    DiscardRequest,
    EnterRequest,
    ExpireEventsRequest,
    HideRequest,
    OpenRequest,
    PlannedClock,
    RotatePeriodRequest,
    RotateRequest,
    Rules,
    TouchRequest,
    WithdrawRequest,
    rules_of,
)
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, text

MOST_REPLANS: Final = 20  # each plan after the first means that the board's clock moved between two calls
_BUCKETS: Final = 8  # buckets in which a new board keeps the identities of its `dedupe_window`
_WRITER_IDLE: Final = 86_400  # seconds after which a board forgets a writer; retries of a batch last a few seconds
_MOST_QUIET: Final = 60.0
_AT_ONCE: Final = 256  # boards that are opened at the same time

_R = TypeVar("_R", bound=msgspec.Struct)


class Scripts(msgspec.Struct, frozen=True):
    """The scripts of a board. Tests replace some of them with wrong ones, to prove that the tests notice."""

    add: Script[AddRequest] = Script("add", AddRequest)
    open: Script[OpenRequest] = Script("open", OpenRequest, waits=False)
    create: Script[CreateRequest] = Script("create", CreateRequest)
    read: Script[ReadRequest] = Script("read", ReadRequest)
    places: Script[LookupRequest] = Script("places", LookupRequest)
    contestants: Script[ContestantsRequest] = Script("contestants", ContestantsRequest)
    slots: Script[SlotsRequest] = Script("slots", SlotsRequest)
    baseline: Script[BaselineRequest] = Script("baseline", BaselineRequest, waits=False)
    rotate: Script[RotateRequest] = Script("rotate", RotateRequest, waits=False)
    expire_events: Script[ExpireEventsRequest] = Script("expire_events", ExpireEventsRequest, waits=False)
    discard: Script[DiscardRequest] = Script("discard", DiscardRequest, waits=False)
    rotate_period: Script[RotatePeriodRequest] = Script("rotate_period", RotatePeriodRequest, waits=False)
    enter: Script[EnterRequest] = Script("enter", EnterRequest)
    withdraw: Script[WithdrawRequest] = Script("withdraw", WithdrawRequest)
    hide: Script[HideRequest] = Script("hide", HideRequest)
    adopt: Script[AdoptRequest] = Script("adopt", AdoptRequest)
    touch: Script[TouchRequest] = Script("touch", TouchRequest, waits=False)


SCRIPTS: Final = Scripts()


def quiet(idle_ttl: int) -> float:
    """Return the seconds that a process waits before it records again that a board is used."""
    return min(_MOST_QUIET, idle_ttl / 4)


class Clock(msgspec.Struct):
    """A board's clock, as last read from the store.

    Attributes:
        newest: the newest slot; None if there is none.
        now: the store's time, in ms.
        latest: the newest event time, in ms, on boards with an event clock.
        plan: what `planned_clock` returned last, and for which board and newest slot.
    """

    newest: int | None
    now: int
    latest: int | None = None
    plan: tuple[Board, int | None, PlannedClock] | None = None


class Buckets(msgspec.Struct):
    """The buckets of identities, as last read from the store: the seconds that each covers, and the newest start."""

    span: int = 0
    newest: int = 0


def planned_clock(board: Board, clock: Clock) -> PlannedClock:
    """Return the newest slot by a clock, and the time until which it is the newest slot."""
    if clock.plan is None or clock.plan[0] is not board or clock.plan[1] != clock.newest:
        if board.clock == "event":
            planned = PlannedClock(by_event=True, current=clock.newest)
        else:
            window = board.window
            slot = window.slot_at(clock.now // 1000)
            if clock.newest is not None:  # the newest slot never goes backward
                slot = max(slot, window.slot_at(clock.newest))
            till = slot.end * 1000 if isinstance(window, Rolling | Periods) else None
            planned = PlannedClock(current=slot.start, till=till)
        clock.plan = (board, clock.newest, planned)
    return clock.plan[2]


class BoardState:
    """The state that the writer, the reader, the rotator and the moderation of a board share."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        """Make the state. `born` is the epoch of a board that was created at run time. It never changes."""
        self.client = client
        self.board = board
        self.settings = settings
        self.scripts = scripts
        self.born = born
        self.keys = Keys(settings.key_prefix, board.id)
        self.epoch: str | None = None
        self.fence = Fence(client, self.keys, settings)
        self.clock = Clock(None, 0)
        # Called after a batch or a new definition, when something may be due sooner than rotation expects.
        self.on_sooner: Callable[[], None] = _nothing
        # `BoardWriter` calls this after a batch, and says whether the batch moved the board's clock.
        self.on_added: Callable[[bool], None] = _nothing
        self.secret = b""  # the key of the digests of voters
        self.buckets = Buckets()
        self._noted = float("-inf")  # when this process last recorded that the board is used
        self._rules: tuple[Board, Rules] = (board, rules_of(board))

    # Calls to the store

    async def run(self, script: Script[_R], keys: Sequence[str], request: _R) -> list[Any]:
        """Run one of the scripts. If a failover left the board unchecked, check it and run the script again."""
        for _ in range(MOST_CHECKS):
            reply = await script(self.client, keys, request)
            if reply[0] == b"epoch":
                raise self.lost(reply[1])
            if reply[0] != b"reign":
                return reply
            _, offset, journal, epoch, resending = reply
            await self.fence.check(epoch.decode(), int(offset), journal, resending=bool(resending))
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
    def rules(self) -> Rules:
        """The rules of the board."""
        board = self.board
        if self._rules[0] is not board:
            self._rules = (board, rules_of(board))
        return self._rules[1]

    @property
    def known(self) -> int:
        """The highest known offset of the board. Read it before you send a command."""
        return self.client.high_water.offset_of(self.board.id, self.epoch)

    def check_epoch(self, shown: bytes) -> None:
        """Check that an epoch in a reply, as clients see it, belongs to the epoch of the board. Remember it.

        Raises:
            EpochLostError: the board has another epoch.
        """
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
        self.client.high_water.note(self.board.id, self.epoch or "", offset)

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
    def journal(self) -> str:
        """The store key of the board's journal."""
        return self.keys.journal(self.epoch or self.born)

    @property
    def journaled(self) -> bool:
        """Whether the board has a journal."""
        return self.settings.journal != "off" and self.board.journal.level != "off"

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
            StoreUnavailableError: the store is unavailable.
        """
        if self.epoch is not None:
            return
        born = self.born or self.client.high_water.facts.epochs.get(self.board.id, "")
        if not born:
            self.require_no_loss()
        epoch, shape, newest, span, bucket, now, latest, secret = await self._opened(born)
        # Check that this process can read the data of the board.
        if shape.decode() != self.board.shape.encode():
            raise SetupError(
                f"the store holds board {self.board.id!r} with other choices: "
                f"{shape.decode()}; its definition has {self.board.shape.encode()}. "
                "Give it another id, or correct its definition."
            )
        self.secret = secret
        self.update_clock(newest, now, latest)
        self.buckets = Buckets(int(span), int(bucket))
        self.epoch = self.fence.shown_epoch = epoch.decode()
        if self.board.journal.level == "off":
            await stop_journal(self.client, self.keys, self.epoch)
        if not self.born:
            self.client.high_water.remember_epoch(self.board.id, self.epoch)

    async def _opened(self, born: str) -> list[Any]:
        """Return the state of the board in the store. Create the board if it is not there and never had an epoch."""
        keys = self.keys
        journaled = self.journaled
        request = OpenRequest(
            idle=_WRITER_IDLE,
            span=math.ceil(
                max(
                    self.settings.dedupe_window,
                    self.board.dedupe_window / _BUCKETS,
                    self.board.remembers / (MOST_BUCKETS - 2),
                )
            ),
            born=born or None,
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
        """Open the board in order to change it.

        Raises:
            SetupError: as `open`.
            EpochLostError: data of the board is lost, and no operator has accepted the loss.
        """
        self.require_no_loss()
        await self.open()
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
        """Record that somebody reads the board, if the board can expire. The script that adds events does this itself.

        Raises:
            EpochLostError: the store does not hold the board any more.
        """
        idle_ttl, now = self.board.idle_ttl, time.monotonic()
        if idle_ttl is None or now < self._noted + quiet(idle_ttl):
            return
        before, self._noted = self._noted, now  # set before the call, so that other callers do not record the use too
        try:
            await self.run(self.scripts.touch, [self.keys.meta], TouchRequest(self.epoch or self.born))
        except StoreUnavailableError:
            self._noted = before
            raise


async def open_boards(states: Sequence[BoardState]) -> list[StoreUnavailableError | EpochLostError | None]:
    """Open boards, many with one round trip. Return an error for each board that can't be opened now.

    Raises:
        SetupError: as `BoardState.open`, for the first board with such an error.
    """
    outcomes: list[StoreUnavailableError | EpochLostError | None] = []
    for first in range(0, len(states), _AT_ONCE):
        piece = states[first : first + _AT_ONCE]
        for outcome in await asyncio.gather(*(state.open() for state in piece), return_exceptions=True):
            if outcome is not None and not isinstance(outcome, StoreUnavailableError | EpochLostError):
                raise outcome
            outcomes.append(outcome)
    return outcomes


def _nothing(*_: object) -> None:
    """Do nothing: the default callback."""
