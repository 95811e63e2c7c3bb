"""Merge two members that are one person: move what one of them has to the other, on all boards."""

from typing import Final

import msgspec

from live.boards.all_boards import all_boards
from live.domain.board import Board, Boards
from live.errors import SetupError
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import open_ledger
from live.store.board.manage.erasure import knows_member
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
        found = [await self._merge(board, epoch, dry=dry) for board, epoch in boards.values()]
        return [one for one in found if one.slots or one.fault]

    async def _merge(self, board: Board, epoch: str, *, dry: bool) -> Merged:
        one, keys = Merged(board=board.id), Keys(self._prefix, board.id)
        if not await knows_member(self._client, keys, board, self._members[0]):
            return one
        if board.votes is not None:
            one.fault = _VOTES
            return one
        ledger = await open_ledger(self._client, board, self._settings, epoch, dry=dry)

        async def make() -> Move:
            return await read_move(ledger.state, self._members, self._reason)

        try:
            _note(one, board, await put_move(ledger.writer, make, dry=dry))
        except SetupError as error:  # the merge can still succeed on other boards
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
