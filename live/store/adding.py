"""Adding batches to a board: each counts once, at one instant, and is fsynced before the answer."""

import asyncio
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from live.board import Board
from live.errors import StoreUnavailableError
from live.event import Entry
from live.settings import Settings
from live.store.client import Store, may_have_run, store_errors
from live.store.life import MOST_REPLANS, SCRIPTS, Life, Scripts, word
from live.store.plan import Plan, known_again, make_plan

_RETRY_PAUSE: Final = 0.05


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


class Adding(Life):
    """A board that is added to."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        super().__init__(client, board, settings, scripts, born)
        self._writer = secrets.token_hex(8)
        self._sequence = 0
        self._writing = asyncio.Lock()

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
            stood = (self.clock.newest, self.clock.latest)
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
            return Added(offset, refused, clock_moved=(self.clock.newest, self.clock.latest) != stood)

    async def _apply(self, entries: Sequence[Entry], indexes: Sequence[int], refused: dict[int, str]) -> int | None:
        """Plan some entries and apply the plan; the offset, or None when all were refused."""
        self._sequence += 1
        future = round(self._settings.max_future * 1000)
        newest_time: int | None = None
        replans = 0
        while indexes and replans < MOST_REPLANS:
            plan = make_plan(self.board, entries, indexes, self.clock, newest_time)
            if plan.too_large:
                raise _FullError
            await self._recognise_late(entries, plan)  # before anything is counted: should it fail, nothing is
            match await self._send(plan, future):
                case [b"ok", offset]:
                    self.clock.newest = plan.reached
                    if plan.latest is not None:
                        self.clock.latest = max(plan.latest, self.clock.latest or plan.latest)
                    refused.update(plan.refused)
                    return int(offset)
                case [b"nothing"]:
                    refused.update(plan.refused)
                    return None
                case [b"full"]:
                    raise _FullError
                case [b"replan", newest, now, bucket, latest]:
                    self._hear(newest, now, latest)
                    self._bucket = int(bucket)
                    newest_time = int(now) + future
                    replans += 1
                case reply:
                    known = _refusals(reply, entries, indexes, plan)
                    if not known:
                        raise self._lost(reply)
                    refused.update(known)
                    indexes = [index for index in indexes if index not in refused]
        if not indexes:
            return None
        raise StoreUnavailableError(f"the clock of board {self.board.id} moved {MOST_REPLANS} times in a row")

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
        keys = [self.keys.meta, self.keys.slots, self.keys.writers, self.keys.log, self.keys.entrants, *seen]
        for start in plan.slots:
            keys += (self.keys.slot(start), *self._table(start).all)
        board, votes = self.board, self.board.votes
        arguments = [
            self.epoch or "",
            self._writer,
            self._sequence,
            board.clock,
            word(plan.current),
            word(plan.till),
            word(plan.reached),
            word(plan.latest),
            future,
            self.keys.channel,
            self._bucket,
            len(seen),
            self._span,
            board.operation,
            board.tags,
            board.ranks,
            "1" if board.score is None else "",
            board.cap or 0,
            board.reading,
            votes.per_key or 0 if votes else 0,
            votes.per_actor or 0 if votes else 0,
            "registered" if votes and votes.registered else "open",
            len(plan.identities),
            *plan.identities,
            *plan.groups(board),
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


def _refusals(reply: list[Any], entries: Sequence[Entry], indexes: Sequence[int], plan: Plan) -> dict[int, str]:
    """The entries that the script refuses by themselves, so that the others can be planned again without them."""
    match reply:
        case [b"seen", *numbers]:
            return known_again(entries, indexes, plan, numbers)
        case [b"votes", *refusals]:
            codes = zip(refusals[::2], refusals[1::2], strict=True)
            return {plan.voters[int(number) - 1]: code.decode() for number, code in codes}
        case [b"unregistered", *members]:
            unknown = {member.decode() for member in members}
            return {index: "entrant_unknown" for index in indexes if entries[index][0] in unknown}
        case [b"frozen"]:
            return dict.fromkeys(indexes, "frozen")
    return {}
