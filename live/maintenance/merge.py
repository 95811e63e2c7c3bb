"""Merge two members that are one person: move what one of them has to the other, on all boards. Or rename a member.

To rename a member is to merge it into a name that nobody has. Then its place among ties, its registration, its title
and whether it is hidden move too.

Events may come in between the moves of a board and of a union that adds it up. So a union does not move what it holds,
but what its parts have moved.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from live.boards.definitions import all_boards
from live.domain.board import Board
from live.errors import ProblemError, SetupError
from live.maintenance.unions import Holdings, Union, find_unions
from live.settings import Settings
from live.store.board.ledger import Ledger, open_ledger
from live.store.board.manage.erasure import knows_member
from live.store.board.write.correction import read_held
from live.store.board.write.merging import Move, put_move, read_move
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import MOST_ENTRIES, AuditTrail, command_acting
from live.store.registry.items import Items

_ALSO: Final = "{} has {!r} already, so this is no rename: use `live merge`"
_VOTES: Final = (
    "it has votes. The digest of a vote covers the member, so nobody can tell who has voted for both: hide one member"
)
_PART: Final = "it adds up {}, which refuses: run it again when that board takes it"


class Merged(msgspec.Struct, kw_only=True):
    """The result of a merge on a board: in how many slots or periods an amount changed, and the amounts of the members.

    The amounts are sums over all slots. On boards with the best or the last amount, they are those in the newest slot
    or period that changed. `besides` says what else of a renamed member moved: `hidden` or `registered`. `fault` says
    why the board refuses.
    """

    board: str
    slots: int = 0
    before: dict[str, int | None] = {}
    after: dict[str, int | None] = {}
    besides: list[str] = []
    fault: str = ""


class Merging:
    """Merge two members on the boards of one key prefix, while servers run."""

    def __init__(self, client: Store, settings: Settings, members: tuple[str, str], *, renames: bool = False) -> None:
        """`members` are the member that gives everything up, and the member that gets it. Or one has two names."""
        self._client = client
        self._settings = settings
        self._members = members
        self._renames = renames
        self._reason = f"rename: {members[0]} to {members[1]}" if renames else f"merge: {members[0]} into {members[1]}"
        self._items = Items(client, settings.max_items + 1)  # for a moment, both names have one

    async def run(self, *, dry: bool) -> tuple[list[Merged], bool]:
        """Merge or rename. Return the boards that have changed or refused, and whether a title moves.

        After an interruption, the same call continues.

        Raises:
            SetupError: a board or a title has the new name already, so this is no rename.
        """
        old, new = self._members
        if not self._renames:
            async with command_acting(self._client, "merged", {"into": new}, dry=dry, key=old) as entry:
                found = await self._merge_all(dry=dry)
                changed = [one for one in found if one.slots]
                entry["before"] = {one.board: one.before for one in changed}
                entry["after"] = {one.board: one.after for one in changed}
            return found, False
        if not await self._is_begun():
            await self._require_unknown()
        async with command_acting(self._client, "renamed", {"to": new}, dry=dry, key=old) as entry:
            held = await self._items.of([old, new])
            if old in held and new not in held and not dry:
                await self._items.put([msgspec.structs.replace(held[old], member=new)])
            found = await self._merge_all(dry=dry)
            if old in held and not dry and not any(one.fault for one in found):
                await self._items.delete(old)
            entry["after"] = {
                "boards": [one.board for one in found if not one.fault],
                "refused": [one.board for one in found if one.fault and one.fault != _VOTES],
            }
        return found, old in held

    async def _merge_all(self, *, dry: bool) -> list[Merged]:
        """Move everything of the first member to the second one, on all boards."""
        await require_no_loss(self._client)
        boards = await all_boards(self._client)
        unions = await find_unions(self._client, self._settings)
        old = self._members[0]
        knowing = {name for name, (board, _) in boards.items() if await self._knows(board, old)}
        parts = {name: [part.board.id for part, _ in union.parts] for name, union in unions.items()}
        following = [name for name in unions if not knowing.isdisjoint((name, *parts[name]))]
        before = {} if dry else {name: await unions[name].settled(old) for name in following}
        moves, found = dict[str, Move](), dict[str, Merged]()
        for name, (board, epoch) in boards.items():
            if name in knowing and name not in following:
                found[name] = await self._merge(board, epoch, moves, dry=dry)
        for name in following:
            refusing = [part for part in parts[name] if part in found and found[part].fault]
            if refusing:  # nobody knows how much of what the union holds comes from this part
                found[name] = Merged(board=name, fault=_PART.format(refusing[0]))
            elif dry:
                found[name] = await self._merge(*boards[name], moves, dry=dry)
            else:
                found[name] = await self._follow(unions[name], before[name], moves)
        changed = (found[name] for name in boards if name in found)
        return [one for one in changed if one.slots or one.besides or one.fault]

    async def _require_unknown(self) -> None:
        new = self._members[1]
        for name, (board, _) in (await all_boards(self._client)).items():
            if await self._knows(board, new, given_up=False):
                raise SetupError(_ALSO.format(f"board {name!r}", new))
        if await self._items.of([new]):
            raise SetupError(_ALSO.format("a title", new))

    async def _is_begun(self) -> bool:
        """Return whether the last rename of the member was to this name and was interrupted, or boards refused it."""
        old, new = self._members
        for entry in await AuditTrail(self._client).last(MOST_ENTRIES):
            if entry.key == old and (entry.what == "renamed" or entry.after == {"act": "renamed"}):
                is_left = entry.what == "begun" or bool((entry.after or {}).get("refused"))
                return is_left and entry.before == {"to": new}
        return False

    async def _knows(self, board: Board, member: str, *, given_up: bool = True) -> bool:
        return await knows_member(self._client, self._client.keys_of(board.id), board, member, given_up=given_up)

    async def _merge(self, board: Board, epoch: str, moves: dict[str, Move], *, dry: bool) -> Merged:
        one = Merged(board=board.id)
        ledger = await open_ledger(self._client, board, self._settings, epoch, dry=dry)
        if board.votes is not None and (not self._renames or await self._has_votes(ledger)):
            one.fault = _VOTES
            return one

        async def make() -> Move:
            return await read_move(ledger.state, self._members, self._reason, renames=self._renames)

        async def move() -> None:
            if board.votes is None:
                moves[board.id] = await put_move(ledger.writer, make, dry=dry)
                _note(one, board, moves[board.id])

        await self._place(ledger, one, move, dry=dry)
        return one

    async def _place(
        self, ledger: Ledger, one: Merged, move: Callable[[], Awaitable[None]], *, dry: bool = False
    ) -> None:
        """Move amounts, and what else belongs to a renamed member. A hidden member is never shown meanwhile.

        If the board refuses, the merge can still succeed on other boards.
        """
        (old, new), moderation = self._members, ledger.moderation
        is_hidden, is_new = self._renames and await moderation.is_hidden(old), not await moderation.is_hidden(new)
        entrant = await moderation.metadata(old) if self._renames else None
        one.besides += ["hidden"] * is_hidden + ["registered"] * (entrant is not None)
        try:
            if is_hidden and not dry:
                await moderation.hide(new, hidden=True)
            await move()
        except SetupError as error:
            one.fault, one.besides = str(error), []
            if is_hidden and is_new and not dry:
                await moderation.hide(new, hidden=False)
            return
        if dry:
            return
        if entrant is not None:
            await moderation.enter(new, bytes(entrant))
            try:
                await moderation.withdraw(old)
            except ProblemError:  # it got a vote a moment ago
                one.fault, one.besides = _VOTES, []
                with suppress(ProblemError):
                    await moderation.withdraw(new)
                return
        if is_hidden:
            await moderation.hide(old, hidden=False)

    async def _has_votes(self, ledger: Ledger) -> bool:
        held = await read_held(ledger.state, self._members[:1])
        return any(held[self._members[0]].values())

    async def _follow(self, union: Union, before: Holdings, moves: dict[str, Move]) -> Merged:
        """Move in a union what it held before its parts changed, and what its parts have counted until they changed.

        So the union has the sum of its parts again, whatever came in meanwhile.
        """
        one, state, amounts = Merged(board=union.board.id), union.ledger.state, before.own
        await state.open_to_write()
        for (part, weight), held in zip(union.parts, before.parts, strict=True):
            moved = moves[part.board.id].amounts if part.board.id in moves else {}
            for place in {*held, *moved}:
                amounts[place] += weight * (moved.get(place, 0) - held[place])

        async def make() -> Move:
            whole = await read_move(state, self._members, self._reason, renames=self._renames)
            some = {place: amount for place, amount in amounts.items() if amount or state.board.zeros}
            if some == whole.amounts:
                return whole
            return Move(*self._members, self._reason, whole.held, some, is_whole=False, tags=whole.tags)

        async def move() -> None:
            nonlocal amounts
            _note(one, union.board, await put_move(union.ledger.writer, make))
            left = await union.settled(self._members[0])
            if left.difference:  # several servers have counted events in different orders
                amounts = left.own
                amounts.subtract(left.weighted)
                await put_move(union.ledger.writer, make)

        await self._place(union.ledger, one, move)
        return one


def _note(one: Merged, board: Board, move: Move) -> None:
    one.slots = move.slots
    if not move.slots:
        return
    held = {
        member: {start: int(value) for start, value in values.items() if value} for member, values in move.held.items()
    }
    if board.operator == "incr":
        moved, new, old = sum(move.amounts.values()), sum(held[move.new].values()), sum(held[move.old].values())
        one.before, one.after = {move.new: new, move.old: old}, {move.new: new + moved, move.old: old - moved}
    else:
        last = max(move.values)
        one.before = {member: held[member].get(last) for member in (move.new, move.old)}
        one.after = {move.new: move.values[last].value, move.old: None}
