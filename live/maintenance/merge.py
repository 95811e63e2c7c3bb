"""Merge two members that are one person, or undo a merge. A merge moves events between the members on all boards.

Each board makes one batch, whose reason in the journal has the number of the merge. An undo reads the entries since the
merge. On boards that add amounts, the undo moves the same amounts back. On other boards, it folds the journal without
the merge, to compute the amounts that both members would have.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.boards.all_boards import all_boards
from live.domain.board import Board, Boards
from live.domain.window import Sliding
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.entries import Add, Head, position_of
from live.journal.log.reader import contents_of
from live.journal.log.timelines import find_timeline
from live.journal.state.fold import apply
from live.journal.state.snapshot import Ranking, Snapshot, pack, unpack
from live.maintenance.contributions import Found, Trail, find_trail
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import open_ledger
from live.store.board.manage.erasure import knows_member
from live.store.board.manage.erasure import read_held as read_facts
from live.store.board.state import BoardState
from live.store.board.write.correction import read_held
from live.store.board.write.merging import MERGER, Move, Value, put_move, read_move
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss

_ATTEMPTS: Final = 40
_PAUSE: Final = 0.25
_MARGIN: Final = 3600 * 1_000_000  # microseconds by which the clocks of servers may differ, or be set back
_REASON: Final = re.compile(r"(undo of )?merge (\d+): ")
_VOTES: Final = (
    "it has votes. The digest of a vote covers the member, so nobody can tell who has voted for both: hide one member"
)
_NO_JOURNAL: Final = "it has no journal, so the merge could not be undone"
_NOT_SAID: Final = "its journal does not say which amount is newer: correct the score of one member, and hide the other"
_GONE: Final = "its journal does not reach back to the merge"
_BEGUN: Final = "its journal has begun again since the merge, so nobody knows what both members would have"
_BEHIND: Final = "its journal is behind the store: look at `live journal status`, and run it again"

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Merged(msgspec.Struct, kw_only=True):
    """The result of a merge, or of its undo, on a board.

    Attributes:
        board: the id of the board.
        slots: in how many slots or periods an amount changed.
        before: the amount of each member before the call, summed up over all slots. On boards with the best or the
            last amount, the amount in the newest slot or period that changed.
        after: the amount of each member afterwards, computed like `before`.
        fault: why the board refuses the merge or the undo; empty if it succeeds.
    """

    board: str
    slots: int = 0
    before: dict[str, int | None] = {}
    after: dict[str, int | None] = {}
    fault: str = ""


def reason_of(number: int, old: str, new: str, *, undo: bool = False) -> str:
    """Return the reason that the journal keeps for a merge, or for its undo."""
    return f"undo of merge {number}: {new} back to {old}" if undo else f"merge {number}: {old} into {new}"


class Merge(msgspec.Struct):
    """A merge in a journal: its number, its entry, and the two members. The member that was given up comes last."""

    number: int
    epoch: str
    head: Head
    add: Add

    @property
    def members(self) -> list[str]:
        """The member that received the events, and the member that was given up. An erased member has an empty name."""
        return (
            list((self.add.events or self.add.groups[0]).members[-2:])
            if self.add.events
            else self.add.groups[0].members
        )


def _number_in(head: Head, body: bytes) -> int | None:
    """Return the number of the merge that an entry makes or undoes. Return None for another entry."""
    if head.kind != "add" or MERGER.encode() not in body:
        return None
    add = _ADD.decode(body)
    match = _REASON.match(add.reason) if add.producers == [MERGER] else None
    return None if match is None else int(match[2])


def merges_in(entries: Iterable[Found]) -> tuple[list[Merge], set[int]]:
    """Return the merges among entries, oldest first, and the numbers of the merges that were undone."""
    found, undone = list[Merge](), set[int]()
    for epoch, head, body in entries:
        if head.kind != "add" or MERGER.encode() not in body:
            continue
        add = _ADD.decode(body)
        match = _REASON.match(add.reason) if add.producers == [MERGER] else None
        if match is not None and match[1]:
            undone.add(int(match[2]))
        elif match is not None:
            found.append(Merge(int(match[2]), epoch, head, add))
    return found, undone


def _merges(trail: Trail, connection: Connection) -> tuple[list[Merge], set[int]]:
    return merges_in(trail.read(connection))


def move_back(merge: Merge, held: dict[str, dict[int, bytes]], reason: str) -> Move:
    """Return the move that undoes a merge on a board that adds up amounts."""
    new, old = members = merge.members
    move = Move((old, new), reason, held)
    if merge.add.events is not None:
        times = zip(merge.add.events.times, merge.add.events.amounts, merge.add.events.members, strict=True)
        move.events = [(int(time), -amount, member) for time, amount, member in times]
    else:
        move.amounts = {
            group.start: dict(zip(members, [-amount for amount in group.amounts], strict=True))
            for group in merge.add.groups
        }
    return move


class Retraced:
    """The contents of a board with and without a merge, after all entries since then.

    Raises:
        SetupError: the journal has begun again since the merge.
    """

    def __init__(self, before: Snapshot, merge: Merge, entries: Sequence[tuple[Head, bytes]]) -> None:
        """Apply the entries from the merge on to the contents before the merge.

        The contents without the merge also lack merges that were undone meanwhile, and their undos.
        """
        self._merge = merge
        self._actual, self._other = before, unpack(pack(before))
        left_out = {merge.number, *merges_in(("", head, body) for head, body in entries)[1]}
        for head, body in entries:
            if head.kind in ("begin", "adopt"):
                raise SetupError(_BEGUN)
            apply(self._actual, head, body)
            if _number_in(head, body) not in left_out:
                apply(self._other, head, body)

    def move(self, board: Board, held: dict[str, dict[int, bytes]], reason: str) -> Move | None:
        """Return the move that undoes the merge.

        Return None if the store has changes of the members that are not in these entries.
        """
        new, old = members = self._merge.members
        for member in members:
            for start, value in held[member].items():
                if self._actual.slots.get(start, {}).get(member) != (int(value) if value else None):
                    return None
        move, values = Move((old, new), reason, held), dict[int, dict[str, Value | None]]()
        for start in [group.start for group in self._merge.add.groups if group.start in held[old]]:
            ranking = self._other.rankings.get(f":{start}" if board.window.tables else "", Ranking())
            slot = self._other.slots.get(start, {})
            values[start] = {
                member: Value(slot[member], ranking.metadata.get(member, b"")) if member in slot else None
                for member in members
            }
        move.values = values
        return move


def newest_of(entries: Iterable[Found], members: tuple[str, str]) -> dict[int, bool | None]:
    """Return for each slot whether the first member's amount is newer than the second member's. None means unknown.

    If time does not decide ties, the second member's amount counts as newer when both changed in one batch.
    """
    last: dict[tuple[int, str], tuple[int, int]] = {}
    saved: dict[tuple[str, int], list[tuple[int, int]]] = {}  # the values in `last` before each merge changed them
    never = (-1, 0)
    for number, (_, head, body) in enumerate(entries):
        if head.kind != "add":
            continue
        add = _ADD.decode(body)
        match = _REASON.match(add.reason) if add.producers == [MERGER] else None
        for group in add.groups:
            if match is None:
                for place, member in enumerate(group.members):
                    last[group.start, member] = number, abs(group.orders[place]) if group.orders else 0
                continue
            places = [(group.start, member) for member in group.members]
            if not match[1]:  # the events of the second member now belong to the first member
                new, old = saved[match[2], group.start] = [last.get(place, never) for place in places]
                last[places[0]] = max(new, old)
                last.pop(places[1], None)
            elif (match[2], group.start) in saved:
                places.reverse()  # the undo names the members in the opposite order
                new, old = saved[match[2], group.start]
                if last.get(places[0], never) == max(new, old):
                    last[places[0]] = new
                last.setdefault(places[1], old)
    found: dict[int, bool | None] = {}
    for start in {start for start, _ in last}:
        first, second = (last.get((start, member), never) for member in members)
        found[start] = None if first == second == never else first > second
    return found


class Merging:
    """Merge members on the boards of one key prefix, while servers run."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, database: Database) -> None:
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._database = database

    async def merge(self, old: str, new: str, *, dry: bool) -> tuple[int, list[Merged]]:
        """Move the events of one member to another member on all boards. Return the number of the merge.

        Raises:
            SetupError: the store has lost data.
            StoreUnavailableError, EpochLostError: repeat the same call, which continues under another number.
        """
        await require_no_loss(self._client, self._prefix)
        time = await self._client.call(self._prefix, "TIME")
        number = int(time[0]) * 1000 + int(time[1]) // 1000
        found = [
            await self._merge(board, epoch, old, new, reason_of(number, old, new), dry=dry)
            for board, epoch in (await all_boards(self._client, self._settings, self._in_file)).values()
        ]
        return number, [one for one in found if one.slots or one.fault]

    async def undo(self, number: int, *, dry: bool) -> list[Merged]:
        """Undo a merge on all boards. A merge that is already undone stays undone.

        Raises:
            SetupError: the store has lost data.
            NotFoundError: no journal has such a merge.
        """
        await require_no_loss(self._client, self._prefix)
        found, is_known = [], False
        for board, epoch in (await all_boards(self._client, self._settings, self._in_file)).values():
            facts = await read_facts(self._client, Keys(self._prefix, board.id))
            if facts is None or not facts.journaled:
                continue
            trail = await self._trail(board.id, facts.epoch, number * 1000 - _MARGIN)
            merges, undone = await self._database.run(partial(_merges, trail))
            merge = next((one for one in merges if one.number == number), None)
            if merge is None:
                continue
            is_known = True
            if number in undone:
                continue
            later = [one for one in merges if one.number > number and one.number not in undone]
            found.append(await self._undo(board, epoch, merge, later, dry=dry))
        if not is_known:
            raise NotFoundError(f"no journal has a merge {number}: `live trail` lists the numbers of merges")
        return found

    async def _trail(self, board: str, epoch: str, since: int) -> Trail:
        return await find_trail(self._client, self._database, self._prefix, board, epoch, since)

    async def _merge(self, board: Board, epoch: str, old: str, new: str, reason: str, *, dry: bool) -> Merged:
        one, keys = Merged(board=board.id), Keys(self._prefix, board.id)
        facts = await read_facts(self._client, keys)
        if facts is None or not await knows_member(self._client, keys, board, old):
            return one
        if board.votes is not None or not facts.journaled:
            one.fault = _NO_JOURNAL if board.votes is None else _VOTES
            return one
        state = (ledger := await open_ledger(self._client, board, self._settings, epoch, dry=dry)).state

        async def make() -> Move:
            newer = await self._newer(state, (old, new)) if board.operator == "set" else {}
            return await read_move(state, (old, new), reason, newer)

        try:
            _note(one, board, await put_move(ledger.writer, make, dry=dry))
        except SetupError as error:  # the merge can still succeed on other boards
            one.fault = str(error)
        return one

    async def _newer(self, state: BoardState, members: tuple[str, str]) -> dict[int, bool]:
        """Return for each slot whether the first member's amount is newer.

        The result is also true for a slot in which only one of the members has an amount.
        """
        held = await read_held(state, members)
        starts = [start for start, value in held[members[0]].items() if value and held[members[1]][start]]
        if not starts:
            return dict.fromkeys(held[members[0]], True)
        trail = await self._trail(state.board.id, state.epoch or "", 0)
        known = await self._database.run(lambda connection: newest_of(trail.read(connection), members))
        newer = {start: known.get(start) for start in starts}
        if None in newer.values():
            raise SetupError(_NOT_SAID)
        return {start: bool(newer.get(start, True)) for start in held[members[0]]}

    async def _undo(self, board: Board, epoch: str, merge: Merge, later: list[Merge], *, dry: bool) -> Merged:
        one, members = Merged(board=board.id), merge.members
        if "" in members:
            one.fault = "one of the two members was erased"
            return one
        if follower := next((each for each in later if not set(members).isdisjoint(each.members)), None):
            one.fault = f"undo merge {follower.number} first"
            return one
        state = (ledger := await open_ledger(self._client, board, self._settings, epoch, dry=dry)).state
        reason = reason_of(merge.number, members[1], members[0], undo=True)

        async def make() -> Move:
            if board.operator == "incr":
                return move_back(merge, await read_held(state, members), reason)
            for _ in range(_ATTEMPTS):
                retraced = await self._retrace(state, merge)
                move = retraced.move(board, await read_held(state, members), reason)
                if move is not None:
                    return move
                await asyncio.sleep(_PAUSE)
            raise SetupError(_BEHIND)

        try:
            _note(one, board, await put_move(ledger.writer, make, dry=dry))
        except SetupError as error:
            one.fault = str(error)
        return one

    async def _retrace(self, state: BoardState, merge: Merge) -> Retraced:
        trail = await self._trail(state.board.id, state.epoch or "", merge.number * 1000 - _MARGIN)

        def read(connection: Connection) -> Retraced | None:
            timeline = find_timeline(connection, self._prefix, state.board.id, merge.epoch)
            if timeline is None or position_of(timeline.drained) < position_of(merge.head.id):
                return None  # the merge is not in SQL yet
            before = contents_of(connection, self._prefix, timeline, link=merge.head.before)
            if before.link != merge.head.before:
                raise SetupError(_GONE)
            entries = list(trail.read(connection))
            first = next(number for number, (_, head, _) in enumerate(entries) if head.link == merge.head.link)
            return Retraced(before, merge, [(head, body) for _, head, body in entries[first:]])

        for _ in range(_ATTEMPTS):
            if (found := await self._database.run(read)) is not None:
                return found
            await asyncio.sleep(_PAUSE)
        raise SetupError(_BEHIND)


def _note(one: Merged, board: Board, move: Move) -> None:
    """Record the changes of a move in the result."""
    one.slots = move.slots
    if not move.slots:
        return
    if isinstance(board.window, Sliding):
        changes = {member: sum(amount for _, amount, name in move.events if name == member) for member in move.members}
    else:
        changes = {member: sum(amounts[member] for amounts in move.amounts.values()) for member in move.members}
    last = max(move.values or move.amounts or move.held[move.members[0]], default=0)
    for member in move.members:
        held = {start: int(value) for start, value in move.held[member].items() if value}
        if board.operator == "incr":
            one.before[member] = sum(held.values())
            one.after[member] = sum(held.values()) + changes[member]
        else:
            value = move.values[last][member]
            one.before[member], one.after[member] = held.get(last), None if value is None else value.value
