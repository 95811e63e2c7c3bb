"""Add batches to a board: each batch counts once, at one instant, and is synced to disk before the reply."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.event import Entry, Extra
from live.domain.window import Sliding
from live.errors import JournalBehindError, StoreUnavailableError
from live.store.board.batch import Batch, BatchIdentities, encode_batch
from live.store.board.requests import AddRequest, HeldAmounts, PlannedClock
from live.store.board.state import AGAIN, MOST_REPLANS, BoardState
from live.store.board.write.slot_assignment import (
    Placement,
    Plan,
    Senders,
    begin_plan,
    make_plan,
    placements_of,
    refused_by_store,
)
from live.store.connection.client import may_have_run
from live.store.connection.scripts import text, texts

# Milliseconds by which an event may be ahead of the store: more than clocks that are set over the network differ. A
# wider limit would let one wrong clock move the window of a board.
MAX_FUTURE: Final = 60_000
_IDENTITY: Final = 16  # bytes
_RETRY_PAUSE: Final = 0.05
_SQL_POLL: Final = 0.01
_PAUSED_POLL: Final = 0.005
_LAST_ATTEMPT: Final = 0.2  # seconds before the write deadline
_TOO_LATE: Final = "the store did not answer before the write deadline"


class Added(msgspec.Struct, frozen=True):
    """The result of a batch."""

    offset: int | None  # the board's offset after the batch; None when nothing was applied
    refused: Mapping[int, str]  # for each entry that was not counted its index, and `duplicate` or a code of `REFUSALS`
    clock_moved: bool  # whether the batch moved the board's clock to another slot
    widest: int = 0  # the largest absolute value in a slot after the batch
    # Where each counted entry counted, by its index, if the caller asked for it.
    placements: Mapping[int, Placement] = {}


class BoardWriter:
    """Add batches to a board."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self.max_future = MAX_FUTURE
        self._writer = secrets.token_hex(8)
        self._sequence = 0
        self._writing = asyncio.Lock()

    async def add(
        self, entries: Sequence[Entry], senders: Senders = (), *, places: bool = False, strict: Sequence[range] = ()
    ) -> Added:
        """Count a batch and return when the store has synced it to disk. `senders` are the producers, for the journal.

        With `places`, tell where each entry counted. If one entry of a `strict` range of indexes is refused, and not as
        a duplicate, the other entries of the range are refused as `not_counted`. The whole batch is applied at one
        instant. After a lost reply the batch is sent again under the same number, so that it counts once.
        """
        async with self._writing:
            state = self.state
            await state.open_to_write()
            before = (state.clock.newest, state.clock.latest)
            self._sequence += 1
            again = False
            while True:
                added = await self._apply(entries, senders, again=again, places=places, strict=strict)
                offset, refused = added.offset, added.refused
                repeated = offset is None and "duplicate" in refused.values()
                if (offset is None and not repeated) or await self.is_in_sql(offset):
                    break
                if refused:  # after a failover, the new primary may refuse other entries than the old one
                    raise self._taken_over()
                again = True
            moved = (state.clock.newest, state.clock.latest) != before
            # In a sliding window, a new event may be the next one to leave.
            if moved or isinstance(state.board.window, Sliding):
                state.on_sooner()
            state.on_added(moved)
            if offset is not None:
                state.acknowledge(offset)
            return Added(offset, refused, moved, added.widest, added.placements)

    def _taken_over(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"board {self.state.board.id}: another server took over", unknown=True)

    async def is_in_sql(self, offset: int | None) -> bool:
        """Wait until the journal's database has a batch, if producers wait for it.

        Without an offset, wait for everything that the board has counted until now, because a duplicate acknowledges an
        earlier batch. Return False if another server has become the primary: it may lack the batch, and have other
        batches up to this offset.
        """
        state = self.state
        if not (state.settings.journal_ack and state.journaled):
            return True
        meta, loop = state.keys.meta, asyncio.get_running_loop()
        deadline = loop.time() + state.settings.write_deadline
        reign = state.client.servers.reign_of(meta).encode()
        while True:
            try:
                safe, held, journal = await state.call("HMGET", meta, "safe", "reign", "journal")
            except StoreUnavailableError as error:  # the batch was applied: ask again until the deadline
                if loop.time() > deadline:
                    raise StoreUnavailableError(str(error), unknown=True) from error
                await asyncio.sleep(_RETRY_PAUSE)
                continue
            if reign and held != reign:
                return False
            if offset is None:  # `journal` begins with the offset of the last entry
                offset = int((journal or b"0").partition(b"-")[0])
            if int(safe or 0) >= offset:
                return True
            if loop.time() > deadline:
                reason = f"board {state.board.id}: offset {offset} is not in the journal's database yet"
                raise StoreUnavailableError(reason, unknown=True)
            await asyncio.sleep(_SQL_POLL)

    async def put(self, fill: Callable[[Board, Plan], None]) -> list[Any]:
        """Apply a plan that does not come from events, as a batch with its own number. Return the reply of the script.

        `fill` adds to an empty plan, and is called again if the board's clock has moved. The reply is one of those that
        `add.lua` lists, but never `replan`, `ruled`, `behind`, `backlog`, `paused`, `epoch` or `reign`.
        """
        async with self._writing:
            state = self.state
            await state.open_to_write()
            self._sequence += 1
            for _ in range(MOST_REPLANS):
                board = state.board
                plan = begin_plan(board, state.clock)
                fill(board, plan)
                reply = await self._send(board, plan)
                if reply[0] == b"ok":
                    self._advance(plan)
                    state.on_sooner()
                    if not await self.is_in_sql(int(reply[1])):
                        raise self._taken_over()
                    state.acknowledge(int(reply[1]))
                if reply[0] not in AGAIN:
                    return reply
            raise state.moved_too_often()

    async def _apply(
        self, entries: Sequence[Entry], senders: Senders, *, again: bool, places: bool, strict: Sequence[range]
    ) -> Added:
        """Plan the entries and apply the plan. `again` says that a batch of this number may have been applied."""
        state = self.state
        newest_time: int | None = None
        replans = 0
        refused: dict[int, str] = {}
        indexes: Sequence[int] = range(len(entries))
        while indexes and replans < MOST_REPLANS:
            board = state.board  # the same value for the plan and its script, even if an operator changes the board
            plan, withheld = make_plan(board, entries, indexes, state.clock, newest_time, state.secret, senders), 0
            while strict and len(held_back := withheld_by(strict, refused, plan.refused)) > withheld:
                withheld = len(held_back)  # withheld entries can change which other entries the plan refuses
                kept = [refusing(entry) if at in held_back else entry for at, entry in enumerate(entries)]
                plan = make_plan(board, kept, indexes, state.clock, newest_time, state.secret, senders)
            match await self._send(board, plan, unknown=again, beaten=places and board.operator == "best"):
                case [b"ok", offset, *more]:
                    self._advance(plan)
                    widest = int(more[0]) if more else 0
                    beaten = more[1] if more[1:] else ()
                    found = placements_of(board, plan, entries, indexes, beaten) if places else {}
                    return Added(
                        int(offset), refused | plan.refused, clock_moved=False, widest=widest, placements=found
                    )
                case [b"nothing"]:
                    return Added(None, refused | plan.refused, clock_moved=False)
                case [b"replan", *_]:
                    newest_time = state.clock.now + self.max_future
                    replans += 1
                case [b"ruled"]:
                    replans += 1
                case reply:
                    known = refused_by_store(board, reply, entries, indexes, plan)
                    if not known:
                        raise AssertionError(f"the store answered {reply!r}")
                    refused.update(known)
                    indexes = [index for index in indexes if index not in refused]
        if not indexes:
            return Added(None, refused, clock_moved=False)
        raise state.moved_too_often()

    def _advance(self, plan: Plan) -> None:
        clock = self.state.clock
        clock.newest, latest = plan.batch.reached, plan.batch.latest
        if latest is not None:
            clock.latest = max(latest, clock.latest or latest)

    def _request(self, board: Board, plan: Plan, *, beaten: bool) -> tuple[list[str], AddRequest]:
        state, batch, held = self.state, plan.batch, None
        batch.groups = list(plan.slots.values())
        looked_up = plan.looked_up
        if plan.identities or looked_up:
            batch.identities = identities_of(state, texts(list(plan.identities), _IDENTITY))
        if plan.held is not None:
            values = [[value.decode() for value in of_member.values()] for of_member in plan.held.values()]
            held = HeldAmounts([str(start) for start in next(iter(plan.held.values()))], list(plan.held), values)
            if batch.rules.operation != "incr":  # a correction or a merge replaces the best value too
                batch.rules = msgspec.structs.replace(batch.rules, operation="set")
        batch.span = state.buckets.span
        return keys_of(state, batch, held), AddRequest(
            epoch=state.epoch or "",
            ruled=state.ruled,
            writer=self._writer,
            sequence=self._sequence,
            clock=PlannedClock(by_event=batch.by_event, current=plan.current, till=plan.till),
            batch=text(encode_batch(batch)),
            future=self.max_future,
            most=board.most,
            most_slots=board.most_slots or None,
            most_members=board.max_members,
            refused=texts(looked_up, _IDENTITY) if looked_up else None,
            backlog=int(state.settings.journal_backlog),
            held=held,
            beaten=beaten,
            digits=() if board.sums is None else board.sums.digits,
        )

    async def _send(self, board: Board, plan: Plan, *, unknown: bool = False, beaten: bool = False) -> list[Any]:
        """Run the script until there is a reply or the deadline has passed. All attempts have the same batch number.

        `unknown` says that the store may have applied the batch before. With `beaten`, the reply has the values that
        the best amounts had to beat. The reply may be `replan`. Then the state has the board's new clock.
        """
        keys, request = self._request(board, plan, beaten=beaten)
        state = self.state
        deadline = asyncio.get_running_loop().time() + state.settings.write_deadline
        while True:
            state.require_no_loss()
            # If the batch was applied before, the script returns the old offset, which may be below the known one.
            known = -1 if unknown else state.known + 1
            try:
                async with asyncio.timeout_at(deadline):
                    reply = await state.run(state.scripts.add, keys, request)
            except (StoreUnavailableError, TimeoutError) as error:
                unknown = unknown or may_have_run(error)
                if asyncio.get_running_loop().time() + _RETRY_PAUSE >= deadline:
                    raise StoreUnavailableError(str(error) or _TOO_LATE, unknown=unknown) from error
            else:
                match reply:
                    case [b"ok", offset, *_]:
                        state.check_offset(offset, known)
                        state.require_no_loss()  # acknowledge nothing on a board that lost data
                    case [b"replan", *_, bucket]:
                        state.buckets.newest = int(bucket)
                    case [b"backlog", size]:
                        reason = f"board {board.id}: {int(size):,} bytes of its journal wait to be moved to SQL"
                        raise JournalBehindError(reason)
                    case [b"behind"]:
                        reason = f"board {board.id} has {board.most_slots} slots, and most wait to be subtracted"
                        raise StoreUnavailableError(reason)
                    case [b"paused", left]:
                        pause = min(int(left) / 1000, _PAUSED_POLL)
                        # Without a reply to the last attempt, nobody would know that nothing was counted.
                        if asyncio.get_running_loop().time() + pause + _LAST_ATTEMPT < deadline:
                            await asyncio.sleep(pause)
                            continue
                        reason = f"the contents of board {board.id} are being replaced"
                        raise StoreUnavailableError(reason, unknown=unknown)
                return reply
            await asyncio.sleep(_RETRY_PAUSE)


