"""The ledger of one board: add, rotate, read. The rules I1 to I7 live in the scripts; here is the way to them."""

import asyncio
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from live.board import Board
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.event import Entry
from live.ranking import Page, Record
from live.settings import Settings
from live.store.client import Store, may_have_run, store_errors
from live.store.keys import Keys
from live.store.plan import Plan, known_again, make_plan
from live.store.scripts import Script

_MOST_REPLANS: Final = 20  # each means that the board's clock moved between two calls
_RETRY_PAUSE: Final = 0.05
_WRITER_IDLE: Final = 86_400  # seconds; a batch is retried for a few


class Scripts(msgspec.Struct, frozen=True):
    """The scripts that a ledger runs; tests put wrong ones in their place, to see that they are caught."""

    add: Script = Script("add")
    open: Script = Script("open")
    read: Script = Script("read")
    rotate: Script = Script("rotate")


SCRIPTS: Final = Scripts()


class Added(msgspec.Struct, frozen=True):
    """What became of a batch.

    `offset` is where the board stands after it (None: nothing was applied), `refused` gives index and code of entries
    that were not counted (`duplicate`, or a code of `REFUSALS`), `clock_moved` says that it took the board's clock into
    another slot.
    """

    offset: int | None
    refused: Mapping[int, str]
    clock_moved: bool


class _FullError(Exception):
    """The batch as a whole would exceed the volume of the board."""


