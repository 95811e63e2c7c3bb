"""Merge two members that are one person: move what one of them has to the other, on all boards.

Events may come in between the moves of a board and of a union that adds it up. So a union does not move what it holds,
but what its parts have moved.
"""

from typing import Final

import msgspec

from live.boards.all_boards import all_boards
from live.domain.board import Board, Boards
from live.errors import SetupError
from live.maintenance.unions import Holdings, Union, find_unions
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import open_ledger
from live.store.board.manage.erasure import knows_member
from live.store.board.write.correction import read_held
from live.store.board.write.merging import Move, put_move, read_move
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss

_VOTES: Final = (
    "it has votes. The digest of a vote covers the member, so nobody can tell who has voted for both: hide one member"
)


class Merged(msgspec.Struct, kw_only=True):
    """The result of a merge on a board.

    Attributes:
        board: the id of the board.
        slots: in how many slots or periods an amount changed.
        before: the amount of each member before the call, summed up over all slots. On boards with the best or the
            last amount, the amount in the newest slot or period that changed.
        after: the amount of each member afterwards, computed like `before`.
        fault: why the board refuses the merge; empty if it succeeds.
    """

    board: str
    slots: int = 0
    before: dict[str, int | None] = {}
    after: dict[str, int | None] = {}
    fault: str = ""


class Merging:
    """Merge two members on the boards of one key prefix, while servers run."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, members: tuple[str, str]) -> None:
        """`members` are the member that gives everything up, and the member that gets it."""
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._members = members
        self._reason = f"merge: {members[0]} into {members[1]}"

    async def merge(self, *, dry: bool) -> list[Merged]:
        """Move everything of the first member to the second one. Return the boards that have changed or refused.

        Raises:
            SetupError: the store has lost data.
            StoreUnavailableError, EpochLostError: the same call continues where it stopped.
        """
        await require_no_loss(self._client, self._prefix)
        boards = await all_boards(self._client, self._settings, self._in_file)
        unions = await find_unions(self._client, self._settings, self._in_file)
        knowing = {name for name, (board, _) in boards.items() if await self._is_known(board)}
        before: dict[str, Holdings] = {}
        if not dry:
            for name, union in unions.items():
                if not knowing.isdisjoint((name, *(part.board.id for part, _ in union.parts))):
                    before[name] = await union.settled(self._members[0])
        moves, found = dict[str, Move](), list[Merged]()
        for name, (board, epoch) in boards.items():
            if name in knowing and name not in before:
                found.append(await self._merge(board, epoch, moves, dry=dry))
        for name, sample in before.items():
            found.append(await self._follow(unions[name], sample, moves))
        return [one for one in found if one.slots or one.fault]

    async def _is_known(self, board: Board) -> bool:
        return await knows_member(self._client, Keys(self._prefix, board.id), board, self._members[0])

    async def _merge(self, board: Board, epoch: str, moves: dict[str, Move], *, dry: bool) -> Merged:
        """Move everything that a board has of the member, and add the move to `moves`."""
        one = Merged(board=board.id)
        if board.votes is not None:
            one.fault = _VOTES
            return one
        ledger = await open_ledger(self._client, board, self._settings, epoch, dry=dry)

        async def make() -> Move:
            return await read_move(ledger.state, self._members, self._reason)

        try:
            moves[board.id] = await put_move(ledger.writer, make, dry=dry)
            _note(one, board, moves[board.id])
        except SetupError as error:  # the merge can still succeed on other boards
            one.fault = str(error)
        return one

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
            held = await read_held(state, self._members)
            some = {place: amount for place, amount in amounts.items() if amount or state.board.zeros}
            return Move(*self._members, self._reason, held, some, is_whole=False)

        try:
            _note(one, union.board, await put_move(union.ledger.writer, make))
            left = await union.settled(self._members[0])
            if left.difference:  # several servers have counted events in different orders
                amounts = left.own
                amounts.subtract(left.weighted)
                await put_move(union.ledger.writer, make)
        except SetupError as error:
            one.fault = str(error)
        return one


def _note(one: Merged, board: Board, move: Move) -> None:
    """Record the changes of a move in the result."""
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