def keys_of(state: BoardState, batch: Batch, held: HeldAmounts | None = None) -> list[str]:
    """Return the store keys with which `add.lua` counts a batch."""
    own = state.keys
    keys = [own.meta, own.slots, own.writers, own.log, own.taken, own.entrants, own.hidden, state.journal]
    for group in batch.groups:
        keys += (own.slot(group.start), *state.table(group.start).all)
    if held is not None:
        keys += [own.slot(start) for start in held.starts]
    if batch.identities is not None:  # the buckets to search, newest first, then the one to delete
        span = state.buckets.span
        keys += [own.seen(batch.identities.bucket - span * number) for number in range(_searched(state) + 1)]
    return keys


def identities_of(state: BoardState, packed: msgspec.Raw) -> BatchIdentities:
    """Return packed identities with the bucket that they go to by the present clock."""
    return BatchIdentities(all=packed, bucket=state.buckets.newest, kept=(_searched(state) + 2) * state.buckets.span)


def _searched(state: BoardState) -> int:
    return state.board.buckets(state.settings.dedupe_window, state.buckets.span)


WITHHELD: Final = "not_counted"
_DUPLICATE: Final = "duplicate"


def withheld_by(strict: Sequence[range], known: Mapping[int, str], planned: Mapping[int, str]) -> frozenset[int]:
    """Return the entries that must not count because another entry of their range is refused.

    `known` are the codes with which the store has refused entries, and `planned` the codes of the plan, both by index.
    A duplicate that the store found was counted before, so it is no refusal. A duplicate within the plan would count
    if the entry that it repeats did not. So it is withheld too.
    """
    found: set[int] = set()
    for indexes in strict:
        codes = {code for index in indexes if (code := known.get(index) or planned.get(index))}
        if codes - {_DUPLICATE}:
            found.update(i for i in indexes if i not in known and planned.get(i, WITHHELD) in {WITHHELD, _DUPLICATE})
    return frozenset(found)


def refusing(entry: Entry) -> Entry:
    """Return the entry marked as withheld: the board then refuses it, unless it has counted the entry before."""
    member, amount, time, identity, extra = entry
    return (member, amount, time, identity, msgspec.structs.replace(extra or Extra(), refused=WITHHELD))