class Ledger:
    """One board in the store, as one process sees it."""

    def __init__(self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS) -> None:
        self.board = board
        self.keys = Keys(settings.key_prefix, board.id)
        self.epoch: str | None = None
        self._client = client
        self._settings = settings
        self._scripts = scripts
        self._writer = secrets.token_hex(8)
        self._sequence = 0
        self._writing = asyncio.Lock()
        self._newest: int | None = None  # the board's newest slot, when we last heard
        self._span = 0  # seconds: length of a bucket of identities
        self._bucket = 0  # the newest one, when we last heard
        self._leaving = ("", "0")  # the slot that is being drained, and where the next step goes on

    async def open(self) -> None:
        """Meet the board in the store, or give it its epoch; cheap to call again.

        Raises:
            SetupError: the board lives in the store with another slot length or clock.
            StoreUnavailableError: the store is away.
        """
        if self.epoch is not None:
            return
        board = self.board
        slot = str(board.window.slot)
        span = math.ceil(self._settings.dedupe_window)
        async with store_errors():
            reply = await self._scripts.open(
                self._client,
                [self.keys.meta, self.keys.writers],
                [secrets.token_hex(4), slot, board.clock, _WRITER_IDLE, span],
            )
        epoch, held_slot, held_clock, newest, held_span, bucket = (part.decode() for part in reply)
        if (held_slot, held_clock) != (slot, board.clock):
            raise SetupError(
                f"board {board.id!r} lives in the store with slots of {held_slot}s on the {held_clock} clock, and now "
                f"is to have {slot}s on the {board.clock} clock: give it another id, or set its definition right."
            )
        self._newest = int(newest) if newest else None
        self._span, self._bucket = int(held_span), int(bucket)
        self.epoch = epoch

    async def add(self, entries: Sequence[Entry]) -> Added:
        """Count a batch and return once the store has fsynced it.

        A batch is applied at one instant. Should the board's volume not hold all of it, the batch is halved, in order,
        until the entries that do not fit stand alone. A lost reply is asked for again under the same number, so that
        it counts once.

        Raises:
            StoreUnavailableError: no answer before the write deadline.
            EpochLostError: the store lost the board.
        """
        async with self._writing:
            await self.open()
            refused: dict[int, str] = {}
            offset: int | None = None
            newest = self._newest
            pending = [range(len(entries))]
            while pending:
                indexes = pending.pop()
                try:
                    applied = await self._apply(entries, indexes, refused)
                    offset = offset if applied is None else applied
                except _FullError:
                    if len(indexes) == 1:
                        refused[indexes[0]] = "score_out_of_range"
                    else:
                        middle = len(indexes) // 2
                        pending += [indexes[middle:], indexes[:middle]]
                except StoreUnavailableError as error:  # of a batch that was halved, some may stand already
                    raise StoreUnavailableError(str(error), unknown=error.unknown or offset is not None) from error
            return Added(offset, refused, clock_moved=self._newest != newest)

    async def rotate(self) -> float | None:
        """Do one bounded step of rotation.

        Returns:
            None when there may be more to do now, else the seconds until a slot can be due (infinite when only an
            event can tell).

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        await self.open()
        start, cursor = self._leaving
        board, settings = self.board, self._settings
        async with store_errors():
            reply = await self._scripts.rotate(
                self._client,
                [self.keys.ranking, self.keys.meta, self.keys.slots, self.keys.slot(start)],
                [
                    self.epoch or "",
                    board.clock,
                    board.window.slot,
                    board.window.length,
                    start,
                    cursor,
                    settings.rotation_step,
                    self.keys.channel,
                ],
            )
        match reply:
            case [b"moved", _, cursor]:
                self._leaving = (start, cursor.decode())
            case [b"slot", oldest]:
                self._leaving = (oldest.decode(), "0")
            case [b"idle", wait]:
                self._leaving = ("", "0")
                return float("inf") if int(wait) < 0 else int(wait) / 1000
            case _:
                raise self._lost(reply)
        return None

    async def read(self, limit: int, *, start: int = 0, after: tuple[int, str] | None = None) -> Page:
        """Read `limit` records from `start`, or those that follow the position `after` = (score, key).

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        if after is None:
            return await self._read("rank", start, "", limit)
        return await self._read("after", after[0], after[1], limit)

    async def find(self, key: str, around: int) -> Page | None:
        """Read a key's record with `around` neighbours on each side; None when the key is not on the board.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        page = await self._read("around", around, key, 0)
        return page if page.records else None

    async def _apply(self, entries: Sequence[Entry], indexes: Sequence[int], refused: dict[int, str]) -> int | None:
        """Plan some entries and apply the plan; the offset, or None when all were refused."""
        self._sequence += 1
        future = round(self._settings.max_future * 1000)
        newest_time: int | None = None
        replans = 0
        while indexes and replans < _MOST_REPLANS:
            plan = make_plan(self.board, entries, indexes, self._newest, newest_time)
            if plan.too_large:
                raise _FullError
            await self._recognise_late(entries, plan)  # before anything is counted: should it fail, nothing is
            match await self._send(plan, future):
                case [b"ok", offset]:
                    self._newest = plan.reached
                    refused.update(plan.refused)
                    return int(offset)
                case [b"nothing"]:
                    refused.update(plan.refused)
                    return None
                case [b"full"]:
                    raise _FullError
                case [b"replan", newest, now, bucket]:
                    self._newest = int(newest) if newest else None
                    self._bucket = int(bucket)
                    newest_time = int(now) + future
                    replans += 1
                case [b"seen", *numbers]:
                    refused.update(known_again(entries, indexes, plan, numbers))
                    indexes = [index for index in indexes if index not in refused]
                case reply:
                    raise self._lost(reply)
        if not indexes:
            return None
        raise StoreUnavailableError(f"the clock of board {self.board.id} moved {_MOST_REPLANS} times in a row")

    async def _recognise_late(self, entries: Sequence[Entry], plan: Plan) -> None:
        """Call a late event a duplicate that had been counted in time."""
        late = {index: entries[index][3] for index, code in plan.refused.items() if code == "late"}
        identities = {index: identity for index, identity in late.items() if identity is not None}
        if not identities:
            return
        call = self._client.line.call
        async with store_errors():
            newest = int(await call("HGET", self.keys.meta, "bucket") or 0)
            for key in self._seen_keys(newest)[:-1]:
                marks = await call("SMISMEMBER", key, *identities.values())
                plan.refused.update({index: "duplicate" for index, mark in zip(identities, marks, strict=True) if mark})

    def _seen_keys(self, newest: int) -> list[str]:
        """The buckets that may know an identity of the dedupe window, newest first, and last the one to forget."""
        count = math.ceil(self._settings.dedupe_window / self._span) + 1
        return [self.keys.seen(newest - self._span * number) for number in range(count + 1)]

    async def _send(self, plan: Plan, future: int) -> list[Any]:
        """Run the add script, again and again under one number, until it answers or the deadline has passed."""
        seen = self._seen_keys(self._bucket) if plan.identities else []
        keys = [self.keys.ranking, self.keys.meta, self.keys.slots, self.keys.writers, *seen]
        keys += [self.keys.slot(start) for start in plan.slots]
        board = self.board
        arguments = [
            self.epoch or "",
            self._writer,
            self._sequence,
            board.clock,
            board.window.slot,
            "" if plan.current is None else plan.current,
            "" if plan.reached is None else plan.reached,
            "" if plan.latest is None else plan.latest,
            future,
            self.keys.channel,
            self._bucket,
            self._span,
            len(seen),
            len(plan.identities),
            *plan.identities,
            *plan.groups(),
        ]
        deadline = asyncio.get_running_loop().time() + self._settings.write_deadline
        unknown = False
        while True:
            try:
                async with store_errors(), asyncio.timeout_at(deadline):
                    return await self._scripts.add(self._client, keys, arguments)
            except StoreUnavailableError as error:
                unknown = unknown or may_have_run(error.__cause__)
                if asyncio.get_running_loop().time() + _RETRY_PAUSE >= deadline:
                    raise StoreUnavailableError(str(error), unknown=unknown) from error
            await asyncio.sleep(_RETRY_PAUSE)

    async def _read(self, mode: str, number: int, member: str, limit: int) -> Page:
        await self.open()
        async with store_errors():
            reply = await self._scripts.read(
                self._client, [self.keys.ranking, self.keys.meta], [mode, number, member, limit]
            )
        epoch, offset, count, total, start, *rows = (part.decode() for part in reply)
        if epoch != self.epoch:
            raise self._lost([b"epoch", epoch.encode()])
        first = int(start or 0)
        return Page(
            epoch=epoch,
            offset=int(offset),
            rank_count=int(count),
            total_score=int(total),
            start=first,
            records=tuple(Record(rows[i], int(float(rows[i + 1])), first + i // 2 + 1) for i in range(0, len(rows), 2)),
        )

    def _lost(self, reply: list[Any]) -> Exception:
        """What an answer means that no live board gives."""
        if reply[0] != b"epoch":
            return AssertionError(f"the store answered {reply!r}")
        held = reply[1].decode() or "none"
        return EpochLostError(
            f"board {self.board.id!r} had epoch {self.epoch}, and the store now holds {held}: its data was lost. "
            "Nothing is counted until the server is started again, which accepts the board as it is."
        )
