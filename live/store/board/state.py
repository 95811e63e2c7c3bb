"""One board in the store, as one process knows it: its epoch, where its clock stands, and what its scripts answer."""

import asyncio
import math
import secrets
import time
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.board.keys import Keys, Table
from live.store.board.plan import Clock, begin_plan
from live.store.board.requests import (
    AddRequest,
    EnterRequest,
    ExpireEventsRequest,
    HideRequest,
    LookupRequest,
    OpenRequest,
    PlannedClock,
    ReadRequest,
    RotatePeriodRequest,
    RotateRequest,
    TouchRequest,
)
from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script, text

MOST_REPLANS: Final = 20  # each means that the board's clock moved between two calls
_WRITER_IDLE: Final = 86_400  # seconds; a batch is retried for a few
_MOST_QUIET: Final = 60.0


class Scripts(msgspec.Struct, frozen=True):
    """The scripts that a ledger runs; tests put wrong ones in their place, to see that they are caught."""

    add: Script[AddRequest] = Script("add", AddRequest)
    open: Script[OpenRequest] = Script("open", OpenRequest)
    read: Script[ReadRequest] = Script("read", ReadRequest)
    places: Script[LookupRequest] = Script("places", LookupRequest)
    rotate: Script[RotateRequest] = Script("rotate", RotateRequest)
    expire_events: Script[ExpireEventsRequest] = Script("expire_events", ExpireEventsRequest)
    rotate_period: Script[RotatePeriodRequest] = Script("rotate_period", RotatePeriodRequest)
    enter: Script[EnterRequest] = Script("enter", EnterRequest)
    hide: Script[HideRequest] = Script("hide", HideRequest)
    touch: Script[TouchRequest] = Script("touch", TouchRequest)


SCRIPTS: Final = Scripts()


def quiet(idle_ttl: int) -> float:
    """For how many seconds the use of a board is not noted again."""
    return min(_MOST_QUIET, idle_ttl / 4)


class Life:
    """What reading, adding and rotating share."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        self.board = board
        self.keys = Keys(settings.key_prefix, board.id)
        self.epoch: str | None = None
        self.born = born  # the epoch that the board was made with at run time: it is never given another life here
        self.clock = Clock(None, 0)
        self.sooner = asyncio.Event()  # something may be due to leave sooner than rotation was told
        self.secret = b""  # keys what is stored of voters
        self._client = client
        self._witness = client.witness
        self._settings = settings
        self._scripts = scripts
        self._span = 0  # seconds: length of a bucket of identities
        self._bucket = 0  # the newest one, when we last heard
        self._noted = float("-inf")  # when we last noted that the board is used

    async def open(self) -> None:
        """Meet the board in the store, or give it its epoch; cheap to call again.

        Raises:
            SetupError: the board lives in the store with choices by which its data can't be read.
            StoreUnavailableError: the store is away.
            EpochLostError: the board was made at run time, and is no more.
        """
        if self.epoch is not None:
            return
        born = self.born or self._witness.facts.epochs.get(self.board.id, "")
        if not born:
            self._witness.require_whole()
        span, shape = math.ceil(self._settings.dedupe_window), self.board.shape.encode()
        async with store_errors():
            reply = await self._scripts.open(
                self._client,
                [self.keys.meta, self.keys.writers, self.keys.slots],
                OpenRequest(
                    epoch=secrets.token_hex(4),
                    shape=shape,
                    idle=_WRITER_IDLE,
                    span=span,
                    born=born or None,
                    secret=text(secrets.token_bytes(16)),
                    votes=self.board.votes is not None,
                ),
            )
        if reply[0] == b"epoch":
            raise self._lost(reply)
        epoch, held_shape, newest, held_span, bucket, now, latest, secret = reply
        if held_shape.decode() != shape:
            raise SetupError(
                f"board {self.board.id!r} lives in the store with other choices: "
                f"{held_shape.decode() or 'those of an older version'}, and now is to have {shape}. "
                "Give it another id, or set its definition right."
            )
        if self.board.votes and not secret:
            raise SetupError(
                f"board {self.board.id!r} holds votes that an older version of Live Board stored. "
                "This version can't tell from them who has voted, so votes would count twice. "
                "Give the contest another id."
            )
        self.secret = secret
        self._hear(newest, now, latest)
        self._span, self._bucket = int(held_span), int(bucket)
        self.epoch = epoch.decode()
        if not self.born:
            self._witness.meet_board(self.board.id, self.epoch)

    async def open_to_write(self) -> None:
        """The same, for what changes the board.

        Raises:
            SetupError: the board lives in the store with choices by which its data can't be read.
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost data, of this board or of another, and no operator has accepted that.
        """
        self._witness.require_whole()
        await self.open()
        self._witness.require_whole()

    def lose(self, error: EpochLostError) -> None:
        """Tell all processes that the board is lost: it has not left, and nobody has removed it."""
        self._witness.lose(str(error))

    async def has_left(self) -> bool:
        """Whether the board has left by itself or is being deleted; to be asked before its definition is looked up.

        Raises:
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            gone = await self._client.line.call("HGET", self.keys.gone, "epoch")
        return (gone or b"").decode() == (self.epoch or self.born)

    def _known(self) -> int:
        """The highest offset that is known of the board; taken before the store is asked."""
        return self._witness.offset_of(self.board.id, self.epoch)

    def _see(self, offset: bytes, known: int) -> None:
        """Compare an offset with what was known before the store was asked."""
        self._witness.see_offset(self.board.id, self.epoch or "", int(offset), known)

    async def confirm(self) -> None:
        """See that the board in the store is the one that was opened here; writes nothing.

        Raises:
            SetupError: as `open`.
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        await self.open()
        async with store_errors():
            epoch = await self._client.line.call("HGET", self.keys.meta, "epoch")
        if epoch is None or epoch.decode() != self.epoch:
            raise self._lost([b"epoch", epoch or b""])

    async def use(self) -> None:
        """Note that somebody reads the board, if it is one that leaves when nobody uses it; events are noted anyway.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the board is no more.
        """
        idle_ttl, now = self.board.idle_ttl, time.monotonic()
        if idle_ttl is None or now < self._noted + quiet(idle_ttl):
            return
        before, self._noted = self._noted, now  # first, so that others need not
        try:
            async with store_errors():
                reply = await self._scripts.touch(self._client, [self.keys.meta], TouchRequest(self.epoch or self.born))
        except StoreUnavailableError:
            self._noted = before
            raise
        if reply[0] != b"ok":
            raise self._lost(reply)

    def _hear(self, newest: bytes, now: bytes, latest: bytes) -> None:
        """Note where the board's clock stands."""
        self.clock = Clock(int(newest) if newest else None, int(now), int(latest) if latest else None)

    def _table(self, start: int | None) -> Table:
        """The table that holds the ranking of a slot."""
        return self.keys.table(start if self.board.window.tables else None)

    def _planned(self) -> PlannedClock:
        """The newest slot as this process knows it, and its end."""
        plan = begin_plan(self.board, self.clock)
        return PlannedClock(by_event=self.board.clock == "event", current=plan.current, till=plan.till)

    def _lost(self, reply: list[Any]) -> Exception:
        """What an answer means that no live board gives."""
        if reply[0] != b"epoch":
            return AssertionError(f"the store answered {reply!r}")
        held = reply[1].decode() or "none"
        return EpochLostError(
            f"board {self.board.id!r} had epoch {self.epoch or self.born}, and the store now holds {held}: "
            "its data was lost"
        )
